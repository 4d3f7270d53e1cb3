//! Classifiers: structures that find the flow entry of a packet. They take bursts of keys and return verdicts.
//!
//! # Interface
//! A classifier holds rules, each with the [`Slot`] of its flow entry. For each key it returns the slot of a matching
//! rule of the highest priority, or `None` if no rule matches. If several matching rules have the highest priority, the
//! classifier may return any of them: OpenFlow 1.3.5 leaves that case undefined (section 5.3), and a lookup that
//! ignores ties may end earlier.
//!
//! # Errors
//! No wrong verdict is harmless: a classifier that misses a rule, or returns a rule of lower priority, forwards
//! packets that an operator meant to drop. Tests therefore compare every structure with [`LinearScan`], the slow and
//! obvious oracle, on random rules, keys and updates. A structure that hashes compares the whole key after the hash.
//!
//! # Cost
//! Lookups only read, so that any number of workers can share one classifier. Updates take amortised constant time in
//! the number of rules.

mod adaptive;
mod cache;
mod columns;
mod direct;
mod hash;
mod header_columns;
mod lanes;
mod linear;
mod lpm;
mod masks;
mod part;
mod plan;
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
pub use cache::{CacheForm, CacheIndex, FlowCache, KEPT_MAX};
pub use header_columns::HeaderColumns;
pub use linear::LinearScan;
pub use part::Kind;
pub use simd::{Simd, prefetch};
pub use slots::SlotIndex;

use crate::key::{FlowKey, Rule};

/// The maximum number of packets in one burst.
pub const BURST: usize = 64;

/// Every index of a burst, in order: the `select` of a lookup of all keys.
pub const ALL: [u8; BURST] = {
    let mut all = [0; BURST];
    let mut i = 0;
    while i < BURST {
        all[i] = i as u8;
        i += 1;
    }
    all
};

/// The index of a flow entry in its table, which is the verdict of a classifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// Returns the slot with this index, `0..=0xffff_fffe`.
    ///
    /// # Panics
    /// Never. The one index that has no slot becomes the index below it; the limits of tables are far lower.
    #[inline]
    pub const fn new(index: u32) -> Slot {
        match NonZeroU32::new(index.wrapping_add(1)) {
            Some(raw) => Slot(raw),
            None => Slot(NonZeroU32::MAX),
        }
    }

    /// Returns the index, `0..=0xffff_fffe`.
    #[inline]
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// Returns the index of a slot without a branch. The index for `None` is beyond the end of every array.
    #[inline(always)]
    pub fn index_or_none(slot: Option<Slot>) -> usize {
        (slot.map_or(0, |slot| slot.0.get()) as usize).wrapping_sub(1)
    }
}

/// Position of the priority in a rank.
const PRIORITY_SHIFT: u32 = 48;

/// Returns the rank of a rule: its priority and slot in one number. Of two rules, the one with the greater rank wins.
/// Zero is not a rank.
///
/// ```text
///  63      48 47              32 31                0
/// | priority | structure's own  | slot (index + 1)   |
/// ```
const fn rank(priority: u16, slot: Slot) -> u64 {
    (priority as u64) << PRIORITY_SHIFT | slot.0.get() as u64
}

/// Returns the slot of a rank.
#[inline(always)]
const fn slot_of(rank: u64) -> Option<Slot> {
    match NonZeroU32::new(rank as u32) {
        Some(raw) => Some(Slot(raw)),
        None => None,
    }
}

/// A set of rules, with a lookup of the rule that a packet matches.
pub trait Classifier {
    /// Adds a rule, and returns the slot of the equal rule that it replaces, if there was one.
    fn insert(&mut self, rule: &Rule, slot: Slot) -> Option<Slot>;

    /// Removes the rule that equals `rule`, and returns its slot.
    fn remove(&mut self, rule: &Rule) -> Option<Slot>;

    /// Looks up the keys `keys[select[0]], keys[select[1]], …` and writes the verdict of each to the same index of
    /// `verdicts`.
    ///
    /// `select` has at most [`BURST`] items, each below `keys.len()`; `verdicts` is as long as `select`.
    fn lookup_burst(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]);

    /// Returns the verdict for one key.
    fn lookup(&self, key: &FlowKey) -> Option<Slot> {
        let mut verdict = [None];
        self.lookup_burst(core::slice::from_ref(key), &[0], &mut verdict);
        verdict[0]
    }

    /// Returns the number of rules.
    fn len(&self) -> usize;

    /// Returns true if there is no rule.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
