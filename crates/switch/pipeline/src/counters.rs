//! Counters of packets and bytes, by worker.
//!
//! A worker owns one [`Counters`] and is the only one to write it, with plain loads and stores (no lock prefix, no
//! shared cache line). The control side adds up the counters of all workers on request. Storage grows in
//! chunks that never move. The control side allocates them before any worker sees the entry. The few packets
//! that the control side processes itself are counted in chunks that it allocates on demand.

use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_flow::classify::{Slot, prefetch};
use millrace_types::{TableId, Time};

use crate::DropCounts;

/// Number of entries in one chunk.
const CHUNK: usize = 4096;
/// Maximum number of chunks: sixteen million entries.
const CHUNKS_MAX: usize = 4096;
/// Maximum number of flow tables (`0..=OFPTT_MAX`).
const TABLES: usize = 255;

/// The counters of one flow entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryCount {
    pub packets: u64,
    /// Bytes, from the Ethernet header on, without frame check sequence.
    pub bytes: u64,
    /// The time of the last packet; the origin of time if there was none.
    pub last_used: Time,
}

impl EntryCount {
    fn and(self, other: EntryCount) -> EntryCount {
        EntryCount {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
            last_used: self.last_used.max(other.last_used),
        }
    }
}

/// The counters of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableCount {
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched an entry other than the table-miss entry (OpenFlow 1.3.5, section 5.4).
    pub matches: u64,
}

/// The counters of one entry in one worker. The alignment keeps them within one cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct EntryCell {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used: AtomicU64,
}

impl EntryCell {
    /// Counts packets. For the owning worker only.
    #[inline(always)]
    pub(crate) fn count(&self, packets: u64, bytes: u64, now: Time) {
        add(&self.packets, packets);
        add(&self.bytes, bytes);
        self.last_used.store(now.nanos(), Ordering::Relaxed);
    }

    /// Prefetches the counters.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch(slice::from_ref(self), 0);
    }
}

#[derive(Debug, Default)]
struct TableCell {
    lookups: AtomicU64,
    matches: AtomicU64,
}

#[inline]
fn add(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counters of one worker for one bridge.
#[derive(Debug)]
pub struct Counters {
    entries: Box<[OnceLock<Box<[EntryCell; CHUNK]>>]>,
    tables: Box<[TableCell]>,
    /// A cell that counts packets without an entry, and is never read.
    discard_cell: EntryCell,
    /// True if counting may allocate.
    grows: bool,
    /// Drops by reason.
    pub drops: DropCounts,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new(false)
    }
}

impl Counters {
    /// Returns the counters of a worker or, if `grows` is true, of the control side. The latter allocate
    /// memory when they count.
    fn new(grows: bool) -> Counters {
        Counters {
            grows,
            entries: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
            tables: (0..TABLES).map(|_| TableCell::default()).collect(),
            discard_cell: EntryCell::default(),
            drops: DropCounts::default(),
        }
    }
}

impl Counters {
    /// Maximum number of entries that have counters.
    pub const ENTRIES_MAX: usize = CHUNK * CHUNKS_MAX;

    /// Allocates the counters of the entry whose slot has this index, if it has none. For the control side only.
    fn reserve(&self, index: usize) {
        if let Some(chunk) = self.entries.get(index / CHUNK) {
            chunk.get_or_init(|| Box::new(core::array::from_fn(|_| EntryCell::default())));
        }
    }

    #[inline(always)]
    fn entry(&self, index: usize) -> Option<&EntryCell> {
        let chunk = self.entries.get(index / CHUNK)?.get()?;
        Some(&chunk[index % CHUNK])
    }

    /// Counts packets of an entry. For the owning worker only.
    #[inline]
    pub fn count_entry(&self, slot: Slot, packets: u64, bytes: u64, now: Time) {
        self.cell(slot.index()).count(packets, bytes, now);
    }

    /// Returns the counters of the entry whose slot has this index, or [`Counters::discard_cell`] if it has none.
    #[inline(always)]
    pub(crate) fn cell(&self, index: usize) -> &EntryCell {
        match self.entry(index) {
            Some(cell) => cell,
            None if self.grows => self.grow(index),
            None => &self.discard_cell,
        }
    }

    #[cold]
    fn grow(&self, index: usize) -> &EntryCell {
        self.reserve(index);
        self.entry(index).unwrap_or(&self.discard_cell)
    }

    /// Returns a cell that is never read.
    #[inline(always)]
    pub(crate) fn discard_cell(&self) -> &EntryCell {
        &self.discard_cell
    }

    /// Counts packets of a table. For the owning worker only.
    #[inline]
    pub fn count_table(&self, table: TableId, lookups: u64, matches: u64) {
        if let Some(cell) = self.tables.get(usize::from(table.0)) {
            add(&cell.lookups, lookups);
            add(&cell.matches, matches);
        }
    }

    /// Returns the counts of an entry in this worker.
    pub fn read_entry(&self, slot: Slot) -> EntryCount {
        self.entry(slot.index())
            .map_or(EntryCount::default(), |cell| EntryCount {
                packets: cell.packets.load(Ordering::Relaxed),
                bytes: cell.bytes.load(Ordering::Relaxed),
                last_used: Time::from_nanos(cell.last_used.load(Ordering::Relaxed)),
            })
    }

    /// Returns the counts of a table in this worker.
    pub fn read_table(&self, table: TableId) -> TableCount {
        self.tables
            .get(usize::from(table.0))
            .map_or(TableCount::default(), |cell| TableCount {
                lookups: cell.lookups.load(Ordering::Relaxed),
                matches: cell.matches.load(Ordering::Relaxed),
            })
    }

