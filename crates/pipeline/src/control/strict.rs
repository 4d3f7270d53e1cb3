//! Finding the entry with this match and this priority: what strict commands and replacing adds ask.
//!
//! The index holds nothing but slots, five bytes each; the entries themselves are compared. Two matches are
//! the same if they say the same, in whatever order.

use core::hash::Hasher;
use std::sync::Arc;

use hashbrown::HashTable;
use millrace_flow::Match;
use millrace_flow::classify::Slot;
use millrace_types::Priority;
use siphasher::sip::SipHasher13;

use super::Record;
use crate::FlowEntry;

/// The slots of one table.
#[derive(Clone, Debug)]
pub(super) struct StrictIndex {
    slots: HashTable<Slot>,
    seed: u64,
}

impl StrictIndex {
    pub(super) fn new(seed: u64) -> StrictIndex {
        StrictIndex {
            slots: HashTable::new(),
            seed,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(
        &self,
        records: &[Option<Record>],
        match_: &Match,
        priority: Priority,
    ) -> Option<Slot> {
        let is_it = |slot: &Slot| {
            let record = records.get(slot.index()).and_then(Option::as_ref);
            record.is_some_and(|record| is_same(&record.entry, match_, priority))
        };
        self.slots.find(hash(self.seed, match_, priority), is_it).copied()
    }

    /// Adds a slot whose entry is in `records` already.
    pub(super) fn insert(&mut self, records: &[Option<Record>], entry: &Arc<FlowEntry>, slot: Slot) {
        let seed = self.seed;
        let rehash = |slot: &Slot| {
            let record = records.get(slot.index()).and_then(Option::as_ref);
            record.map_or(0, |record| {
                hash(seed, record.entry.match_(), record.entry.priority())
            })
        };
        let at = hash(seed, entry.match_(), entry.priority());
        self.slots.insert_unique(at, slot, rehash);
    }

    pub(super) fn remove(&mut self, entry: &FlowEntry, slot: Slot) {
        let at = hash(self.seed, entry.match_(), entry.priority());
        if let Ok(held) = self.slots.find_entry(at, |held| *held == slot) {
            held.remove();
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots = HashTable::new();
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

/// The same for all orders of the fields: their hashes are added up. Keyed, because tables are often filled
/// from what packets say.
fn hash(seed: u64, match_: &Match, priority: Priority) -> u64 {
    let keyed = || SipHasher13::new_with_keys(seed, !seed);
    let mut sum = 0u64;
    for given in match_.iter() {
        let mut hasher = keyed();
        hasher.write_u8(given.field.oxm());
        hasher.write_u128(given.value);
        hasher.write_u128(given.mask.unwrap_or(0));
        sum = sum.wrapping_add(hasher.finish());
    }
    let mut hasher = keyed();
    hasher.write_u64(sum);
    hasher.write_u16(priority.0);
    hasher.finish()
}
