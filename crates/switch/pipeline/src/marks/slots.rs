//! The slots of one worker at one port.

use std::sync::Arc;

use millrace_flow::FlowKey;
use millrace_flow::classify::KEPT_MAX;
use millrace_types::split_mix;

use super::state::{MarkCounts, MarkLevel, MarkState};

/// The number of marked packets of which one is compared, at the level trust.
const AUDIT_INTERVAL: u32 = 1024;
/// The mean number of packets without a usable mark of which one is sampled.
const SAMPLING_INTERVAL: u32 = 256;
/// The number of marked packets that a slot lets pass after a traversal that cannot be cached, before it tries again.
const RETRY_AFTER: u16 = 1024;

/// A change of a slot by the control side.
#[derive(Clone, Debug)]
pub struct SlotChange {
    /// The index of the slot.
    pub slot: u32,
    /// The mark and the key that the slot gets, and the version of the bits in which packets equal the key
    /// ([`Forwarding::match_bits`](crate::Forwarding::match_bits)); `None` empties the slot.
    pub key: Option<(u32, FlowKey, u64)>,
}

/// One slot: two cache lines of traversal behind a guard.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Slot {
    /// 0 for an empty slot.
    mark: u32,
    /// The number of packets until a traversal is recorded again.
    retry: u16,
    has_traversal: bool,
    /// The version of the match bits for which the mark is valid.
    version: u64,
    /// The incarnation of the table sequences that `traversal` names.
    incarnation: u64,
    traversal: [u64; KEPT_MAX],
}

const EMPTY: Slot = Slot {
    mark: 0,
    retry: 0,
    has_traversal: false,
    version: 0,
    incarnation: 0,
    traversal: [0; KEPT_MAX],
};

/// The slots of one worker at one port. A mark is a tag above the index of a slot.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[Slot]>,
    keys: Box<[FlowKey]>,
    index_mask: u32,
    state: Arc<MarkState>,
    counts: Arc<MarkCounts>,
    until_audit: u32,
    until_sample: u32,
    random: u64,
    sample: Option<FlowKey>,
}

impl Slots {
    /// Returns empty slots: 2 to the power of `index_bits`, at most 20.
    pub fn new(index_bits: u32, state: Arc<MarkState>, counts: Arc<MarkCounts>, seed: u64) -> Slots {
        let len = 1 << index_bits.min(20);
        Slots {
            slots: vec![EMPTY; len].into_boxed_slice(),
            keys: vec![FlowKey::default(); len].into_boxed_slice(),
            index_mask: len as u32 - 1,
            state,
            counts,
            until_audit: AUDIT_INTERVAL,
            until_sample: 1,
            random: seed,
            sample: None,
        }
    }

    /// Applies a change of the control side.
    pub fn change(&mut self, change: &SlotChange) {
        let at = change.slot as usize;
        let (Some(slot), Some(held)) = (self.slots.get_mut(at), self.keys.get_mut(at)) else {
            return;
        };
        *slot = EMPTY;
        if let Some((mark, key, version)) = &change.key {
            (slot.mark, slot.version) = (*mark, *version);
            *held = *key;
        }
    }

    /// Returns the key of a sampled packet since the last call.
    #[inline]
    pub fn take_sample(&mut self) -> Option<FlowKey> {
        self.sample.take()
    }

    /// Returns the counters.
    pub fn counts(&self) -> &MarkCounts {
        &self.counts
    }

    /// Counts received packets whose marks are not used.
    #[inline]
    pub fn skip(&self, packets: usize) {
        self.counts.count_burst(packets as u64, 0);
    }

    /// Returns the level of the port.
    #[inline]
    pub(crate) fn level(&self) -> MarkLevel {
        self.state.level()
    }

    /// Returns the slot that a mark names, if it is valid for this version of the match bits.
    #[inline(always)]
    pub(crate) fn find(&self, mark: u32, version: u64) -> Option<u32> {
        let index = mark & self.index_mask;
        let slot = self.slots.get(index as usize)?;
        (mark != 0 && slot.mark == mark && slot.version == version).then_some(index)
    }

    /// Returns the traversal of a slot, if it was recorded in this incarnation.
    #[inline(always)]
    pub(crate) fn traversal(&self, index: u32, incarnation: u64) -> Option<&[u64; KEPT_MAX]> {
        let slot = self.slots.get(index as usize)?;
        (slot.has_traversal && slot.incarnation == incarnation).then_some(&slot.traversal)
    }

    /// Returns the traversal of a slot in which [`Self::traversal`] has found one.
    #[inline(always)]
    pub(crate) fn valid_traversal(&self, index: u32) -> &[u64; KEPT_MAX] {
        match self.slots.get(index as usize) {
            Some(slot) => &slot.traversal,
            None => &[0; KEPT_MAX],
        }
    }

    /// Returns the key of a slot.
    #[inline(always)]
    pub(crate) fn key(&self, index: u32) -> &FlowKey {
        &self.keys[index as usize & (self.keys.len() - 1)]
    }