    /// Sets an entry's counters. For the control side only, while no worker can find the entry.
    fn set_entry(&self, slot: Slot, count: EntryCount) {
        if count != EntryCount::default() {
            self.reserve(slot.index());
        }
        if let Some(cell) = self.entry(slot.index()) {
            cell.packets.store(count.packets, Ordering::Relaxed);
            cell.bytes.store(count.bytes, Ordering::Relaxed);
            cell.last_used.store(count.last_used.nanos(), Ordering::Relaxed);
        }
    }
}

/// The counters of all workers of a bridge.
///
/// Counters outlive their worker, so that no count is lost. The next worker gets them.
#[derive(Debug, Default)]
pub(crate) struct CounterBanks {
    banks: Vec<Arc<Counters>>,
    /// All workers have counters for entries below this index.
    reserved_len: usize,
}

impl CounterBanks {
    /// Returns counters for one more worker.
    pub(crate) fn for_worker(&mut self) -> Arc<Counters> {
        self.lease(false)
    }

    /// Returns counters for the control side, which grow on demand.
    pub(crate) fn for_control(&mut self) -> Arc<Counters> {
        self.lease(true)
    }

    fn lease(&mut self, grows: bool) -> Arc<Counters> {
        let mut free = (self.banks.iter()).filter(|bank| Arc::strong_count(bank) == 1 && bank.grows == grows);
        if let Some(free) = free.next() {
            return Arc::clone(free);
        }
        let bank = Arc::new(Counters::new(grows));
        if !grows {
            (0..self.reserved_len)
                .step_by(CHUNK)
                .for_each(|first| bank.reserve(first));
        }
        self.banks.push(Arc::clone(&bank));
        bank
    }

    /// Allocates the counters of an entry for every worker.
    pub(crate) fn reserve(&mut self, slot: Slot) {
        if slot.index() >= self.reserved_len {
            let workers = self.banks.iter().filter(|bank| !bank.grows);
            workers.for_each(|bank| bank.reserve(slot.index()));
            self.reserved_len = (slot.index() / CHUNK + 1) * CHUNK;
        }
    }

    pub(crate) fn entry(&self, slot: Slot) -> EntryCount {
        self.banks
            .iter()
            .map(|bank| bank.read_entry(slot))
            .fold(EntryCount::default(), EntryCount::and)
    }

    pub(crate) fn table(&self, table: TableId) -> TableCount {
        self.banks
            .iter()
            .map(|bank| bank.read_table(table))
            .fold(TableCount::default(), |sum, one| TableCount {
                lookups: sum.lookups.wrapping_add(one.lookups),
                matches: sum.matches.wrapping_add(one.matches),
            })
    }

    pub(crate) fn drops(&self, reason: crate::DropReason) -> u64 {
        self.banks
            .iter()
            .map(|bank| bank.drops.read(reason))
            .fold(0, u64::wrapping_add)
    }

    /// Sets the counters of an entry that no worker can find, so that their sum is `count`.
    pub(crate) fn set_entry(&self, slot: Slot, count: EntryCount) {
        let mut count = count;
        for bank in &self.banks {
            bank.set_entry(slot, count);
            count = EntryCount::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_workers_add_up_and_the_latest_use_wins() {
        let mut banks = CounterBanks::default();
        let slot = Slot::new(5000);
        let one = banks.for_worker();
        banks.reserve(slot);
        let two = banks.for_worker();
        one.count_entry(slot, 2, 128, Time::from_secs(9));
        two.count_entry(slot, 1, 1500, Time::from_secs(3));
        let sum = banks.entry(slot);
        assert_eq!(
            (sum.packets, sum.bytes, sum.last_used),
            (3, 1628, Time::from_secs(9))
        );
        banks.set_entry(slot, EntryCount::default());
        assert_eq!(banks.entry(slot), EntryCount::default());
    }

    #[test]
    fn the_counters_of_a_worker_that_left_are_kept_and_handed_on() {
        let mut banks = CounterBanks::default();
        let first = banks.for_worker();
        first.count_table(TableId(3), 10, 4);
        drop(first);
        let second = banks.for_worker();
        second.count_table(TableId(3), 1, 1);
        assert_eq!(
            banks.table(TableId(3)),
            TableCount {
                lookups: 11,
                matches: 5
            }
        );
        assert_eq!(banks.banks.len(), 1);
    }

    #[test]
    fn the_control_side_counts_where_nothing_was_prepared_and_takes_no_memory_before() {
        let mut banks = CounterBanks::default();
        let (own, slot) = (banks.for_control(), Slot::new(5000));
        let worker = banks.for_worker();
        banks.reserve(slot);
        assert!(own.entry(slot.index()).is_none());
        own.count_entry(slot, 1, 60, Time::ZERO);
        worker.count_entry(slot, 1, 60, Time::ZERO);
        assert_eq!(banks.entry(slot).packets, 2);
        drop((own, worker));
        assert!(banks.for_control().grows, "no worker gets them");
        assert_eq!(banks.entry(slot).packets, 2);
    }

    #[test]
    fn counts_that_are_handed_over_are_kept_though_nobody_counts_yet() {
        let mut banks = CounterBanks::default();
        let (_own, slot) = (banks.for_control(), Slot::new(1));
        let count = EntryCount {
            packets: 3,
            bytes: 180,
            last_used: Time::from_secs(1),
        };
        banks.set_entry(slot, count);
        assert_eq!(banks.entry(slot), count);
    }

    #[test]
    fn an_entry_without_counters_counts_nothing_and_harms_nobody() {
        let counters = Counters::default();
        counters.count_entry(Slot::new(u32::MAX - 1), 1, 1, Time::ZERO);
        assert_eq!(
            counters.read_entry(Slot::new(u32::MAX - 1)),
            EntryCount::default()
        );
    }
}
