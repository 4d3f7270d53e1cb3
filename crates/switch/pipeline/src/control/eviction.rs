//! Eviction: the entry that makes room in a full table.
//!
//! OpenFlow 1.3.5 only defines that a full table refuses an entry. This module implements eviction of
//! OpenFlow 1.4.0, section 6.5, in the order of remaining lifetime: of the entries with a time-out, the one
//! that would expire first is removed. Entries without a time-out stay.
//!
//! Each table that evicts has a heap of its entries, ordered by the expiry time at their latest check.
//! Packets extend idle time-outs without a change of the heap. A search takes entries from the heap until it
//! finds one that was not used since its latest check; used entries return to the heap with their new expiry
//! time. If all entries are in use, the search ends after a bounded number of entries, and removes the one
//! that would expire first. A removed entry leaves its element in the heap. The element is dropped when it
//! reaches the top, or in a sweep when the heap consists mostly of such elements.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use arrayvec::ArrayVec;
use millrace_flow::classify::Slot;
use millrace_types::{TableId, Time};

use super::limits::{Evictions, TableLimit, WhenFull};
use super::record::expiry_time;
use super::request::RemovedReason;
use super::strict::StrictIndex;
use super::writer::Control;
use crate::Op;

/// Maximum number of entries that one search checks, without removed entries.
const CANDIDATES: usize = 64;
/// Length of a heap from which it is swept, if it is also twice as long as its table.
const SWEEP_LEN: usize = 128;

impl Control {
    /// Sets the limits of tables. A table without a limit here has the capacity of the configuration, and
    /// refuses more entries. Existing entries stay.
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

    /// Adds an entry to the heap of its table. The caller calls this for a new entry, or after a change of
    /// time-outs.
    #[inline]
    pub(super) fn push_expiry(&mut self, table: TableId, slot: Slot, due: Time) {
        let Some(heap) = self.evictions.0.get_mut(&table) else {
            return;
        };
        heap.push(Reverse((due, slot)));
        let len = self.tables.get(usize::from(table.0)).map_or(0, StrictIndex::len);
        if heap.len() > SWEEP_LEN && heap.len() > 2 * len {
            self.sweep(table);
        }
    }

    /// Rebuilds the heap of a table from its elements.
    fn sweep(&mut self, table: TableId) {
        let heap = self.evictions.0.remove(&table).unwrap_or_default();
        let slots: BTreeSet<Slot> = heap.into_iter().map(|Reverse((_, slot))| slot).collect();
        self.fill(table, slots);
    }

    /// Fills the heap of a table from slots. Slots without an entry of the table that has a time-out are
    /// ignored.
    fn fill(&mut self, table: TableId, slots: impl IntoIterator<Item = Slot>) {
        let known = |slot| Some(Reverse((self.expiry_time(table, slot)?, slot)));
        let heap = slots.into_iter().filter_map(known).collect();
        self.evictions.0.insert(table, heap);
    }

    /// Returns the expiry time of the entry at a slot; `None` if the table has no entry there, or the entry has no
    /// time-out.
    pub(super) fn expiry_time(&self, table: TableId, slot: Slot) -> Option<Time> {
        let record = self.record(slot).filter(|record| record.table == table)?;
        expiry_time(&record.entry, self.banks.entry(slot).last_used)
    }

    /// Removes an entry from a table that evicts. Returns false if the table has no entry with a time-out.
    pub(super) fn make_room(&mut self, table: TableId, now: Time, ops: &mut Vec<Op>) -> bool {
        let Some(mut heap) = self.evictions.0.remove(&table) else {
            return false;
        };
        let mut candidates: ArrayVec<(Time, Slot), CANDIDATES> = ArrayVec::new();
        while !candidates.is_full()
            && let Some(Reverse((expected, slot))) = heap.pop()
        {
            let Some(due) = self.expiry_time(table, slot) else {
                continue;
            };
            candidates.push((due, slot));
            if due <= expected {
                // All later elements expire later.
                break;
            }
        }
        let first = candidates.iter().min().copied();
        heap.extend(
            candidates
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
    fn a_heap_does_not_grow_with_removed_entries() {
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
            assert!(control.evictions.0[&TABLE].len() <= SWEEP_LEN + 1);
        }
    }
}
