//! A durable store of the model: circuits, wire ids, journal, and the orders that the engine gets from it.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_engine::{ChangeId, Content, Delta, Order, Phase, Resume, Scope, SwitchId, difference};
use millrace_types::{Duration, Time};

use crate::fabric::{Key, Toy};

/// A circuit between two switches, under a wire id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Circuit {
    pub(crate) ends: [SwitchId; 2],
    pub(crate) wire: u32,
}

/// A change: the circuit before and after.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) circuit: u32,
    pub(crate) before: Option<Circuit>,
    pub(crate) after: Option<Circuit>,
    pub(crate) revision: u64,
    pub(crate) journal: Vec<Phase>,
}

/// The database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) circuits: BTreeMap<u32, Circuit>,
    pub(crate) changes: BTreeMap<ChangeId, Record>,
    pub(crate) revision: u64,
    /// Released wire ids, each with the time at which it is free again; `None` while switches may have it.
    pub(crate) resting: BTreeMap<u32, Option<Time>>,
}

pub(crate) type Plan = BTreeMap<SwitchId, Content<Toy>>;

/// Returns the entries of all circuits: table 0 sends into a wire, table 1 receives from it, and circuits
/// share table 2.
pub(crate) fn plan(circuits: &BTreeMap<u32, Circuit>) -> Plan {
    let mut plan = Plan::new();
    let mut put = |switch: SwitchId, key: Key, value: u64| {
        plan.entry(switch).or_default().insert(key, (true, value));
    };
    let mut shared: BTreeMap<SwitchId, u64> = BTreeMap::new();
    for (number, circuit) in circuits {
        for (side, end) in (0..).zip(circuit.ends) {
            put(end, (0, number * 2 + side), u64::from(circuit.wire));
            put(end, (1, circuit.wire), u64::from(*number));
            if number % 5 == 0 {
                *shared.entry(end).or_default() += u64::from(*number) + 1;
            }
        }
    }
    for (switch, sum) in shared {
        put(switch, (2, 0), sum);
    }
    plan
}

/// Returns the deltas of a change in phases: entries that take frames from a wire go in first and out last.
fn phases(before: &Plan, after: &Plan) -> [BTreeMap<SwitchId, Delta<Toy>>; 3] {
    let mut phases: [BTreeMap<SwitchId, Delta<Toy>>; 3] = Default::default();
    let empty = Content::<Toy>::new();
    let switches: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    for switch in switches {
        let (old, new) = (
            before.get(&switch).unwrap_or(&empty),
            after.get(&switch).unwrap_or(&empty),
        );
        for (key, (from, to)) in difference::<Toy>(old, new) {
            let phase = match (key.0, &from, &to) {
                (1, None, _) => 0,
                (1, _, None) => 2,
                _ => 1,
            };
            phases[phase].entry(switch).or_default().insert(key, (from, to));
        }
    }
    phases
}

impl Store {
    /// Accepts a change and gives it a wire id; `None` as ends deletes the circuit.
    pub(crate) fn accept(&mut self, circuit: u32, ends: Option<[SwitchId; 2]>, now: Time) -> Order<Toy> {
        let before = self.circuits.get(&circuit).copied();
        let taken = |wire: u32| {
            let rests = self
                .resting
                .get(&wire)
                .is_some_and(|until| until.is_none_or(|until| now < until));
            rests || self.circuits.values().any(|circuit| circuit.wire == wire)
        };
        let wire = (1..).find(|wire| !taken(*wire)).unwrap();
        self.resting.remove(&wire);
        let after = ends.map(|ends| Circuit { ends, wire });
        self.set(circuit, after);
        if let Some(before) = before {
            self.resting.insert(before.wire, None);
        }
        self.revision += 1;
        let id = self.changes.keys().last().map_or(1, |last| last + 1);
        let record = Record {
            circuit,
            before,
            after,
            revision: self.revision,
            journal: vec![Phase::Accepted],
        };
        self.changes.insert(id, record);
        self.order(id)
    }

