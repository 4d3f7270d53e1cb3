//! The exchange as this crate reads it: a snapshot of its objects with the states of its switches, and events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use millrace_ix_engine::Mode;
use millrace_ix_model::state::Realisation;
use millrace_ix_model::{ConfigId, Exchange, ObjectId, PortId, ServiceId, SwitchId, Timestamp};
use millrace_ix_service::DriftFinding;

use crate::index::Index;
use crate::observed::Quarantined;

/// The state of a switch relative to the plan, as the fabric page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchState {
    /// The switch has the entries of the plan. Foreign entries that the engine keeps do not count.
    InSync,
    /// Changes are being sent to the switch, or its content is not known yet.
    Syncing,
    /// The switch differs from the plan, and the engine sends nothing until an operator decides which side is
    /// right.
    Drifted,
    /// The switch is not connected.
    Unreachable,
}

impl SwitchState {
    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            SwitchState::InSync => "in_sync",
            SwitchState::Syncing => "syncing",
            SwitchState::Drifted => "drifted",
            SwitchState::Unreachable => "unreachable",
        }
    }
}

/// The engine's knowledge about a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchHealth {
    pub state: SwitchState,
    /// The time at which the switch entered this state, if known.
    pub since: Option<Timestamp>,
    /// A note about the state in words, such as the number of foreign entries that the engine keeps.
    pub error: Option<String>,
    /// The number of flow entries that the plan has for it.
    pub entries: usize,
    /// The ports without a link; `None` while they are not known.
    pub ports_down: Option<BTreeSet<u32>>,
}

/// The exchange at one revision, with the engine's knowledge of its state in the switches.
#[derive(Debug)]
pub struct Snapshot {
    /// The objects.
    pub exchange: Arc<Exchange>,
    pub revision: u64,
    /// The state of each switch. The state of a switch that is not listed is unknown.
    pub switches: BTreeMap<SwitchId, SwitchHealth>,
    /// Why the database cannot be written, so that the engine accepts no orders; `None` if it can.
    pub unwritable: Option<String>,
    /// The time since which the database has not answered: what an engine that follows shows is as old. `None` if it answers.
    pub silent_since: Option<Timestamp>,
    /// The checklists of the ends in quarantine.
    pub quarantine: Arc<BTreeMap<ConfigId, Quarantined>>,
    /// The engine's snapshot. Realisations and revisions are looked up in it on demand. To collect them for 10,000 services at
    /// every event would cost more than all requests.
    source: Arc<millrace_ix_service::Snapshot>,
    index: Arc<OnceLock<Index>>,
}

/// Returns why the engine accepts no orders, as far as its database is concerned.
fn unwritable(source: &millrace_ix_service::Snapshot) -> Option<String> {
    let follows = |leader: &millrace_ix_store::Leader| {
        format!("this engine follows {leader}: it shows the exchange, and accepts nothing")
    };
    let silent = || "the database does not answer".to_owned();
    let found = source
        .follows
        .as_ref()
        .map(follows)
        .or_else(|| source.unwritable.clone());
    found.or_else(|| source.silent_since.map(|_| silent()))
}

impl Snapshot {
    /// Returns the engine's snapshot for the API. The index of `before` is reused and updated.
    pub(crate) fn of_engine(
        source: Arc<millrace_ix_service::Snapshot>,
        before: Option<&Snapshot>,
    ) -> Snapshot {
        let index = match before {
            Some(before) if Arc::ptr_eq(&before.exchange, &source.exchange) => Arc::clone(&before.index),
            Some(before) if let Some(index) = before.index.get() => {
                Arc::new(index.updated(&before.exchange, &source.exchange).into())
            }
            _ => Arc::default(),
        };
        Snapshot {
            exchange: Arc::clone(&source.exchange),
            revision: source.revision.0,
            switches: BTreeMap::new(),
            unwritable: unwritable(&source),
            silent_since: source.silent_since.map(|since| Timestamp::from_millis(since.0)),
            quarantine: Arc::clone(&source.quarantine),
            index,
            source,
        }
    }

    /// Returns the revision at which an object was last written.
    pub fn revision_of(&self, object: ObjectId) -> u64 {
        let found = self.source.revisions.of(object);
        found.map_or(self.revision, |revision| revision.0)
    }

    /// Returns the realisation of a service in the switches.
    pub(crate) fn realisation(&self, service: ServiceId) -> Realisation {
        self.source.realisation(service)
    }

    /// Returns true if a port has a link; `None` if that is not known.
    pub fn is_up(&self, port: PortId) -> Option<bool> {
        let health = self.switches.get(&port.switch)?;
        if health.state == SwitchState::Unreachable {
            return None;
        }
        health
            .ports_down
            .as_ref()
            .map(|down| !down.contains(&port.port.raw()))
    }

    /// Returns the drift of a switch that comparisons have found, the newest first.
    pub fn drift_findings(&self, switch: SwitchId) -> impl Iterator<Item = &DriftFinding> {
        self.source.drift_findings.get(&switch).into_iter().flatten()
    }

    /// Returns the switch whose entries are newer than the database, so that the engine sends nothing until an operator
    /// decides; `None` while the engine writes.
    pub fn read_only(&self) -> Option<SwitchId> {
        match self.source.mode {
            Mode::ReadOnly { switch, .. } => Some(SwitchId(switch)),
            Mode::Normal => None,
        }
    }

    pub(crate) fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.exchange))
    }
}

/// A notification from the engine, such as a changed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind as a word: `object`, `change`, `switch`, `notice`, `mode`.
    pub kind: &'static str,
    /// The objects concerned.
    pub objects: Vec<ObjectId>,
    /// The change concerned.
    pub change: Option<u64>,
    /// The exchange before the transaction, which decides who may know of a deleted object.
    pub before: Arc<Exchange>,
}
