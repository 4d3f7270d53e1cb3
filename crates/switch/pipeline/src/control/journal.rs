//! Several requests carried out together or not at all.
//!
//! Between [`Control::begin`] and [`Control::commit`] every change notes how it is undone. As nothing is
//! published in between, workers never see what is undone.

use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_types::{GroupId, MeterId};

use super::groups::HeldGroup;
use super::meter_mod::HeldMeter;
use super::{Control, Record, StrictIndex};
use crate::{FlowEntry, Op, Port};

/// How one change is undone.
#[derive(Debug)]
pub(super) enum Undo {
    /// Entries came, at as many slots in a row: a bundle of a million adds needs one note.
    Added { first: Slot, len: u32 },
    /// An entry took the place of this one.
    Replaced(Slot, Arc<FlowEntry>),
    /// An entry went.
    Removed(Slot, Record),
    /// A port was another.
    Port(Box<Port>),
    /// A group was another, or was not there.
    Group(GroupId, Option<Box<HeldGroup>>),
    /// A meter was another, or was not there.
    Meter(MeterId, Option<Box<HeldMeter>>),
}

/// What has been done since the beginning.
#[derive(Debug)]
pub(super) struct Journal {
    undo: Vec<Undo>,
    /// How long these were at the beginning.
    ops_len: usize,
    gone_len: usize,
    gone_counts_len: usize,
    changes_len: usize,
}

impl Control {
    /// Begins requests that belong together. `ops` is what all of them will be given; nothing may be published
    /// until [`Control::commit`] or [`Control::roll_back`].
    pub fn begin(&mut self, ops: &[Op]) {
        self.journal = Some(Journal {
            undo: Vec::new(),
            ops_len: ops.len(),
            gone_len: self.gone.len(),
            gone_counts_len: self.gone_counts.len(),
            changes_len: self.changes.as_ref().map_or(0, Vec::len),
        });
    }

    /// Ends requests that belong together: all of them stay.
    pub fn commit(&mut self) {
        self.journal = None;
    }

    /// Undoes everything since [`Control::begin`], and takes it out of `ops`.
    pub fn roll_back(&mut self, ops: &mut Vec<Op>) {
        let Some(journal) = self.journal.take() else {
            return;
        };
        for undo in journal.undo.into_iter().rev() {
            self.undo(undo);
        }
        self.gone.truncate(journal.gone_len);
        self.gone_counts.truncate(journal.gone_counts_len);
        if let Some(changes) = &mut self.changes {
            changes.truncate(journal.changes_len);
        }
        ops.truncate(journal.ops_len);
    }

    /// Notes how a change is undone, if anybody may want to.
    pub(super) fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if let Some(journal) = &mut self.journal {
            journal.undo.push(undo());
        }
    }

    /// Notes that an entry came.
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
            Undo::Replaced(slot, entry) => self.place(slot, entry),
            Undo::Removed(slot, record) => {
                if let Some(index) = self.index_of(&record) {
                    index.insert(&record.entry, slot);
                }
                let table = record.table;
                if let Some(place) = self.records.get_mut(slot.index()) {
                    *place = Some(record);
                }
                if let Some(due) = self.due(table, slot) {
                    self.note_due(table, slot, due);
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
