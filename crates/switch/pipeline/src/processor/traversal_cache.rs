//! The cache of traversals of one worker, and their invalidation.
//!
//! A traversal is valid while none of its tables changes. Traversals of the same tables share a *table sequence*,
//! which knows the last change of its tables, so a change of a table invalidates the traversals through that table
//! and no others.

use arrayvec::ArrayVec;
use millrace_flow::FlowKey;
use millrace_flow::classify::{
    BURST, CacheForm, CacheIndex, Classifier, FlowCache, HeaderColumns, KEPT_MAX, Slot,
};
use millrace_types::TableId;
use millrace_wire::Packet;

use super::governor::{self, Governor};
use super::traversal::{self, CombinedActions, EPOCHS, STEPS_MAX, Traversal};
use crate::{Counters, FlowCachePolicy, Forwarding};

/// The most table sequences of a bridge in one worker; traversals of further ones are not cached.
const TABLE_SEQUENCES_MAX: usize = 64;
/// The most traversals that are recorded in one burst.
const NOTES: usize = 8;
/// Of the new traversals whose insertion would evict another, one in this many is recorded. With more flows than the
/// cache can hold, cached flows therefore stay cached, and most other flows cost no recording (bimodal insertion,
/// Qureshi et al., ISCA 2007).
const DISPLACING: u32 = 8;

/// The tables of a traversal.
#[derive(Clone, Debug)]
struct TableSequence {
    tables: ArrayVec<TableId, STEPS_MAX>,
    /// One bit for each step: set if the step meets a table-miss entry.
    misses: u32,
    /// The generation of the last change of one of these tables.
    changed: u64,
    /// Incremented modulo [`EPOCHS`] when `changed` advances; traversals of another epoch are invalid.
    epoch: u64,
    /// Packets of this burst that took a traversal of the sequence.
    packets: u64,
}

/// The recording of the traversal of one packet while the packet goes through the tables.
#[derive(Debug)]
struct Note {
    /// The index of the packet in the burst.
    packet: u8,
    /// The key of the packet on arrival.
    key: FlowKey,
    /// True if the packet arrived with exactly one VLAN tag.
    has_one_tag: bool,
    slots: ArrayVec<Slot, STEPS_MAX>,
    /// True if a table had no entry for the packet, or the packet met more entries than can be recorded.
    is_lost: bool,
    /// The slot of the packet's mark, into which the traversal goes instead of the cache.
    mark_slot: Option<u32>,
}

/// A traversal recorded for the slot of a mark; `None` if the traversal cannot be cached.
pub(crate) type RecordedSlot = (u32, Option<[u64; KEPT_MAX]>);

/// The cached traversals of one worker.
#[derive(Debug)]
pub(crate) struct TraversalCache {
    cache: FlowCache,
    table_sequences: Vec<TableSequence>,
    /// The generation of the forwarding tables for which the sequences were last updated, and the version of the
    /// cache form.
    generation: u64,
    form_version: u64,
    /// Incremented when the indices or epochs of table sequences get another meaning.
    incarnation: u64,
    notes: Vec<Note>,
    /// The traversals of marks recorded in this burst.
    recorded_slots: ArrayVec<RecordedSlot, NOTES>,
    /// The number of traversals so far whose insertion would have evicted another.
    crowded: u32,
    /// One bit for each packet of the burst: set if its traversal is being recorded.
    pub(crate) noted: u64,
    governor: Governor,
    /// Lookups in each table in this window of the governor.
    visits: Box<[u32; 256]>,
}

impl TraversalCache {
    pub(crate) fn new() -> TraversalCache {
        TraversalCache {
            cache: FlowCache::new(),
            table_sequences: Vec::with_capacity(TABLE_SEQUENCES_MAX),
            generation: 0,
            form_version: 0,
            incarnation: 0,
            notes: Vec::with_capacity(NOTES),
            recorded_slots: ArrayVec::new(),
            crowded: 0,
            noted: 0,
            governor: Governor::new(),
            visits: Box::new([0; 256]),
        }
    }

