//! An index of entries by match and priority, for strict commands and for adds that replace.
//!
//! The index holds slots and half of each hash, so that it grows without reading the entries; a lookup compares the
//! entries themselves. Two matches are equal if they have the same fields, in any order.

use core::hash::Hasher;

use millrace_flow::Match;
use millrace_flow::classify::{Slot, SlotIndex};
use millrace_types::Priority;
use siphasher::sip::SipHasher13;

use super::record::Record;
use crate::FlowEntry;

/// The half of a hash that the index holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfHash(u32);

/// The slots of one table.
#[derive(Clone, Debug)]
pub(super) struct StrictIndex {
    slots: SlotIndex,
    seed: u64,
    changes: u64,
}

impl StrictIndex {
    pub(super) fn new(seed: u64) -> StrictIndex {
        StrictIndex {
            slots: SlotIndex::default(),
            seed,
            changes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of additions and removals so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the hash of entries with this match and priority.
    pub(super) fn hash(&self, match_: &Match, priority: Priority) -> HalfHash {
        hash(self.seed, match_, priority)
    }

    pub(super) fn find(
        &self,
        records: &[Option<Record>],
        hash: HalfHash,
        match_: &Match,
        priority: Priority,
    ) -> Option<Slot> {
        self.slots.find(hash.0, |slot| {
            let record = records.get(slot.index()).and_then(Option::as_ref);
            record.is_some_and(|record| is_same(&record.entry, match_, priority))
        })
    }

    /// Adds the slot of an entry that is not in the index.
    pub(super) fn insert(&mut self, entry: &FlowEntry, slot: Slot) {
        self.insert_hashed(self.hash(entry.match_(), entry.priority()), slot);
    }

    /// Adds the slot of an entry whose hash is known, and that is not in the index.
    pub(super) fn insert_hashed(&mut self, at: HalfHash, slot: Slot) {
        self.slots.insert(at.0, slot);
        self.changes += 1;
    }

    pub(super) fn remove(&mut self, entry: &FlowEntry, slot: Slot) {
        let at = self.hash(entry.match_(), entry.priority());
        self.slots.remove(at.0, slot);
        self.changes += 1;
    }

    pub(super) fn clear(&mut self) {
        self.slots = SlotIndex::default();
        self.changes += 1;
    }
}

fn is_same(entry: &FlowEntry, match_: &Match, priority: Priority) -> bool {
    let rules_agree = || {
        entry.match_().fields() == match_.fields() && {
            match_
                .iter()
                .all(|given| entry.match_().field(given.field) == Some(given))
        }
    };
    entry.priority() == priority && (entry.match_() == match_ || rules_agree())
}

/// Returns the sum of the fields' hashes, which is equal for all orders of the fields. The hash is keyed, because
/// controllers often add entries for the addresses of received packets.
fn hash(seed: u64, match_: &Match, priority: Priority) -> HalfHash {
    let keyed = |words: &[u64]| {
        let mut hasher = SipHasher13::new_with_keys(seed, !seed);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    };
    let mut sum = u64::from(priority.0);
    for given in match_.iter() {
        let (value, mask) = (given.value, given.mask.unwrap_or(0));
        let field = u64::from(given.field.index());
        sum = sum.wrapping_add(if given.field.bits() <= 64 {
            keyed(&[field, value as u64, mask as u64])
        } else {
            let halves = [value, value >> 64, mask, mask >> 64].map(|half| half as u64);
            keyed(&[field, halves[0], halves[1], halves[2], halves[3]])
        });
    }
    HalfHash(keyed(&[sum]) as u32)
}
