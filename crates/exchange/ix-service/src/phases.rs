//! Plans and the phases between them, in the form that the engine needs.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_engine::{Content, Delta};
use millrace_ix_model::{Exchange, ServiceId, SwitchId, Timestamp};
use millrace_ix_plan::{Modification, Settings, services_at_boundary};

use crate::fabric::Fabric;
use crate::order::EntryCounts;

/// The plan of all switches.
pub(crate) type Plan = BTreeMap<u32, Content<Fabric>>;

/// The deltas of a change: stage, flip, clean.
pub(crate) type Phases = [BTreeMap<u32, Delta<Fabric>>; 3];

/// The settings that all plans of an exchange share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planner {
    /// True if every switch has the match extensions of Open vSwitch.
    pub(crate) extensions: bool,
}

impl Planner {
    fn settings(self, now: Timestamp) -> Settings {
        Settings {
            now,
            extensions: self.extensions,
        }
    }

    /// Returns the content that each switch should have.
    pub(crate) fn plan(self, exchange: &Exchange, now: Timestamp) -> Plan {
        let plan = millrace_ix_plan::plan(exchange, &self.settings(now));
        plan.switches
            .into_iter()
            .map(|(switch, content)| (switch.0, content))
            .collect()
    }

    /// Returns true if switches should have entries of a service.
    pub(crate) fn has_entries(self, exchange: &Exchange, service: ServiceId, now: Timestamp) -> bool {
        let plan = millrace_ix_plan::plan_services(exchange, &BTreeSet::from([service]), &self.settings(now));
        plan.switches.values().any(|content| !content.is_empty())
    }

    /// Returns the deltas between two exchanges, each at its own time, in phases. Entries that no frame reaches are added
    /// first and removed last.
    pub(crate) fn phases(
        self,
        (before, then): (&Exchange, Timestamp),
        (after, now): (&Exchange, Timestamp),
    ) -> Phases {
        let (then, now) = (self.settings(then), self.settings(now));
        let phases = millrace_ix_plan::phases_between((before, &then), (after, &now));
        [phases.stage, phases.flip, phases.clean].map(deltas)
    }
}

/// Returns true if a moment is after `then` and not after `now`.
fn is_between(moment: Timestamp, then: Timestamp, now: Timestamp) -> bool {
    then < moment && moment <= now
}

/// Returns true if the validity of an address, a key or a filter begins or ends between two times.
pub(crate) fn has_boundary(exchange: &Exchange, then: Timestamp, now: Timestamp) -> bool {
    let is_end = |end: Option<Timestamp>| end.is_some_and(|end| is_between(end, then, now));
    services_at_boundary(exchange, then, now).next().is_some()
        || exchange.filters.values().any(|filter| is_end(filter.valid_until))
        || exchange
            .service_keys
            .values()
            .any(|key| key.redeemed_by.is_none() && is_end(Some(key.valid_until)))
}

fn deltas(phase: BTreeMap<SwitchId, Vec<Modification>>) -> BTreeMap<u32, Delta<Fabric>> {
    let delta = |modifications: Vec<Modification>| {
        modifications
            .into_iter()
            .map(|change| (change.key, (change.from, change.to)))
            .collect()
    };
    phase
        .into_iter()
        .map(|(switch, modifications)| (switch.0, delta(modifications)))
        .collect()
}

/// Returns the number of entries of each switch that a change adds, changes and removes.
pub(crate) fn counts(phases: &Phases) -> BTreeMap<SwitchId, EntryCounts> {
    let mut counts: BTreeMap<SwitchId, EntryCounts> = BTreeMap::new();
    for (switch, delta) in phases.iter().flatten() {
        let count = counts.entry(SwitchId(*switch)).or_default();
        for (from, to) in delta.values() {
            match (from, to) {
                (None, _) => count.added += 1,
                (_, None) => count.removed += 1,
                _ => count.changed += 1,
            }
        }
    }
    counts
}
