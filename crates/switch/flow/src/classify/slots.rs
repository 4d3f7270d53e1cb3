//! Slots by hash, for whoever finds entries by something else than a packet.
//!
//! The classifier's own hash table ([`super::table`]) with entries of one word. It grows by parts, so that no insertion
//! waits until a million others have moved, and takes some twelve bytes a slot.

use super::Slot;
use super::table::{Hint, Table};

/// Slots, each with 32 bits of the hash of what it is found by. Several may have the same.
#[derive(Clone, Debug)]
pub struct SlotIndex(Table);

impl Default for SlotIndex {
    fn default() -> SlotIndex {
        SlotIndex(Table::new(1, false))
    }
}

/// An entry: the hash, and the slot's index.
const fn word(hash: u32, slot: Slot) -> u64 {
    (hash as u64) << 32 | slot.index() as u64
}

/// The hash of an entry as the table uses it, which looks at high bits and at low ones.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn digest(entry: &[u64]) -> (u64, Hint) {
    (spread((entry[0] >> 32) as u32), Hint::default())
}

impl SlotIndex {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot with this hash of which `is_it` says so.
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let mut found = None;
        self.0.find(spread(hash), |entry| {
            let slot = Slot::new(entry[0] as u32);
            let is_found = (entry[0] >> 32) as u32 == hash && is_it(slot);
            found = is_found.then_some(slot);
            is_found
        })?;
        found
    }

    /// Adds a slot that is not there with this hash.
    pub fn insert(&mut self, hash: u32, slot: Slot) {
        self.0.insert(&[word(hash, slot)], digest);
    }

    /// Removes a slot; tells whether it was there with this hash.
    pub fn remove(&mut self, hash: u32, slot: Slot) -> bool {
        let spread = spread(hash);
        let at = self.0.find(spread, |entry| entry[0] == word(hash, slot));
        if let Some(at) = at {
            self.0.remove(spread, at, digest);
        }
        at.is_some()
    }

    /// Bytes of heap in use.
    #[cfg(test)]
    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::split_mix;
    use super::*;

    #[test]
    fn slots_are_found_by_hash_among_others_with_the_same_one() {
        let mut index = SlotIndex::default();
        let hash = |slot: u32| split_mix(&mut u64::from(slot / 3)) as u32;
        const COUNT: u32 = 30_000;
        (0..COUNT).for_each(|slot| index.insert(hash(slot), Slot::new(slot)));
        assert_eq!(index.len(), COUNT as usize);
        for slot in (0..COUNT).step_by(7) {
            let wanted = Slot::new(slot);
            assert_eq!(index.find(hash(slot), |held| held == wanted), Some(wanted));
            assert!(index.remove(hash(slot), wanted) && !index.remove(hash(slot), wanted));
            assert_eq!(index.find(hash(slot), |held| held == wanted), None);
        }
    }

    #[test]
    fn a_slot_costs_sixteen_bytes_at_most_and_gives_them_back() {
        let mut index = SlotIndex::default();
        let hash = |slot: u32| split_mix(&mut u64::from(slot)) as u32;
        const COUNT: u32 = 200_000;
        for slot in 0..COUNT {
            index.insert(hash(slot), Slot::new(slot));
            assert!(slot < 30_000 || index.heap_size() <= 16 * index.len());
        }
        for slot in 0..COUNT {
            assert!(index.remove(hash(slot), Slot::new(slot)));
        }
        assert!(index.is_empty() && index.heap_size() < 1000);
    }
}