    /// Begins a burst. Returns true if the cache is on; the cache is then up to date.
    #[inline]
    pub(crate) fn begin(&mut self, fwd: &Forwarding) -> bool {
        let is_on = match fwd.flow_cache() {
            FlowCachePolicy::Off => false,
            FlowCachePolicy::Auto => self.governor.is_on(),
            FlowCachePolicy::Always => true,
        };
        if is_on && self.generation != fwd.generation() {
            self.catch_up(fwd);
        }
        if is_on && self.cache.is_moving() {
            self.cache.move_some(fwd.cache_form().0);
        }
        is_on
    }

    /// Brings epochs up to date with the tables, whether the cache is on or not.
    #[inline]
    pub(crate) fn update(&mut self, fwd: &Forwarding) {
        if self.generation != fwd.generation() {
            self.catch_up(fwd);
        }
    }

    #[inline(never)]
    fn catch_up(&mut self, fwd: &Forwarding) {
        self.generation = fwd.generation();
        if self.form_version != fwd.cache_form().1 {
            self.form_version = fwd.cache_form().1;
            self.forget();
        }
        for sequence in &mut self.table_sequences {
            let changes = sequence.tables.iter().map(|table| fwd.changed(*table));
            let changed = changes.max().unwrap_or(0);
            if core::mem::replace(&mut sequence.changed, changed) != changed {
                sequence.epoch = (sequence.epoch + 1) % EPOCHS;
                if sequence.epoch == 0 {
                    // Traversals of the sequence's first epoch must not become valid again.
                    self.cache.clear();
                    self.incarnation += 1;
                }
            }
        }
    }

    /// Removes all traversals and table sequences.
    fn forget(&mut self) {
        self.cache.clear();
        self.table_sequences.clear();
        self.incarnation += 1;
    }

    /// Returns the number of times that table sequences began anew; traversals recorded before are invalid.
    #[inline(always)]
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns true if no table of the traversal has changed since it was recorded, in this incarnation.
    #[inline(always)]
    pub(crate) fn is_current(&self, traversal: Traversal<'_>) -> bool {
        let sequence = self.table_sequences.get(usize::from(traversal.table_sequence()));
        sequence.is_some_and(|sequence| sequence.epoch == traversal.epoch())
    }

    /// Looks up the traversals of packets by their keys.
    #[inline]
    pub(crate) fn find(&self, form: &CacheForm, keys: &[FlowKey], indices: &mut [CacheIndex; BURST]) {
        self.cache.lookup_burst(form, keys, &mut indices[..keys.len()]);
    }

    /// Looks up the traversals of packets by their header columns.
    #[inline]
    pub(crate) fn find_by_columns(
        &self,
        form: &CacheForm,
        columns: &HeaderColumns,
        pipeline_fields: (&FlowKey, &[FlowKey]),
        indices: &mut [CacheIndex],
    ) {
        self.cache.lookup_headers(form, columns, pipeline_fields, indices);
    }

