//! Finding the entry for a packet: bursts of keys in, verdicts out.
//!
//! # What a classifier promises
//! A classifier holds rules, each with the [`Slot`] of its entry. For each key it answers with the slot
//! of a matching rule of the highest priority, or with none if no rule matches. When several matching
//! rules share the highest priority, it may answer with any of them: OpenFlow 1.3.5 leaves that case
//! undefined (section 5.3), and an answer that need not look for ties may stop earlier.
//!
//! # Which errors would be safe, and which wrong
//! None is safe. A classifier that misses a rule, or that answers with a rule of lower priority, forwards
//! packets that somebody meant to drop. So every structure here is compared with [`LinearScan`], the slow
//! and obvious oracle, on random rules, keys and updates; and a structure that hashes verifies the whole
//! key after the hash.
//!
//! # Cost
//! Lookups read and never write, so that any number of workers can share one classifier. Updates cost
//! amortised constant time in the number of rules.

mod adaptive;
mod cache;
mod columns;
mod direct;
mod hash;
mod heads;
mod linear;
mod masks;
mod part;
mod plan;
mod prefixes;
mod priorities;
#[cfg(test)]
mod properties;
#[allow(unsafe_code)]
mod simd;
mod slots;
mod table;
mod trie;
mod tuple;
mod vectors;

use core::num::NonZeroU32;

pub use adaptive::Adaptive;
pub use cache::{CacheForm, FlowCache, KEPT_MAX, Place};
pub use heads::Heads;
pub use linear::LinearScan;
pub use part::Kind;
pub use simd::{Simd, prefetch};
pub use slots::SlotIndex;

use crate::key::{FlowKey, Rule};

/// The most packets in one burst.
pub const BURST: usize = 64;

/// Every place of a burst, in order: the `select` of a lookup of all keys.
pub const ALL: [u8; BURST] = {
    let mut all = [0; BURST];
    let mut i = 0;
    while i < BURST {
        all[i] = i as u8;
        i += 1;
    }
    all
};

/// The place of a flow entry in its table: what a classifier answers with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// The slot with this index, `0..=0xffff_fffe`.
    ///
    /// # Panics
    /// Never: the one index that has no slot becomes its neighbour below. Tables are limited to far
    /// fewer entries.
    #[inline]
    pub const fn new(index: u32) -> Slot {
        match NonZeroU32::new(index.wrapping_add(1)) {
            Some(raw) => Slot(raw),
            None => Slot(NonZeroU32::MAX),
        }
    }

    /// The index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The index of a slot, or, without a branch, one that no array has.
    #[inline(always)]
    pub fn index_or_none(slot: Option<Slot>) -> usize {
        (slot.map_or(0, |slot| slot.0.get()) as usize).wrapping_sub(1)
    }
}

/// Where the priority stands in a rank.
const PRIORITY_SHIFT: u32 = 48;

/// A rule's priority and slot in one number, so that the greater of two ranks is that of the rule that
/// wins. Zero is no rank. Bits 32 to 47 are free for a structure's own use.
const fn rank(priority: u16, slot: Slot) -> u64 {
    (priority as u64) << PRIORITY_SHIFT | slot.0.get() as u64
}

/// The slot of a rank.
#[inline(always)]
const fn slot_of(rank: u64) -> Option<Slot> {
    match NonZeroU32::new(rank as u32) {
        Some(raw) => Some(Slot(raw)),
        None => None,
    }
}

/// A set of rules that answers which of them a packet matches.
pub trait Classifier {
    /// Adds a rule. Returns the slot of the equal rule that it replaces, if there was one.
    fn insert(&mut self, rule: &Rule, slot: Slot) -> Option<Slot>;

    /// Removes the rule that equals `rule`, and returns its slot.
    fn remove(&mut self, rule: &Rule) -> Option<Slot>;

    /// Looks up the keys `keys[select[0]], keys[select[1]], …` and writes the verdict of each to the same
    /// place of `verdicts`.
    ///
    /// `select` has at most [`BURST`] items, each below `keys.len()`; `verdicts` is as long as `select`.
    fn lookup_burst(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]);

    /// Looks up one key.
    fn lookup(&self, key: &FlowKey) -> Option<Slot> {
        let mut verdict = [None];
        self.lookup_burst(core::slice::from_ref(key), &[0], &mut verdict);
        verdict[0]
    }

    /// Number of rules.
    fn len(&self) -> usize;

    /// Whether there is no rule.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
