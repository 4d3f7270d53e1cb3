//! Several requests that take effect together or not at all.
//!
//! Between [`Control::begin`] and [`Control::commit`] every change records how to undo it. Nothing is published in
//! between, so workers never see a change that is undone.

use millrace_flow::classify::Slot;

use super::journal::{Journal, Undo};
use super::record::Record;
use super::strict::StrictIndex;
use super::writer::Control;
use crate::Op;

impl Control {
    /// Begins a transaction. `ops` is the list to which all its requests append; nothing may be published
    /// until [`Control::commit`] or [`Control::roll_back`].
    pub fn begin(&mut self, ops: &[Op]) {
        self.journal = Some(Journal {
            undo: Vec::new(),
            ops_len: ops.len(),
            removed_len: self.removed.len(),
            removed_counters_len: self.removed_counters.len(),
            changes_len: self.changes.as_ref().map_or(0, Vec::len),
        });
    }

    /// Ends the transaction, and keeps its changes.
    pub fn commit(&mut self) {
        self.journal = None;
    }

    /// Undoes all changes since [`Control::begin`], and removes them from `ops`.
    pub fn roll_back(&mut self, ops: &mut Vec<Op>) {
        let Some(journal) = self.journal.take() else {
            return;
        };
        for undo in journal.undo.into_iter().rev() {
            self.undo(undo);
        }
        self.removed.truncate(journal.removed_len);
        self.removed_counters.truncate(journal.removed_counters_len);
        if let Some(changes) = &mut self.changes {
            changes.truncate(journal.changes_len);
        }
        ops.truncate(journal.ops_len);
    }

    /// Records how to undo a change, if a transaction has begun.
    pub(super) fn record_undo(&mut self, undo: impl FnOnce() -> Undo) {
        if let Some(journal) = &mut self.journal {
            journal.undo.push(undo());
        }
    }

    /// Records that an entry was added.
    pub(super) fn note_added(&mut self, slot: Slot) {
        let Some(journal) = &mut self.journal else { return };
        match journal.undo.last_mut() {
            Some(Undo::Added { first, len }) if first.index() + *len as usize == slot.index() => *len += 1,
            _ => journal.undo.push(Undo::Added { first: slot, len: 1 }),
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Added { first, len } => {
                for at in (0..len).rev() {
                    self.undo_add(Slot::new(first.index() as u32 + at));
                }
            }
            Undo::Replaced(slot, entry) => self.store(slot, entry),
            Undo::Removed(slot, record) => {
                if let Some(index) = self.index_of(&record) {
                    index.insert(&record.entry, slot);
                }
                let table = record.table;
                if let Some(stored) = self.records.get_mut(slot.index()) {
                    *stored = Some(record);
                }
                if let Some(due) = self.expiry_time(table, slot) {
                    self.push_expiry(table, slot, due);
                }
            }
            Undo::Port(port) => self.ports.insert(*port),
            Undo::Group(id, before) => self.undo_group(id, before.map(|before| *before)),
            Undo::Meter(id, before) => self.undo_meter(id, before.map(|before| *before)),
        }
    }

    fn undo_add(&mut self, slot: Slot) {
        let Some(record) = self.records.get_mut(slot.index()).and_then(Option::take) else {
            return;
        };
        if let Some(index) = self.index_of(&record) {
            index.remove(&record.entry, slot);
        }
        self.free.push(slot);
    }

    fn index_of(&mut self, record: &Record) -> Option<&mut StrictIndex> {
        self.tables.get_mut(usize::from(record.table.0))
    }
}
