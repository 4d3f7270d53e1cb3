//! The masks in use: the number of rules of each, and every bit that some rule compares.
//!
//! A table has many rules and few masks. Inside the classifier, a rule is therefore its mask's number and its key, and
//! each mask is stored once.

use hashbrown::HashTable;

use super::columns::Columns;
use super::hash::{HashKeys, finish, term};
use crate::key::{FlowKey, FlowMask};

/// The number of a mask in use. A number is reused after its last rule is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MaskId(pub(super) u32);

/// A mask in use, with its counters.
#[derive(Clone, Debug)]
pub(super) struct MaskEntry {
    mask: FlowMask,
    /// The mask, in columns.
    pub(super) columns: Columns,
    /// The number of rules with this mask.
    pub(super) rules: usize,
    /// The parts that hold rules with this mask, and the number of these rules in each.
    pub(super) parts: Vec<(u32, usize)>,
}

impl MaskEntry {
    /// Returns the mask.
    pub(super) fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// Adds one to the rules in part `part`.
    pub(super) fn arrive(&mut self, part: u32) {
        match self.parts.iter_mut().find(|(held, _)| *held == part) {
            Some((_, rules)) => *rules += 1,
            None => self.parts.push((part, 1)),
        }
    }

    /// Subtracts one from the rules in part `part`.
    pub(super) fn leave(&mut self, part: u32) {
        if let Some(at) = self.parts.iter().position(|(held, _)| *held == part) {
            self.parts[at].1 -= 1;
            if self.parts[at].1 == 0 {
                self.parts.swap_remove(at);
            }
        }
    }
}

/// All masks in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Masks {
    entries: Vec<MaskEntry>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// The number of the mask that was looked up last. Rules often arrive mask by mask.
    last: u32,
    /// For each bit of a key, the number of masks that have it. Empty if there is no mask.
    counts: Vec<u32>,
    union: FlowMask,
}

fn hash_of(keys: &HashKeys, mask: &FlowMask) -> u64 {
    let words = mask.words().iter().zip(&keys.columns);
    finish(words.fold(keys.start, |sum, (word, keys)| {
        sum.wrapping_add(term(*word, *keys))
    }))
}

impl Masks {
    /// Returns the number of a mask, if it is in use.
    pub(super) fn find(&mut self, keys: &HashKeys, mask: &FlowMask) -> Option<MaskId> {
        let is = |id: u32| {
            self.entries
                .get(id as usize)
                .is_some_and(|entry| entry.rules > 0 && entry.mask == *mask)
        };
        if !is(self.last) {
            self.last = *self.index.find(hash_of(keys, mask), |id| is(*id))?;
        }
        Some(MaskId(self.last))
    }

    /// Adds a rule to a mask; returns the number of the mask, and true if the mask is new.
    pub(super) fn add(&mut self, keys: &HashKeys, mask: &FlowMask) -> (MaskId, bool) {
        if let Some(id) = self.find(keys, mask) {
            self.entries[id.0 as usize].rules += 1;
            return (id, false);
        }
        let entry = MaskEntry {
            mask: *mask,
            columns: Columns::of_mask(mask),
            rules: 1,
            parts: Vec::new(),
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let entries = &self.entries;
        self.index.insert_unique(hash_of(keys, mask), id, |id| {
            hash_of(keys, &entries[*id as usize].mask)
        });
        self.count(mask, true);
        self.last = id;
        (MaskId(id), true)
    }

    /// Removes a rule from a mask.
    pub(super) fn subtract(&mut self, keys: &HashKeys, id: MaskId) {
        let entry = &mut self.entries[id.0 as usize];
        entry.rules -= 1;
        if entry.rules > 0 {
            return;
        }
        let mask = entry.mask;
        if let Ok(held) = self.index.find_entry(hash_of(keys, &mask), |held| *held == id.0) {
            held.remove();
        }
        self.count(&mask, false);
        self.free.push(id.0);
        if self.len() == 0 {
            *self = Masks::default();
        }
    }

    fn count(&mut self, mask: &FlowMask, more: bool) {
        self.counts.resize(FlowKey::WORDS * 64, 0);
        for (word, bits) in mask.words().iter().enumerate() {
            let mut rest = *bits;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let count = &mut self.counts[word * 64 + bit];
                *count = if more { *count + 1 } else { *count - 1 };
                let union = &mut self.union.0.words_mut()[word];
                *union = *union & !(1 << bit) | u64::from(*count > 0) << bit;
            }
        }
    }

    /// Returns the number of masks in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns every bit that some mask has.
    pub(super) fn union(&self) -> FlowMask {
        self.union
    }

    /// Returns the mask with this number.
    pub(super) fn entry(&self, id: MaskId) -> &MaskEntry {
        &self.entries[id.0 as usize]
    }

    /// Returns the mask with this number.
    pub(super) fn entry_mut(&mut self, id: MaskId) -> &mut MaskEntry {
        &mut self.entries[id.0 as usize]
    }

    /// Returns every mask in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (MaskId, &MaskEntry)> {
        let numbered = self.entries.iter().enumerate();
        numbered
            .filter(|(_, entry)| entry.rules > 0)
            .map(|(id, entry)| (MaskId(id as u32), entry))
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        let parts: usize = self.entries.iter().map(|entry| entry.parts.capacity()).sum();
        self.entries.capacity() * size_of::<MaskEntry>()
            + parts * size_of::<(u32, usize)>()
            + (self.free.capacity() + self.counts.capacity()) * 4
            + self.index.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_union_follows_masks_as_they_come_and_go() {
        let keys = HashKeys::new(1);
        let mask = |bits: u64| {
            let mut mask = FlowMask::default();
            mask.0.words_mut()[3] = bits;
            mask
        };
        let mut masks = Masks::default();
        let (low, new) = masks.add(&keys, &mask(0x0f));
        assert!(new && !masks.add(&keys, &mask(0x0f)).1);
        let (high, _) = masks.add(&keys, &mask(0x3c));
        assert_eq!(masks.union(), mask(0x3f));
        masks.subtract(&keys, low);
        assert_eq!(masks.union(), mask(0x3f));
        masks.subtract(&keys, low);
        assert_eq!(masks.union(), mask(0x3c));
        assert!(masks.find(&keys, &mask(0x0f)).is_none());
        masks.subtract(&keys, high);
        assert_eq!((masks.union(), masks.len()), (FlowMask::default(), 0));
    }
}
