//! The changes of flow entries, for flow monitors. They are recorded only while there is a monitor.

use std::sync::Arc;

use millrace_flow::Match;
use millrace_types::{Priority, TableId};

use super::Control;
use super::request::{FlowFilter, RemovedReason};
use crate::FlowEntry;

/// The change of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// The entry was added, or replaced one with the same match and priority.
    Added,
    /// The instructions of the entry were replaced.
    Modified,
    /// The entry was removed.
    Removed(RemovedReason),
}

/// A change of one entry.
#[derive(Clone, Debug)]
pub struct EntryChange {
    /// The change.
    pub kind: ChangeKind,
    /// The entry after the change; for a removed entry, before it.
    pub entry: Arc<FlowEntry>,
}

impl FlowFilter {
    /// Returns true if the filter selects the entry.
    pub fn selects(&self, entry: &FlowEntry) -> bool {
        (self.table == TableId::ALL || self.table == entry.table()) && self.accepts(entry)
    }
}

impl Control {
    /// Starts or stops recording changes.
    pub fn set_watched(&mut self, watched: bool) {
        if watched != self.changes.is_some() {
            self.changes = watched.then(Vec::new);
        }
    }

    /// Returns the changes since the latest call.
    pub fn take_changes(&mut self) -> Vec<EntryChange> {
        self.changes.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Returns the entry with this match and priority.
    pub fn find_entry(&self, table: TableId, match_: &Match, priority: Priority) -> Option<&Arc<FlowEntry>> {
        self.entry(self.find_strict(table, match_, priority)?)
    }

    pub(super) fn note_change(&mut self, kind: ChangeKind, entry: &Arc<FlowEntry>) {
        if let Some(changes) = &mut self.changes {
            let entry = Arc::clone(entry);
            changes.push(EntryChange { kind, entry });
        }
    }
}
