//! A change that is not finished: the objects before and after, and the numbers that it gives and takes.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{ChangeSet, Exchange, NumberHold, Object, ObjectId, PoolKind, Timestamp};
use millrace_ix_plan::services_at_boundary;
use millrace_ix_store::{ChangeRecord, ChangeState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::concerns::Concerns;
use crate::error::StartError;

/// A change that is not finished.
#[derive(Clone, Debug)]
pub(crate) struct OpenChange {
    /// The state in the journal.
    pub(crate) state: ChangeState,
    /// The error of a switch that refuses the present step. The engine tries the step again.
    pub(crate) stuck: Option<String>,
    /// The revision that accepted the change.
    pub(crate) revision: u64,
    /// The objects after the change.
    pub(crate) redo: ChangeSet,
    /// The objects before the change.
    pub(crate) undo: ChangeSet,
    /// The numbers that become free when the change is cleaned.
    pub(crate) frees: Vec<(PoolKind, u32)>,
    /// The numbers that become free when the change is rolled back.
    pub(crate) takes: Vec<(PoolKind, u32)>,
    /// True if the change concerns entries of switches.
    pub(crate) has_entries: bool,
    /// The parts of the exchange that the change concerns.
    pub(crate) concerns: Concerns,
    /// The times between which the change brings the switches, if validities begin or end between them.
    pub(crate) validity: Option<(Timestamp, Timestamp)>,
    /// The identifiers of the objects that the written objects refer to, before or after the change.
    pub(crate) references: BTreeSet<String>,
}

/// The part of an open change that the journal holds, as [`OpenChange::new`] writes it.
#[derive(Deserialize)]
struct Stored {
    revision: u64,
    redo: ChangeSet,
    undo: ChangeSet,
}

impl OpenChange {
    /// Returns the change that turns `before`, as it is planned for one time, into `after`, as it is planned for another, and
    /// the part that the journal holds. `redo` holds the objects that it writes.
    pub(crate) fn new(
        (before, then): (&Exchange, Timestamp),
        (after, now): (&Exchange, Timestamp),
        redo: ChangeSet,
        revision: u64,
    ) -> (OpenChange, Value) {
        let objects = redo.objects.keys().map(|id| (*id, before.object(*id))).collect();
        let takes = taken(before, after, &redo);
        let released = |kind: PoolKind, number: u32| {
            before
                .pools
                .get(&kind)
                .and_then(|pool| pool.released.get(&number))
                .copied()
        };
        // After a rollback the switches may still have staged entries with the new numbers.
        let mut rests: BTreeMap<(PoolKind, u32), Option<NumberHold>> = redo
            .released
            .iter()
            .map(|(kind, number, _)| ((*kind, *number), released(*kind, *number)))
            .collect();
        rests.extend(takes.iter().map(|number| (*number, Some(NumberHold::InSwitches))));
        let released = rests
            .into_iter()
            .map(|((kind, number), rest)| (kind, number, rest))
            .collect();
        let undo = ChangeSet {
            objects,
            released,
            last_id: 0,
        };
        let json = json!({"revision": revision, "redo": redo, "undo": undo});
        let references = references_in(&json);
        let stored = Stored { revision, redo, undo };
        let mut change = OpenChange::from_stored(stored, references, ChangeState::Accepted);
        change.relate((before, then), (after, now));
        (change, json)
    }

    /// Notes which parts of the exchange the change concerns.
    pub(crate) fn relate(
        &mut self,
        (before, then): (&Exchange, Timestamp),
        (after, now): (&Exchange, Timestamp),
    ) {
        let at_boundary = |side| services_at_boundary(side, then, now);
        let boundary: BTreeSet<_> = if then < now {
            at_boundary(before).chain(at_boundary(after)).collect()
        } else {
            BTreeSet::new()
        };
        self.validity = (then < now).then_some((then, now));
        self.concerns = Concerns::of([&self.redo, &self.undo], [before, after], &boundary);
    }

    /// Returns true if the switches do not use the new entries of the change yet, so that it may still be rolled back.
    pub(crate) const fn is_pending(&self) -> bool {
        matches!(
            self.state,
            ChangeState::Accepted | ChangeState::Planned | ChangeState::Staged
        )
    }

    fn from_stored(stored: Stored, references: BTreeSet<String>, state: ChangeState) -> OpenChange {
        let in_switches = |changes: &ChangeSet| {
            let released = changes.released.iter();
            let waiting = released.filter(|(_, _, rest)| *rest == Some(NumberHold::InSwitches));
            waiting.map(|(kind, number, _)| (*kind, *number)).collect()
        };
        OpenChange {
            state,
            stuck: None,
            revision: stored.revision,
            frees: in_switches(&stored.redo),
            takes: in_switches(&stored.undo),
            redo: stored.redo,
            undo: stored.undo,
            has_entries: true,
            concerns: Concerns::default(),
            validity: None,
            references,
        }
    }

    /// Reads the change from the detail of its journal record.
    pub(crate) fn read(record: &ChangeRecord) -> Result<OpenChange, StartError> {
        let json = &record.detail["stored"];
        let stored = Stored::deserialize(json).map_err(|error| StartError::Change {
            id: record.id,
            reason: error.to_string(),
        })?;
        Ok(OpenChange::from_stored(stored, references_in(json), record.state))
    }

    /// Returns the detail of the journal record `accepted`. `stored` is the part from which a restart continues the change.
    pub(crate) fn detail(&self, actor: &str, operations: &Value, stored: Value) -> Value {
        let objects: Vec<String> = self.redo.objects.keys().map(ToString::to_string).collect();
        let mut detail = json!({"actor": actor, "operations": operations, "objects": objects});
        detail["stored"] = stored;
        detail
    }

    /// Returns the identifiers of the objects that the change writes.
    pub(crate) fn objects(&self) -> BTreeSet<String> {
        self.redo.objects.keys().map(ToString::to_string).collect()
    }
}

/// Returns the identifiers of the objects that the objects of a change refer to, before or after it. `stored` is the part of the
/// change that the journal holds.
fn references_in(stored: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for side in ["redo", "undo"] {
        let objects = stored[side]["objects"].as_object();
        let objects = objects.into_iter().flat_map(|objects| objects.values());
        objects.for_each(|object| collect(object, &mut found));
    }
    found
}

/// Adds all strings of a value that are identifiers. A port is added as the identifier of its switch.
fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let name = text.split(':').next().unwrap_or(text);
            if ObjectId::find(name).is_some() && !found.contains(name) {
                found.insert(name.to_owned());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => members.values().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Returns the numbers that the objects of a change have afterwards and did not have before.
fn taken(before: &Exchange, after: &Exchange, redo: &ChangeSet) -> Vec<(PoolKind, u32)> {
    let numbers = |exchange: &Exchange| -> BTreeSet<(PoolKind, u32)> {
        redo.objects
            .keys()
            .filter_map(|id| exchange.object(*id))
            .flat_map(|object| numbers(&object))
            .collect()
    };
    numbers(after).difference(&numbers(before)).copied().collect()
}

/// Returns the numbers of an object.
pub(crate) fn numbers(object: &Object) -> Vec<(PoolKind, u32)> {
    match object {
        Object::Service(service) => {
            let mut numbers = vec![(PoolKind::ServiceIndex, service.index.raw())];
            numbers.extend(service.wire_id.map(|wire| (PoolKind::WireId, wire.raw())));
            numbers
        }
        Object::Config(config) => {
            let mut numbers = vec![
                (PoolKind::Meter, config.meter.raw()),
                (PoolKind::ConnectionIndex, config.index.raw()),
            ];
            numbers.extend(config.group.map(|group| (PoolKind::Group, group.raw())));
            numbers
        }
        Object::Connection(connection) => {
            let mut numbers = vec![(PoolKind::ConnectionIndex, connection.index.raw())];
            numbers.extend(connection.group.map(|group| (PoolKind::Group, group.raw())));
            numbers
        }
        Object::Switch(switch) => vec![(PoolKind::Group, switch.group.raw())],
        _ => Vec::new(),
    }
}
