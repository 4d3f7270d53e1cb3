//! What became of flow entries, for those who watch them. While nobody does, nothing is noted.

use std::sync::Arc;

use millrace_flow::Match;
use millrace_types::{Priority, TableId};

use super::Control;
use super::request::{FlowFilter, RemovedReason};
use crate::FlowEntry;

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// It came, perhaps in the place of one with the same match and priority.
    Added,
    /// Its instructions are others.
    Modified,
    /// It went.
    Removed(RemovedReason),
}

/// A change of one entry.
#[derive(Clone, Debug)]
pub struct EntryChange {
    /// What happened.
    pub kind: ChangeKind,
    /// The entry as it is now, or was last.
    pub entry: Arc<FlowEntry>,
}

impl FlowFilter {
    /// Returns true if the entry is meant.
    pub fn selects(&self, entry: &FlowEntry) -> bool {
        (self.table == TableId::ALL || self.table == entry.table()) && self.accepts(entry)
    }
}

impl Control {
    /// Begins, or ends, noting what becomes of entries.
    pub fn set_watched(&mut self, watched: bool) {
        if watched != self.changes.is_some() {
            self.changes = watched.then(Vec::new);
        }
    }

    /// What became of entries since this was asked last.
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