    /// Stores the traversal of a slot, or notes that the traversal of its packets cannot be cached.
    pub(crate) fn record(&mut self, index: u32, incarnation: u64, traversal: Option<[u64; KEPT_MAX]>) {
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return;
        };
        match traversal {
            Some(words) => {
                (slot.traversal, slot.incarnation, slot.has_traversal) = (words, incarnation, true);
            }
            None => (slot.has_traversal, slot.retry) = (false, RETRY_AFTER),
        }
    }

    /// Returns true if a traversal may be recorded for a slot now.
    #[inline]
    pub(crate) fn may_record(&mut self, index: u32) -> bool {
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return false;
        };
        let may = slot.retry == 0;
        slot.retry = slot.retry.saturating_sub(1);
        may
    }

    /// Returns which of the packets with a bit in `marked` are audited: one in [`AUDIT_INTERVAL`].
    #[inline]
    pub(crate) fn audited(&mut self, marked: u64) -> u64 {
        let (mut rest, mut due) = (marked, 0);
        while rest.count_ones() >= self.until_audit {
            rest = (1..self.until_audit).fold(rest, |rest, _| rest & rest.wrapping_sub(1));
            due |= rest & rest.wrapping_neg();
            rest &= rest.wrapping_sub(1);
            self.until_audit = self.jittered(AUDIT_INTERVAL);
        }
        self.until_audit -= rest.count_ones();
        due
    }

    /// Returns a random number of packets whose mean is `interval`, so that no sender can stay between the chosen ones.
    #[inline(never)]
    fn jittered(&mut self, interval: u32) -> u32 {
        1 + split_mix::next(&mut self.random) as u32 % (2 * interval - 1)
    }

    /// Returns the packet to sample among the packets with a bit in `unmarked`, if one is due.
    #[inline]
    pub(crate) fn sampled(&mut self, unmarked: u64) -> Option<usize> {
        let packets = unmarked.count_ones();
        if packets < self.until_sample {
            self.until_sample -= packets;
            return None;
        }
        let skipped = self.until_sample - 1;
        self.until_sample = self.jittered(SAMPLING_INTERVAL);
        let rest = (0..skipped).fold(unmarked, |rest, _| rest & rest.wrapping_sub(1));
        Some(rest.trailing_zeros() as usize)
    }

    pub(crate) fn set_sample(&mut self, key: FlowKey) {
        self.sample = Some(key);
    }

    /// Ends trust in the device.
    #[cold]
    pub(crate) fn distrust(&self) {
        self.counts.count_mismatch();
        self.state.distrust();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        let state = Arc::new(MarkState::new(MarkLevel::Trust));
        Slots::new(4, state, Arc::new(MarkCounts::new(16)), 7)
    }

    #[test]
    fn a_mark_with_another_tag_or_another_version_names_no_slot() {
        let mut slots = slots();
        let key = Some((0x23, FlowKey::default(), 5));
        slots.change(&SlotChange { slot: 3, key });
        assert_eq!(slots.find(0x23, 5), Some(3));
        assert_eq!(slots.find(0x33, 5), None);
        assert_eq!(slots.find(0x23, 6), None);
        assert_eq!(slots.find(0x24, 5), None);
        slots.change(&SlotChange { slot: 3, key: None });
        assert_eq!(slots.find(0x23, 5), None);
        assert_eq!(slots.find(0, 0), None, "mark 0 is none");
    }

    #[test]
    fn one_marked_packet_in_about_a_thousand_is_audited() {
        let mut slots = slots();
        let mut audits = 0;
        for burst in 0..31_250_u64 {
            let marked = 0x0f0f_0f0f_0f0f_0f0f_u64.rotate_left(burst as u32);
            let audited = slots.audited(marked);
            assert_eq!(audited & !marked, 0);
            audits += audited.count_ones();
        }
        assert!((850..1150).contains(&audits), "{audits}");
    }

    #[test]
    fn the_sampled_packet_is_one_without_a_mark_and_about_one_in_256_is_sampled() {
        let mut slots = slots();
        let mut samples = 0;
        for burst in 0..40_000_u64 {
            let unmarked = 0x0f0f_0f0f_0f0f_0f0f_u64.rotate_left(burst as u32);
            if let Some(i) = slots.sampled(unmarked) {
                assert!(unmarked >> i & 1 == 1);
                samples += 1;
            }
        }
        let expected = 40_000 * 32 / 256;
        assert!(
            (expected * 8 / 10..expected * 12 / 10).contains(&samples),
            "{samples}"
        );
    }

    #[test]
    fn a_wrong_mark_ends_trust_whatever_level_is_set_later() {
        let state = MarkState::new(MarkLevel::Trust);
        state.distrust();
        assert_eq!(state.level(), MarkLevel::Verify);
        state.set_level(MarkLevel::Trust);
        assert_eq!(state.level(), MarkLevel::Verify);
        state.set_level(MarkLevel::Dispatch);
        assert_eq!(state.level(), MarkLevel::Dispatch);
    }
}
