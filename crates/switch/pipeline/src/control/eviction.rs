//! Which entry makes room in a full table that evicts.
//!
//! Version 1.3.5 leaves open what a full table does beyond refusing; this is eviction as OpenFlow 1.4 has it
//! (section 6.5), in the order of lifetime: of the entries with a timeout, the one goes that would go first. Entries
//! without a timeout stay.
//!
//! Each table that evicts has a heap of its entries by the time at which they were to go when they were looked at last.
//! Packets move that time on, unnoticed here: who is found to have been used goes back to its new place. Where all are
//! used all the time, that would never end, so a search looks at a bounded number and takes the best of them. Entries
//! leave nothing behind when they go but their place in the heap, which is found out when it comes up, and swept when
//! the heap is mostly such places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use arrayvec::ArrayVec;
use millrace_flow::classify::Slot;
use millrace_types::{TableId, Time};

use super::request::RemovedReason;
use super::{Control, expiry};
use crate::Op;

/// Entries that one search looks at beyond those that are gone.
const LOOKS: usize = 64;
/// A heap so long, and twice as long as its table, is swept.
const SWEPT: usize = 128;

/// What a full table does with one more entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// It refuses it: OFPFMFC_TABLE_FULL.
    #[default]
    Refuse,
    /// Of the entries with a timeout, the one that would go first goes at once; a table without such an entry refuses.
    Evict,
}

/// How many entries a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableLimit {
    /// At most so many.
    pub max_entries: u32,
    /// What happens to more.
    pub when_full: WhenFull,
}

/// The heaps, by table.
#[derive(Debug, Default)]
pub(super) struct Evictions(BTreeMap<TableId, BinaryHeap<Reverse<(Time, Slot)>>>);

impl Control {
    /// Bounds tables; those that are not named hold as many entries as fit and refuse more. What is there already stays.
    pub fn set_limits(&mut self, limits: BTreeMap<TableId, TableLimit>) {
        if limits == self.limits {
            return;
        }
        self.limits = limits;
        self.evictions = Evictions::default();
        let evicting =
            |(table, limit): (&TableId, &TableLimit)| (limit.when_full == WhenFull::Evict).then_some(*table);
        let evicting: Vec<TableId> = self.limits.iter().filter_map(evicting).collect();
        for table in evicting {
            let slots: Vec<Slot> = self.entries().map(|(slot, _)| slot).collect();
            self.fill(table, slots);
        }
    }

    /// An entry has come to a table, or has new timeouts.
    #[inline]
    pub(super) fn note_due(&mut self, table: TableId, slot: Slot, due: Time) {
        let Some(heap) = self.evictions.0.get_mut(&table) else {
            return;
        };
        heap.push(Reverse((due, slot)));
        let len = self
            .tables
            .get(usize::from(table.0))
            .map_or(0, super::StrictIndex::len);
        if heap.len() > SWEPT && heap.len() > 2 * len {
            self.sweep(table);
        }
    }

    /// Makes the heap of a table anew, of what is in it.
    fn sweep(&mut self, table: TableId) {
        let heap = self.evictions.0.remove(&table).unwrap_or_default();
        let slots: BTreeSet<Slot> = heap.into_iter().map(|Reverse((_, slot))| slot).collect();
        self.fill(table, slots);
    }

    /// Makes the heap of a table of the entries at these slots, as far as it has them and they have a timeout.
    fn fill(&mut self, table: TableId, slots: impl IntoIterator<Item = Slot>) {
        let known = |slot| Some(Reverse((self.due(table, slot)?, slot)));
        let heap = slots.into_iter().filter_map(known).collect();
        self.evictions.0.insert(table, heap);
    }

    /// When the entry at a slot of a table goes, if it is there and has a timeout.
    pub(super) fn due(&self, table: TableId, slot: Slot) -> Option<Time> {
        let record = self.record(slot).filter(|record| record.table == table)?;
        expiry::due(&record.entry, self.banks.entry(slot).last_used)
    }

    /// Removes an entry from a table that evicts; answers whether there was one to remove.
    pub(super) fn make_room(&mut self, table: TableId, now: Time, ops: &mut Vec<Op>) -> bool {
        let Some(mut heap) = self.evictions.0.remove(&table) else {
            return false;
        };
        let mut looked: ArrayVec<(Time, Slot), LOOKS> = ArrayVec::new();
        while !looked.is_full()
            && let Some(Reverse((noted, slot))) = heap.pop()
        {
            let Some(due) = self.due(table, slot) else {
                continue;
            };
            looked.push((due, slot));
            if due <= noted {
                // Nobody behind it goes sooner.
                break;
            }
        }
        let first = looked.iter().min().copied();
        heap.extend(
            looked
                .into_iter()
                .filter(|held| Some(*held) != first)
                .map(Reverse),
        );
        self.evictions.0.insert(table, heap);
        match first {
            Some((_, slot)) => {
                self.remove(slot, Some(RemovedReason::Delete), now, ops);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_flow::{Instructions, Match};
    use millrace_types::Priority;

    use super::*;
    use crate::{ControlConfig, FlowMod, FlowModCommand};

    #[test]
    fn a_heap_does_not_grow_with_what_is_gone() {
        const TABLE: TableId = TableId(0);
        let mut control = Control::new(ControlConfig::default());
        let limit = TableLimit {
            max_entries: 10,
            when_full: WhenFull::Evict,
        };
        control.set_limits([(TABLE, limit)].into());
        for second in 0..5000 {
            let request = FlowMod {
                hard_timeout: 100,
                instructions: Instructions::default(),
                ..FlowMod::new(FlowModCommand::Add, TABLE, Priority(second % 7), Match::any())
            };
            let now = Time::from_secs(second.into());
            control.flow_mod(request, now, &mut Vec::new()).unwrap();
            assert!(control.evictions.0[&TABLE].len() <= SWEPT + 1);
        }
    }
}