    fn set(&mut self, circuit: u32, value: Option<Circuit>) {
        match value {
            Some(value) => self.circuits.insert(circuit, value),
            None => self.circuits.remove(&circuit),
        };
    }

    fn is_open(record: &Record) -> bool {
        !matches!(record.journal.last(), Some(Phase::Cleaned | Phase::RolledBack))
    }

    /// Returns the circuits as they were before the open changes from `id` on.
    fn before(&self, id: ChangeId) -> BTreeMap<u32, Circuit> {
        let mut store = self.clone();
        for (_, record) in self
            .changes
            .range(id..)
            .rev()
            .filter(|(_, record)| Store::is_open(record))
        {
            store.set(record.circuit, record.before);
        }
        store.circuits
    }

    /// Plans an open change.
    pub(crate) fn order(&self, id: ChangeId) -> Order<Toy> {
        let record = &self.changes[&id];
        let before = self.before(id);
        let mut after = before.clone();
        match record.after {
            Some(circuit) => after.insert(record.circuit, circuit),
            None => after.remove(&record.circuit),
        };
        let [stage, flip, clean] = phases(&plan(&before), &plan(&after));
        let objects = BTreeSet::from([record.circuit.to_string()]);
        Order {
            change: id,
            revision: record.revision,
            objects,
            references: BTreeSet::new(),
            follows: BTreeSet::new(),
            scope: Scope::default(),
            stage,
            flip,
            clean,
        }
    }

    /// Returns the plan without open changes, and the open changes with the points at which they resume.
    pub(crate) fn recover(&mut self) -> (Plan, Vec<(Order<Toy>, Resume)>) {
        let open: Vec<ChangeId> = self
            .changes
            .iter()
            .filter(|(_, record)| Store::is_open(record))
            .map(|(id, _)| *id)
            .collect();
        let base = plan(&self.before(0));
        let mut orders = Vec::new();
        for id in open {
            let resume = match self.changes[&id].journal.last() {
                Some(Phase::Staged) => Resume::Flip,
                Some(Phase::Flipped) => Resume::Drain,
                Some(Phase::Drained) => Resume::Clean,
                _ => Resume::Start,
            };
            orders.push((self.order(id), resume));
        }
        (base, orders)
    }

    /// Undoes changes, newest first.
    pub(crate) fn roll_back(&mut self, changes: &[ChangeId]) {
        for id in changes {
            let record = self.changes[id].clone();
            self.set(record.circuit, record.before);
            if let Some(after) = record.after {
                self.resting.insert(after.wire, None);
            }
            if let Some(before) = record.before {
                self.resting.remove(&before.wire);
            }
            self.changes.get_mut(id).unwrap().journal.push(Phase::RolledBack);
        }
    }

    /// Starts the waiting time of the wire ids that changes released before the engine started.
    pub(crate) fn sweep(&mut self, now: Time) {
        let open: Vec<u32> = self
            .changes
            .values()
            .filter(|record| Store::is_open(record))
            .filter_map(|record| record.before.map(|circuit| circuit.wire))
            .collect();
        for (_, rest) in self
            .resting
            .iter_mut()
            .filter(|(wire, rest)| rest.is_none() && !open.contains(wire))
        {
            *rest = Some(now + Duration::from_secs(60));
        }
    }

    /// Starts the waiting time of the wire id that a finished change released.
    pub(crate) fn release(&mut self, id: ChangeId, now: Time) {
        let record = &self.changes[&id];
        let freed = match record.journal.last() {
            Some(Phase::RolledBack) => record.after,
            _ => record.before,
        };
        if let Some(rest) = freed.and_then(|circuit| self.resting.get_mut(&circuit.wire)) {
            *rest = Some(now + Duration::from_secs(60));
        }
    }
}
