//! A change: its phases, and the earlier changes for which it waits.

use std::collections::{BTreeMap, BTreeSet};

use millrace_types::Time;

use crate::SwitchId;
use crate::content::{Delta, Entries};

/// The number of a change in the journal.
pub type ChangeId = u64;

/// The phase that a change is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// The change is durable and has not begun: it waits for earlier changes.
    Accepted,
    /// The new entries are installed alongside the old entries.
    Planned,
    /// The ingress switches move frames to the new entries.
    Staged,
    /// The engine waits until frames that follow the old entries have left the fabric.
    Flipped,
    /// The old entries are removed.
    Drained,
    /// The change is complete.
    Cleaned,
    /// A switch has refused the flip. The ingress switches that have flipped return to the old entries, and the engine
    /// waits until frames that follow the new entries have left the fabric. The journal still says `staged`.
    Reverting,
    /// The change is undone; its new entries are being removed.
    RolledBack,
}

/// The point at which the engine begins or, after a restart, resumes a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// The change is new, or it certainly had not begun to flip.
    Start,
    /// The flip may have begun.
    Flip,
    /// All ingress switches had flipped.
    Drain,
    /// The removal of old entries may have begun.
    Clean,
}

/// The parts of the exchange that the verification of a change depends on, by names that the caller chooses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// The parts that the verification reads.
    pub reads: BTreeSet<String>,
    /// The parts whose frames the flip alters.
    pub alters: BTreeSet<String>,
}

impl Scope {
    /// Returns true if another change alters what the verification of this one reads.
    pub(crate) fn depends_on(&self, other: &Scope) -> bool {
        !self.reads.is_disjoint(&other.alters)
    }
}

/// An ordered change: the entries of each phase, and the objects concerned.
#[derive(Debug)]
pub struct Order<E: Entries> {
    /// The number.
    pub change: ChangeId,
    /// The revision of the database that accepted the change.
    pub revision: u64,
    /// The identifiers of the objects that the change writes.
    pub objects: BTreeSet<String>,
    /// The identifiers of the objects that the written objects refer to.
    pub references: BTreeSet<String>,
    /// The identifiers of objects whose earlier changes must be drained before this change begins, because its entries were
    /// planned on top of theirs. Unlike [`Order::references`], it is planned again if one of them is rolled back.
    pub follows: BTreeSet<String>,
    /// The parts of the exchange that its verification reads, and that its flip alters.
    pub scope: Scope,
    /// The entries of each switch that are installed before the flip.
    pub stage: BTreeMap<SwitchId, Delta<E>>,
    /// The entries that make ingress switches use the new entries, or stop using the old entries.
    pub flip: BTreeMap<SwitchId, Delta<E>>,
    /// The entries that are removed after the old frames have left.
    pub clean: BTreeMap<SwitchId, Delta<E>>,
}

impl<E: Entries> Order<E> {
    /// Returns true if the order changes no switch.
    pub fn is_empty(&self) -> bool {
        self.phases().all(BTreeMap::is_empty)
    }

    /// Returns the deltas in the order of the phases.
    pub(crate) fn phases(&self) -> impl Iterator<Item = &BTreeMap<SwitchId, Delta<E>>> {
        [&self.stage, &self.flip, &self.clean].into_iter()
    }
}

/// A resource that two changes must not write at the same time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Resource<K> {
    /// An entry of a switch.
    Entry(SwitchId, K),
    /// An object of the exchange.
    Object(String),
}

/// The refusal of a change by a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) switch: SwitchId,
    /// The switch's error.
    pub(crate) reason: String,
}

/// The verification of a change before its flip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verification {
    /// The verification has not been asked for.
    Open,
    /// The verification was asked for at this time.
    Asked(Time),
    /// The entries of the change may be used.
    Passed,
}

/// A change in progress.
#[derive(Debug)]
pub(crate) struct Change<E: Entries> {
    pub(crate) order: Order<E>,
    pub(crate) phase: Phase,
    /// The earlier changes that use the same resources and are not drained. This change begins only when they are.
    pub(crate) predecessors: BTreeSet<ChangeId>,
    /// The earlier changes that use the same resources and whose old entries are being removed. This change ends
    /// only after them.
    pub(crate) drained_predecessors: BTreeSet<ChangeId>,
    /// The switches that have not confirmed the current phase.
    pub(crate) waiting: BTreeSet<SwitchId>,
    pub(crate) verification: Verification,
    /// The end of the drain.
    pub(crate) drain_until: Option<Time>,
    /// The refusal for which the change is reverted.
    pub(crate) refusal: Option<Refusal>,
    /// The time at which the current phase began.
    pub(crate) since: Time,
    /// True after the engine has reported, for this phase, that switches do not answer.
    pub(crate) silence_reported: bool,
}

impl<E: Entries> Change<E> {
    /// Returns true if the current phase applies its deltas in reverse.
    pub(crate) fn is_reversed(&self) -> bool {
        matches!(self.phase, Phase::Reverting | Phase::RolledBack)
    }

    /// Returns the deltas of the current phase. They are applied in reverse if [`Change::is_reversed`].
    pub(crate) fn deltas(&self) -> Option<&BTreeMap<SwitchId, Delta<E>>> {
        match self.phase {
            Phase::Planned | Phase::RolledBack => Some(&self.order.stage),
            Phase::Staged | Phase::Reverting => Some(&self.order.flip),
            Phase::Drained => Some(&self.order.clean),
            Phase::Accepted | Phase::Flipped | Phase::Cleaned => None,
        }
    }

    /// Returns the deltas that switches must have confirmed before the next phase. The flip needs the deltas
    /// of the stage as well, because a switch may have lost them in between.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &BTreeMap<SwitchId, Delta<E>>> {
        let stage = (self.phase == Phase::Staged).then_some(&self.order.stage);
        stage.into_iter().chain(self.deltas())
    }

    /// Returns the earlier changes that this change waits for in its current phase.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = ChangeId> {
        let is_last = self.phase == Phase::Drained || self.order.is_empty();
        let drained = is_last.then_some(&self.drained_predecessors);
        self.predecessors
            .iter()
            .chain(drained.into_iter().flatten())
            .copied()
    }

    /// Returns true if a change with this scope cannot be verified now because of this one: the content that the switches
    /// will have is not known between the question and the flip. A change that flips has been verified, so that what it
    /// has read may be altered again.
    pub(crate) fn holds_back(&self, scope: &Scope) -> bool {
        let own = &self.order.scope;
        match self.phase {
            Phase::Planned if !matches!(self.verification, Verification::Open) => {
                scope.depends_on(own) || own.depends_on(scope)
            }
            Phase::Staged | Phase::Reverting => scope.depends_on(own),
            _ => false,
        }
    }

    /// Returns the resources that the change writes.
    pub(crate) fn writes(&self) -> BTreeSet<Resource<E::Key>> {
        let entries = self
            .order
            .phases()
            .flatten()
            .flat_map(|(switch, delta)| delta.keys().map(|key| Resource::Entry(*switch, key.clone())));
        let objects = self.order.objects.iter().cloned().map(Resource::Object);
        entries.chain(objects).collect()
    }
}