    /// Returns the traversal at a position of the cache, if it is valid.
    #[inline(always)]
    pub(crate) fn traversal(&self, form: &CacheForm, index: CacheIndex) -> Option<Traversal<'_>> {
        if !index.is_some() {
            return None;
        }
        let traversal = Traversal(self.cache.value(form, index));
        self.is_current(traversal).then_some(traversal)
    }

    /// Returns the traversal at a position where [`TraversalCache::traversal`] has found a valid one.
    #[inline(always)]
    pub(crate) fn valid_traversal(&self, form: &CacheForm, index: CacheIndex) -> Traversal<'_> {
        Traversal(self.cache.value(form, index))
    }

    /// Counts a packet that took a traversal of a table sequence. [`TraversalCache::count`] adds these packets to the
    /// counters of the tables.
    #[inline(always)]
    pub(crate) fn count_hit(&mut self, sequence: u8) {
        if let Some(sequence) = self.table_sequences.get_mut(usize::from(sequence)) {
            sequence.packets += 1;
        }
    }

    /// Counts a packet whose traversal of `steps` entries was replayed.
    pub(crate) fn replayed(&mut self, steps: usize) {
        self.governor.hit(1, steps);
    }

    /// Returns the table of a step of a table sequence, and true if the step meets a table-miss entry.
    pub(crate) fn step(&self, sequence: u8, step: usize) -> (TableId, bool) {
        let sequence = self.table_sequences.get(usize::from(sequence));
        sequence.map_or((TableId(0), false), |sequence| {
            let table = sequence.tables.get(step).copied().unwrap_or(TableId(0));
            (table, sequence.misses >> step & 1 != 0)
        })
    }

    /// Counts the packets of this burst that took a cached traversal, for the tables and for the governor.
    pub(crate) fn count(&mut self, counters: &Counters) {
        let (hits, steps) = self.count_tables(counters);
        self.governor.hit(hits, steps);
    }

    /// Adds the packets of this burst to the counters of the tables of each sequence. Returns the number of packets, and of
    /// the entries that they met.
    pub(crate) fn count_tables(&mut self, counters: &Counters) -> (usize, usize) {
        let (mut hits, mut steps) = (0, 0);
        for sequence in self
            .table_sequences
            .iter_mut()
            .filter(|sequence| sequence.packets != 0)
        {
            let packets = core::mem::take(&mut sequence.packets);
            for (step, table) in sequence.tables.iter().enumerate() {
                let matched = if sequence.misses >> step & 1 != 0 {
                    0
                } else {
                    packets
                };
                counters.count_table(*table, packets, matched);
            }
            hits += packets as usize;
            steps += packets as usize * sequence.tables.len();
        }
        (hits, steps)
    }

    /// Chooses the packets whose traversals are recorded, among those that go through the tables.
    #[inline(never)]
    pub(crate) fn choose<P: Packet>(&mut self, fwd: &Forwarding, packets: &[P], keys: &[FlowKey; BURST]) {
        let (form, _) = fwd.cache_form();
        for (i, (packet, key)) in packets.iter().zip(keys).enumerate().take(NOTES) {
            if !self.cache.has_room(form, key) {
                self.crowded = self.crowded.wrapping_add(1);
                if !self.crowded.is_multiple_of(DISPLACING) {
                    continue;
                }
            }
            self.noted |= 1 << i;
            self.notes.push(Note {
                packet: i as u8,
                key: *key,
                has_one_tag: traversal::has_one_tag(packet.head()),
                slots: ArrayVec::new(),
                is_lost: false,
                mark_slot: None,
            });
        }
    }

    /// Has the traversal of packet `packet` of the burst recorded for the slot of its mark, unless another packet of the burst
    /// does that, or enough are recorded.
    #[inline(never)]
    pub(crate) fn choose_marked<P: Packet>(&mut self, packet: (usize, &P), key: &FlowKey, mark_slot: u32) {
        let is_chosen = self.notes.iter().any(|note| note.mark_slot == Some(mark_slot));
        if is_chosen || self.notes.len() == NOTES {
            return;
        }
        let (number, packet) = packet;
        self.noted |= 1 << number;
        self.notes.push(Note {
            packet: number as u8,
            key: *key,
            has_one_tag: traversal::has_one_tag(packet.head()),
            slots: ArrayVec::new(),
            is_lost: false,
            mark_slot: Some(mark_slot),
        });
    }

    /// Returns the traversals of marks recorded since the last call.
    pub(crate) fn take_recorded_slots(&mut self) -> ArrayVec<RecordedSlot, NOTES> {
        core::mem::take(&mut self.recorded_slots)
    }

    /// Records the entry that a chosen packet meets; `None` if the table has none for it.
    #[inline(never)]
    pub(crate) fn record_entry(&mut self, packet: usize, slot: Option<Slot>) {
        let note = self
            .notes
            .iter_mut()
            .find(|note| usize::from(note.packet) == packet);
        if let Some(note) = note {
            note.is_lost |= slot.is_none_or(|slot| note.slots.try_push(slot).is_err());
        }
    }

    /// Inserts the recorded traversals into the cache.
    #[inline(never)]
    pub(crate) fn insert_recorded(&mut self, fwd: &Forwarding) {
        self.noted = 0;
        let (form, _) = fwd.cache_form();
        while let Some(note) = self.notes.pop() {
            let entries = note
                .slots
                .iter()
                .map(|slot| fwd.entry(*slot).map(|entry| &**entry));
            let steps_max = match note.mark_slot {
                Some(_) => STEPS_MAX,
                None => traversal::steps(form.kept()),
            };
            let mut words = None;
            if !note.is_lost
                && note.slots.len() <= steps_max
                && let Some(entries) = entries.collect::<Option<ArrayVec<_, STEPS_MAX>>>()
                && let Some((combined, lengths)) = CombinedActions::of(&entries)
                && let Some(last) = note.slots.last()
                && let combined = combined.with_last(&entries, *fwd.summary(*last))
                && combined.is_for(note.has_one_tag)
                && let Some(sequence) = self.table_sequence(fwd, &note.slots)
            {
                words = Some(Traversal::encode(&(combined, lengths), sequence, &note.slots));
            }
            match (note.mark_slot, words) {
                // There are as many places as notes.
                (Some(slot), words) => self.recorded_slots.push((slot, words)),
                (None, Some(words)) => self.cache.insert(form, &note.key, &words),
                (None, None) => {}
            }
        }
    }

    /// Returns the index and the epoch of the table sequence of these entries, which is added if it is new. Returns
    /// `None` if there are too many sequences.
    fn table_sequence(&mut self, fwd: &Forwarding, slots: &[Slot]) -> Option<(u8, u64)> {
        let mut sequence = TableSequence {
            tables: ArrayVec::new(),
            misses: 0,
            changed: 0,
            epoch: 0,
            packets: 0,
        };
        for (step, slot) in slots.iter().enumerate() {
            let table = fwd.entry(*slot)?.table();
            sequence.tables.push(table);
            sequence.misses |= u32::from(!fwd.summary(*slot).is_match()) << step;
            sequence.changed = sequence.changed.max(fwd.changed(table));
        }
        let same = |known: &TableSequence| known.misses == sequence.misses && known.tables == sequence.tables;
        if let Some(index) = self.table_sequences.iter().position(same) {
            return Some((index as u8, self.table_sequences[index].epoch));
        }
        if self.table_sequences.len() == TABLE_SEQUENCES_MAX {
            return None;
        }
        self.table_sequences.push(sequence);
        Some((self.table_sequences.len() as u8 - 1, 0))
    }

    /// Counts packets that are looked up in a table.
    #[inline(always)]
    pub(crate) fn visit(&mut self, table: TableId, packets: usize) {
        self.visits[usize::from(table.0)] += packets as u32;
        if table == TableId(0) {
            self.governor.count_uncached(packets);
        }
    }

    /// Ends a burst. At the end of a window, the governor decides whether the cache stays on.
    #[inline(always)]
    pub(crate) fn end(&mut self, fwd: &Forwarding) {
        if self.governor.is_due() {
            self.judge(fwd);
        }
    }

    #[inline(never)]
    fn judge(&mut self, fwd: &Forwarding) {
        let (mut visits, mut cost) = (0, 0);
        for (number, lookups) in self
            .visits
            .iter_mut()
            .enumerate()
            .filter(|(_, lookups)| **lookups != 0)
        {
            let lookups = u64::from(core::mem::take(lookups));
            let table = fwd.table(TableId(number as u8));
            visits += lookups;
            cost += lookups * table.map_or(0, |table| governor::cost(table.kind(), table.len()));
        }
        let far_hit = match self.cache.has_grown() {
            true => governor::far_hit(fwd.cache_form().0.lines()),
            false => 0,
        };
        let is_on = self.governor.judge((visits, cost), far_hit);
        if is_on && fwd.flow_cache() == FlowCachePolicy::Auto {
            // The cache was just switched on: traversals from before the pause are mostly invalid.
            self.forget();
        }
    }
}
