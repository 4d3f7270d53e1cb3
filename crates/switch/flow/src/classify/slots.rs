//! An index of slots by hash, for code that finds flow entries without a packet.
//!
//! The structure is the classifier's own hash table ([`super::table`]) with entries of one word. It grows by segments,
//! so that no insertion waits until a million entries have moved, and takes about twelve bytes a slot.

use super::Slot;
use super::table::{Hint, Table};

/// Slots, each with a 32-bit hash. Several slots may have the same hash.
#[derive(Clone, Debug)]
pub struct SlotIndex(Table);

impl Default for SlotIndex {
    fn default() -> SlotIndex {
        SlotIndex(Table::new(1, false))
    }
}

/// Returns an entry.
///
/// ```text
///  63    32 31         0
/// | hash   | slot index |
/// ```
const fn word(hash: u32, slot: Slot) -> u64 {
    (hash as u64) << 32 | slot.index() as u64
}

/// Returns the 64-bit hash for the table, which uses high and low bits.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn digest(entry: &[u64]) -> (u64, Hint) {
    (spread((entry[0] >> 32) as u32), Hint::default())
}

impl SlotIndex {
    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no slots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the slot with this hash for which `is_it` returns true.
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

    /// Adds a slot; the slot must not be present with this hash.
    pub fn insert(&mut self, hash: u32, slot: Slot) {
        self.0.insert(&[word(hash, slot)], digest);
    }

    /// Removes a slot, and returns true if it was present with this hash.
    pub fn remove(&mut self, hash: u32, slot: Slot) -> bool {
        let spread = spread(hash);
        let at = self.0.find(spread, |entry| entry[0] == word(hash, slot));
        if let Some(at) = at {
            self.0.remove(spread, at, digest);
        }
        at.is_some()
    }

    /// Returns the size in bytes of the heap memory in use.
    #[cfg(test)]
    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::split_mix::next as split_mix;

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
