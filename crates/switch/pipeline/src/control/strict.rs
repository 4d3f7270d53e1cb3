//! An index of entries by match and priority, for strict commands and for adds that replace.
//!
//! The index holds slots and half of each hash, so that it grows without reading the entries; a lookup compares the
//! entries themselves. Two matches are equal if they have the same fields, in any order.
//!
//! For adds that check for overlaps, the index counts the entries of each priority by shape. The shape of a
//! match is the set of its fields and masks. Two entries of one priority and one shape overlap only if they
//! are equal, so an add is compared with the other entries only if its priority has other shapes. The
//! entries of a table are not counted before its first such add.

use core::hash::Hasher;
use std::collections::HashMap;

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
    /// The number of entries of each shape of each priority; `None` before the first check for overlaps.
    shapes: Option<HashMap<Priority, HashMap<u64, usize>>>,
}

impl StrictIndex {
    pub(super) fn new(seed: u64) -> StrictIndex {
        StrictIndex {
            slots: SlotIndex::default(),
            seed,
            changes: 0,
            shapes: None,
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
        self.insert_hashed(self.hash(entry.match_(), entry.priority()), entry, slot);
    }

    /// Adds the slot of an entry whose hash is known, and that is not in the index.
    pub(super) fn insert_hashed(&mut self, at: HalfHash, entry: &FlowEntry, slot: Slot) {
        self.slots.insert(at.0, slot);
        self.changes += 1;
        if let Some(shapes) = &mut self.shapes {
            count(shapes, self.seed, entry);
        }
    }

    pub(super) fn remove(&mut self, entry: &FlowEntry, slot: Slot) {
        let at = self.hash(entry.match_(), entry.priority());
        self.slots.remove(at.0, slot);
        self.changes += 1;
        let priority = entry.priority();
        if let Some(shapes) = &mut self.shapes
            && let Some(of_priority) = shapes.get_mut(&priority)
        {
            let shape = shape(self.seed, entry.match_());
            if let Some(len) = of_priority.get_mut(&shape) {
                *len -= 1;
                if *len == 0 {
                    of_priority.remove(&shape);
                }
            }
            if of_priority.is_empty() {
                shapes.remove(&priority);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots = SlotIndex::default();
        self.changes += 1;
        self.shapes = None;
    }

    /// Returns true if all entries of a priority have the fields and masks of this match. The first call counts the
    /// `entries` of the table.
    pub(super) fn has_only_shape<'a>(
        &mut self,
        match_: &Match,
        priority: Priority,
        entries: impl IntoIterator<Item = &'a FlowEntry>,
    ) -> bool {
        let seed = self.seed;
        let shapes = self.shapes.get_or_insert_with(|| {
            let mut shapes = HashMap::new();
            entries
                .into_iter()
                .for_each(|entry| count(&mut shapes, seed, entry));
            shapes
        });
        let wanted = shape(seed, match_);
        let of_priority = shapes.get(&priority);
        of_priority.is_none_or(|of_priority| of_priority.keys().all(|shape| *shape == wanted))
    }
}

fn count(shapes: &mut HashMap<Priority, HashMap<u64, usize>>, seed: u64, entry: &FlowEntry) {
    let of_priority = shapes.entry(entry.priority()).or_default();
    *of_priority.entry(shape(seed, entry.match_())).or_default() += 1;
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
    let keyed = |words: &[u64]| keyed(seed, words);
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

/// Returns the sum of the hashes of the fields and their masks.
fn shape(seed: u64, match_: &Match) -> u64 {
    match_.iter().fold(0, |sum: u64, given| {
        let mask = given.mask.unwrap_or(u128::MAX);
        let field = u64::from(given.field.index());
        sum.wrapping_add(keyed(seed, &[field, mask as u64, (mask >> 64) as u64]))
    })
}

fn keyed(seed: u64, words: &[u64]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, !seed);
    words.iter().for_each(|word| hasher.write_u64(*word));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowEntryParts, FlowFlags};
    use millrace_flow::Instructions;
    use millrace_types::{Cookie, TableId, Time};

    fn entry(priority: u16, match_: &str) -> FlowEntry {
        FlowEntry::new(FlowEntryParts {
            table: TableId(0),
            priority: Priority(priority),
            match_: match_.parse().unwrap(),
            instructions: Instructions::default(),
            cookie: Cookie(0),
            idle_timeout: 0,
            hard_timeout: 0,
            flags: FlowFlags::default(),
            created: Time::ZERO,
        })
    }

    #[test]
    fn entries_are_visited_only_for_the_first_check_for_overlaps() {
        let mut index = StrictIndex::new(7);
        let first = entry(10, "tcp,nw_dst=10.0.0.0/8,nw_src=10.0.0.1");
        index.insert(&first, Slot::new(0));
        let same = entry(10, "tcp,nw_src=10.0.0.2,nw_dst=11.0.0.0/8");
        let wider = entry(10, "tcp,nw_src=10.0.0.2,nw_dst=10.0.0.0/7");
        let mut visited = 0;
        let entries = core::iter::once(&first).inspect(|_| visited += 1);
        assert!(index.has_only_shape(same.match_(), Priority(10), entries));
        assert_eq!(visited, 1);
        let check = |index: &mut StrictIndex, entry: &FlowEntry| {
            let none = core::iter::from_fn(|| -> Option<&FlowEntry> { panic!("visited again") });
            index.has_only_shape(entry.match_(), entry.priority(), none)
        };
        assert!(!check(&mut index, &wider));
        assert!(check(&mut index, &entry(11, "udp")));
        index.insert(&wider, Slot::new(1));
        assert!(!check(&mut index, &same));
        index.remove(&wider, Slot::new(1));
        assert!(check(&mut index, &same));
        index.remove(&first, Slot::new(0));
        assert!(check(&mut index, &wider));
        let shapes = index.shapes.unwrap();
        assert!(shapes.is_empty(), "a priority without entries takes no memory");
    }
}
