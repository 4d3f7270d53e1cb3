//! Packets whose device named their key with a mark: those with a traversal in their slot leave first, the others go
//! through cache and tables as without marks.
//!
//! Packets of one flow stay in order: the device's hash is the connection number of all packets of the burst, so a marked
//! packet behind another one of its flow that goes through the tables goes there, too.

use arrayvec::ArrayVec;
use millrace_flow::Layer;
use millrace_flow::classify::BURST;
use millrace_wire::Packet;

use super::observe::Observer;
use super::run::Run;
use super::traversal::Traversal;
use crate::action_summary::Kind;
use crate::{Egress, MarkColumn, MarkLevel, Slots};

/// The slots of the packets of a burst, by position.
type SlotColumn = [u32; BURST];

/// The contents of the slots of a burst's marked packets; packets are bits by position.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The slot has a valid traversal.
    known: u64,
    /// The slot has none: these packets are first for it.
    first: u64,
    /// The traversal of the slot holds for some packets with its key only.
    depending: u64,
}

/// Calls `each` with the positions of the bits of a word, from the lowest.
fn each_bit(mut bits: u64, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// Returns a word with the lowest `len` bits set.
fn ones(len: usize) -> u64 {
    if len >= BURST { u64::MAX } else { (1 << len) - 1 }
}

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Processes packets that arrived at the ingress port with the marks of `column`, and leaves the burst empty.
    pub(crate) fn marked_burst(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        column: &MarkColumn,
        slots: &mut Slots,
    ) {
        let all = ones(burst.len());
        let marked = column.marked & all;
        slots
            .counts()
            .count_burst(burst.len() as u64, marked.count_ones().into());
        if all == 0
            || self.scratch.observation.packets != 0
            || self.fwd.mark_obstacle(self.origin.in_port).is_some()
        {
            return self.burst(burst);
        }
        let level = slots.level();
        if level == MarkLevel::Dispatch || column.hashed & all != all {
            self.sample(burst, all, slots);
            return self.burst(burst);
        }
        // Keys are read one by one, where a packet needs its own.
        self.scratch.unread = u64::MAX;
        self.traversals.update(self.fwd);
        let mut places: SlotColumn = [0; BURST];
        let mut found = self.find_slots(column, marked, slots, &mut places);
        self.verify(burst, (&places, level), slots, &mut found);
        let Found { known, first, .. } = found;
        self.sample(burst, all & !known & !first, slots);
        let unknown = self.in_flow_order(all & !known, known, column);
        let mut left: ArrayVec<P, BURST> = ArrayVec::new();
        if unknown == all {
            core::mem::swap(&mut left, burst);
        } else {
            self.apply_slots(burst, &places, unknown, slots, &mut left);
            self.flush();
        }
        self.scratch.unread = 0;
        if left.is_empty() {
            return;
        }
        // Packets that are first for their slot have their keys read; positions in `left` skip the packets that have left.
        each_bit(first & unknown, |i| {
            let position = (unknown & ones(i)).count_ones() as usize;
            if let Some(packet) = left.get(position) {
                let key = self.scratch.keys[i];
                self.traversals.choose_marked((position, packet), &key, places[i]);
            }
        });
        self.burst(&mut left);
        for (slot, traversal) in self.traversals.take_recorded_slots() {
            slots.record(slot, self.traversals.incarnation(), traversal);
        }
    }

    /// Finds the slots of marked packets.
    #[inline]
    fn find_slots(&self, column: &MarkColumn, marked: u64, slots: &Slots, places: &mut SlotColumn) -> Found {
        let version = self.fwd.cache_form().1;
        let incarnation = self.traversals.incarnation();
        let mut found = Found::default();
        each_bit(marked, |i| match slots.find(column.marks[i], version) {
            None => slots.counts().count_unknown(),
            Some(slot) => {
                places[i] = slot;
                let traversal = slots.traversal(slot, incarnation).map(Traversal);
                match traversal.filter(|traversal| self.traversals.is_current(*traversal)) {
                    Some(traversal) => {
                        found.known |= 1 << i;
                        found.depending |= u64::from(traversal.depends()) << i;
                    }
                    None => found.first |= 1 << i,
                }
            }
        });
        found
    }

    /// Compares the keys of packets with those of their slots, as far as the level asks for it, and of all that are first for
    /// their slot. Packets that differ, or for which the traversal does not hold, lose their bit.
    #[inline]
    fn verify(
        &mut self,
        burst: &ArrayVec<P, BURST>,
        (places, level): (&SlotColumn, MarkLevel),
        slots: &mut Slots,
        Found {
            known,
            first,
            depending,
        }: &mut Found,
    ) {
        let mut compared = *first;
        if level == MarkLevel::Trust {
            compared |= slots.audited(*known);
        } else {
            compared |= *known;
        }
        let mut wrong = self.mismatches(burst, places, compared, slots);
        if wrong != 0 && level == MarkLevel::Trust {
            // The device erred in this burst: none of its marks is believed any more.
            wrong |= self.mismatches(burst, places, *known & !compared, slots);
        }
        *known &= !wrong;
        *first &= !wrong;
        each_bit(*first, |i| {
            if !slots.may_record(places[i]) {
                *first &= !(1 << i);
            }
        });
        each_bit(*known & *depending, |i| {
            let traversal = Traversal(slots.valid_traversal(places[i]));
            let is_ip = slots.key(places[i]).has(Layer::Ip);
            if !traversal.holds_for(burst[i].head(), is_ip) {
                *known &= !(1 << i);
            }
        });
    }

    /// Returns the packets among `compared` whose keys differ from those of their slots, and ends trust if there are any.
    fn mismatches(
        &mut self,
        burst: &ArrayVec<P, BURST>,
        places: &SlotColumn,
        compared: u64,
        slots: &Slots,
    ) -> u64 {
        let form = self.fwd.cache_form().0;
        let mut wrong = 0;
        each_bit(compared, |i| {
            self.need_key(i, &burst[i]);
            slots.counts().count_verified();
            if !form.has_equal(&self.scratch.keys[i], slots.key(places[i])) {
                wrong |= 1 << i;
                slots.distrust();
            }
        });
        wrong
    }

    /// Samples one of these packets for the control side, if one is due.
    #[inline]
    fn sample(&self, burst: &ArrayVec<P, BURST>, packets: u64, slots: &mut Slots) {
        if let Some(i) = slots.sampled(packets)
            && let Some(packet) = burst.get(i)
        {
            slots.set_sample(self.full_key(packet));
        }
    }

    /// Returns the packets that go through the tables: those of `unknown`, and packets of `known` that may belong to the flow of
    /// an earlier one.
    #[inline]
    fn in_flow_order(&self, unknown: u64, known: u64, column: &MarkColumn) -> u64 {
        /// Bits of the hash that tell flows apart.
        const BITS: u32 = 10;
        if unknown == 0 || known == 0 {
            return unknown;
        }
        let mut all = unknown;
        let mut seen = [0_u64; (1 << BITS) / 64];
        each_bit(unknown | known, |i| {
            let flow = column.hashes[i] >> (u32::BITS - BITS);
            let (word, bit) = ((flow / 64) as usize, 1 << (flow % 64));
            if unknown >> i & 1 != 0 {
                seen[word] |= bit;
            } else if seen[word] & bit != 0 {
                all |= 1 << i;
            }
        });
        all
    }

    /// Processes the packets that have a traversal in their slot, and moves those of `unknown` to `left`.
    fn apply_slots(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        places: &SlotColumn,
        unknown: u64,
        slots: &Slots,
        left: &mut ArrayVec<P, BURST>,
    ) {
        self.scratch.initial_state = u64::MAX;
        let used = burst.len() - unknown.count_ones() as usize;
        for (i, packet) in burst.drain(..).enumerate() {
            if unknown >> i & 1 != 0 {
                left.push(packet);
            } else {
                slots.counts().count_slot(places[i]);
                self.take_slot(i, packet, Traversal(slots.valid_traversal(places[i])));
            }
        }
        slots.counts().count_used(used as u64);
        self.traversals.count_tables(self.counters);
    }

    /// Processes a packet by the traversal of its slot, as `take_traversal` does by one of the cache.
    #[inline(always)]
    fn take_slot(&mut self, i: usize, mut packet: P, traversal: Traversal<'_>) {
        if traversal.is_replayed() {
            self.need_key(i, &packet);
            return self.replay(i, packet, traversal);
        }
        let (combined, sequence) = (traversal.combined_actions(), traversal.table_sequence());
        if combined.summary.kind() == Kind::Rewrite && !self.rewrite(&combined.summary, &mut packet) {
            self.need_key(i, &packet);
            return self.replay(i, packet, traversal);
        }
        let cell = self.counters.cell(traversal.slot(0).index());
        self.count_traversal(traversal, cell, &packet);
        self.traversals.count_hit(sequence);
        self.act(i, packet, combined);
    }
}
