//! Cached traversals applied to a burst.
//!
//! Packets with a cached traversal are processed first; the others go through the tables. Packets of one
//! connection stay in order, whatever bits the tables match: if a packet goes through the tables, so do all
//! later packets of the burst that may belong to the same connection, even if they have a cached traversal.

use arrayvec::ArrayVec;
use millrace_flow::Layer;
use millrace_flow::classify::{BURST, CacheIndex};
use millrace_wire::Packet;

use super::header::Effect;
use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use super::traversal::{CombinedActions, Traversal};
use crate::action_summary::{Kind, Kinds};
use crate::counters::EntryCell;
use crate::{DropReason, Egress};

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Processes the packets that have a cached traversal. The others stay in the burst, in order, and their
    /// keys are read. `by_columns` selects the lookup by header columns instead of keys.
    pub(crate) fn apply_cached_traversals(&mut self, burst: &mut ArrayVec<P, BURST>, by_columns: bool) {
        let len = burst.len();
        let (form, _) = self.fwd.cache_form();
        let mut places = [CacheIndex::NONE; BURST];
        if by_columns {
            self.find_by_columns(burst, &mut places);
        } else {
            self.traversals.find(form, &self.scratch.keys[..len], &mut places);
        }
        let mut cells = [self.counters.discard_cell(); BURST];
        let mut unknown = 0_u64;
        let mut kinds = Kinds::default();
        for (i, ((packet, place), cell)) in burst.iter().zip(&places).zip(&mut cells).enumerate() {
            let traversal = self.traversals.traversal(form, *place);
            let is_known = match traversal {
                None => false,
                Some(traversal) if traversal.depends() => {
                    let is_ip = self.is_unread(i) || self.scratch.keys[i].has(Layer::Ip);
                    traversal.holds_for(packet.head(), is_ip)
                }
                Some(_) => true,
            };
            if let Some(traversal) = traversal {
                kinds.add(traversal.kind());
                // Only the first counter is prefetched: most traversals are short, and many packets share the
                // later entries of long ones.
                *cell = self.counters.cell(traversal.slot(0).index());
                cell.prefetch();
            }
            unknown |= u64::from(!is_known) << i;
        }
        if unknown != 0 {
            unknown = self.in_order(unknown, len);
            if by_columns {
                self.need_keys(burst, unknown);
            }
        }
        if let Some(index) = self.scratch.observation.index()
            && unknown >> index & 1 == 0
        {
            let traversal = self.traversals.valid_traversal(form, places[index]);
            if !traversal.is_replayed() {
                let words = *traversal.0;
                self.note_traversal(Traversal(&words));
            }
        }
        if unknown == 0 && !kinds.has(Kind::Run) {
            self.apply_all_hits(burst, (&places, &cells));
        } else {
            self.apply_hits(burst, (&places, &cells), unknown);
        }
        if by_columns && unknown == 0 {
            self.choose_lookup_mode(len);
        }
        // The keys of the remaining packets are read.
        self.scratch.unread = 0;
        self.traversals.count(self.counters);
    }

    /// Processes a burst in which every packet has a cached traversal that needs no replay.
    #[inline(always)]
    fn apply_all_hits(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        (places, cells): (&[CacheIndex; BURST], &[&EntryCell; BURST]),
    ) {
        let (form, _) = self.fwd.cache_form();
        let mut ports = [None; BURST];
        for (((packet, place), cell), port) in burst.iter_mut().zip(places).zip(cells).zip(&mut ports) {
            let traversal = self.traversals.valid_traversal(form, *place);
            let (combined, sequence) = (traversal.combined_actions(), traversal.table_sequence());
            self.count_traversal(traversal, cell, packet);
            self.traversals.count_hit(sequence);
            if combined.summary.kind() == Kind::Output {
                *port = Some(combined.summary.port());
                combined.apply(packet.head_mut());
            }
        }
        if self.scratch.observation.packets != 0 {
            return self.enqueue_observed(burst, |i| ports[i]);
        }
        for (i, packet) in burst.drain(..).enumerate() {
            match ports[i] {
                Some(port) => self.enqueue(i, packet, port),
                None => self.drop(PacketSource::Move(packet), DropReason::NoOutput),
            }
        }
    }

    /// Processes the packets of a burst that have a cached traversal. The packets of `unknown` stay in the
    /// burst.
    #[inline(never)]
    fn apply_hits(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        (places, cells): (&[CacheIndex; BURST], &[&EntryCell; BURST]),
        unknown: u64,
    ) {
        let mut left: ArrayVec<P, BURST> = ArrayVec::new();
        let mut observed_left = 0_u64;
        for (i, packet) in burst.drain(..).enumerate() {
            if unknown >> i & 1 != 0 {
                self.scratch.keys[left.len()] = self.scratch.keys[i];
                observed_left |= u64::from(self.scratch.observation.has(i)) << left.len();
                left.push(packet);
            } else {
                let is_observed = self.begin_notes(i);
                self.take_traversal(i, packet, (places[i], cells[i]));
                self.end_notes(is_observed);
            }
        }
        *burst = left;
        self.scratch.observation.packets = observed_left;
        self.traversals.choose(self.fwd, burst, &self.scratch.keys);
    }

    /// Counts a packet for the entries of its traversal; `cell` is the counter of the first entry.
    #[inline(always)]
    pub(super) fn count_traversal(&self, traversal: Traversal<'_>, cell: &EntryCell, packet: &P) {
        let bytes = packet.len() as u64;
        cell.count(1, bytes, self.now);
        traversal.each_after_first(bytes, |slot, bytes| {
            self.counters.count_entry(slot, 1, bytes, self.now);
        });
    }

    #[inline(always)]
    fn take_traversal(&mut self, i: usize, mut packet: P, (place, cell): (CacheIndex, &EntryCell)) {
        let traversal = self.traversals.valid_traversal(self.fwd.cache_form().0, place);
        if traversal.is_replayed() {
            // A replay counts each entry when it executes it.
            let words = *traversal.0;
            self.need_key(i, &packet);
            self.traversals.replayed(Traversal(&words).len());
            return self.replay(i, packet, Traversal(&words));
        }
        let (combined, sequence) = (traversal.combined_actions(), traversal.table_sequence());
        if combined.summary.kind() == Kind::Rewrite && !self.rewrite(&combined.summary, &mut packet) {
            let words = *traversal.0;
            self.need_key(i, &packet);
            self.traversals.replayed(Traversal(&words).len());
            return self.replay(i, packet, Traversal(&words));
        }
        self.count_traversal(traversal, cell, &packet);
        self.traversals.count_hit(sequence);
        self.act(i, packet, combined);
    }

    /// Does to a packet what the entries of its traversal do together.
    #[inline(always)]
    pub(super) fn act(&mut self, i: usize, mut packet: P, combined: CombinedActions) {
        if combined.summary.kind() == Kind::Drop {
            return self.drop(PacketSource::Move(packet), DropReason::NoOutput);
        }
        combined.apply(packet.head_mut());
        match combined.change_tags(&mut packet) {
            Effect::Done => self.enqueue(i, packet, combined.summary.port()),
            effect => self.stopped(i, packet, effect),
        }
    }

    /// Executes the entries of a traversal one after the other, until one disposes of the packet.
    #[inline(never)]
    pub(super) fn replay(&mut self, i: usize, packet: P, traversal: Traversal<'_>) {
        self.scratch.initial_state |= 1 << i;
        let mut packet = Some(packet);
        for step in 0..traversal.len() {
            let slot = traversal.slot(step);
            let (Some(taken), Some(entry)) = (packet.take(), self.fwd.entry(slot)) else {
                break;
            };
            if self.scratch.observation.has(i) {
                self.note_entry(Some(slot));
            }
            let (table, is_table_miss) = self.traversals.step(traversal.table_sequence(), step);
            self.counters.count_entry(slot, 1, taken.len() as u64, self.now);
            self.counters.count_table(table, 1, u64::from(!is_table_miss));
            packet = self.run_entry(i, taken, entry, true);
        }
    }

    /// Returns the packets that go through the tables, one bit for each of `len` packets. These are the
    /// packets of `unknown`, and later packets that may belong to the same connections.
    #[inline(never)]
    fn in_order(&self, unknown: u64, len: usize) -> u64 {
        /// Bits of the connection number that tell connections apart.
        const BITS: u32 = 10;
        let mut all = unknown;
        let mut seen = [0_u64; (1 << BITS) / 64];
        for i in unknown.trailing_zeros() as usize..len {
            let connection = if self.is_unread(i) {
                self.scratch.columns.connection(i)
            } else {
                self.scratch.keys[i].connection()
            } >> (u32::BITS - BITS);
            let (word, bit) = ((connection / 64) as usize, 1 << (connection % 64));
            if unknown >> i & 1 != 0 {
                seen[word] |= bit;
            } else if seen[word] & bit != 0 {
                all |= 1 << i;
            }
        }
        all
    }
}
