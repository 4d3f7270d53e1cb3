//! An ordered map whose copies share their common blocks.
//!
//! Every order works on a copy of the exchange, and readers keep earlier copies. A copy of this map is one
//! counted reference. A write copies the block of its key and the list of blocks, so that its cost hardly
//! grows with the size of the map. The comparison of two versions skips the blocks that they share.
//!
//! ```text
//! version 1 --> root --> block 0 (identifiers 0 to 63), block 1 (64 to 127)
//!                             |
//! version 2 --> root ---------+------------------------> block 1'            (after a write to identifier 70)
//! ```

use core::fmt;
use core::iter::FlatMap;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The binary logarithm of the number of identifiers in a block. A write copies a whole block.
const BLOCK_BITS: u32 = 6;

/// The stamp of the last write to any map of this process.
static LAST_STAMP: AtomicU64 = AtomicU64::new(0);

/// An identifier that is a number.
pub trait Numbered: Copy + Ord {
    /// Returns the number. Numbers have the order of the identifiers.
    fn raw(self) -> u32;
}

impl Numbered for u32 {
    fn raw(self) -> u32 {
        self
    }
}

/// An ordered map from identifiers to objects. Copies share their common blocks.
pub struct PersistentMap<K, V> {
    root: Arc<Root<K, V>>,
}

type Block<K, V> = Arc<BTreeMap<K, V>>;

struct Root<K, V> {
    /// The stamp of the last write. Two maps of the same type with the same stamp are equal.
    stamp: u64,
    /// The blocks by the upper bits of their identifiers. No block is empty.
    blocks: BTreeMap<u32, Block<K, V>>,
    len: usize,
}

/// Iterator over a [`PersistentMap`] in the order of the identifiers.
pub type Iter<'a, K, V> = FlatMap<
    btree_map::Values<'a, u32, Block<K, V>>,
    btree_map::Iter<'a, K, V>,
    fn(&'a Block<K, V>) -> btree_map::Iter<'a, K, V>,
>;

impl<K, V> PersistentMap<K, V> {
    /// Returns a map without objects.
    pub fn new() -> PersistentMap<K, V> {
        PersistentMap {
            root: Arc::new(Root {
                stamp: 0,
                blocks: BTreeMap::new(),
                len: 0,
            }),
        }
    }

    /// Returns a number that changes with each write. Two maps of the same type with the same stamp are
    /// equal.
    pub(crate) fn stamp(&self) -> u64 {
        self.root.stamp
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.root.len
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.root.len == 0
    }

    /// Returns an iterator over the identifiers and objects.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let entries: fn(&Block<K, V>) -> btree_map::Iter<'_, K, V> = |block| block.iter();
        self.root.blocks.values().flat_map(entries)
    }

    /// Returns an iterator over the identifiers.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.root.blocks.values().flat_map(|block| block.keys())
    }

    /// Returns an iterator over the objects, in the order of their identifiers.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.root.blocks.values().flat_map(|block| block.values())
    }

    /// Returns the first identifier and its object.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// Returns the last identifier and its object.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }
}

impl<K: Numbered, V> PersistentMap<K, V> {
    /// Returns an object.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.root.blocks.get(&(key.raw() >> BLOCK_BITS))?.get(key)
    }

    /// Returns true if there is an object with this identifier.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }
}

impl<K: Numbered, V: Clone> PersistentMap<K, V> {
    /// Returns the root for a write: this version no longer shares it, and it has a new stamp.
    fn write(&mut self) -> &mut Root<K, V> {
        let root = Arc::make_mut(&mut self.root);
        root.stamp = LAST_STAMP.fetch_add(1, Ordering::Relaxed) + 1;
        root
    }

    /// Returns an object for writing.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        // If the object is absent, the map stays shared.
        self.get(key)?;
        let block = self.write().blocks.get_mut(&(key.raw() >> BLOCK_BITS))?;
        Arc::make_mut(block).get_mut(key)
    }

    /// Inserts an object. Returns the object that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let root = self.write();
        let block = root.blocks.entry(key.raw() >> BLOCK_BITS).or_default();
        let before = Arc::make_mut(block).insert(key, value);
        root.len += usize::from(before.is_none());
        before
    }

    /// Removes and returns an object.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.get(key)?;
        let root = self.write();
        let number = key.raw() >> BLOCK_BITS;
        let block = root.blocks.get_mut(&number)?;
        let removed = Arc::make_mut(block).remove(key);
        if block.is_empty() {
            root.blocks.remove(&number);
        }
        root.len -= usize::from(removed.is_some());
        removed
    }

    /// Returns an iterator over all objects, for writing.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let root = self.write();
        root.blocks
            .values_mut()
            .flat_map(|block| Arc::make_mut(block).values_mut())
    }
}

impl<K: Numbered, V: PartialEq> PersistentMap<K, V> {
    /// Returns the identifiers whose objects differ in two maps, or are in one of them only.
    pub fn differing(&self, other: &PersistentMap<K, V>) -> BTreeSet<K> {
        let mut found = BTreeSet::new();
        if Arc::ptr_eq(&self.root, &other.root) {
            return found;
        }
        for (one, another) in [(self, other), (other, self)] {
            for (number, block) in &one.root.blocks {
                let counterpart = another.root.blocks.get(number);
                if counterpart.is_some_and(|counterpart| Arc::ptr_eq(block, counterpart)) {
                    continue;
                }
                let differs = |key: &K, value: &V| {
                    counterpart.and_then(|counterpart| counterpart.get(key)) != Some(value)
                };
                let keys = block.iter().filter(|(key, value)| differs(key, value));
                found.extend(keys.map(|(key, _)| *key));
            }
        }
        found
    }
}

impl<K, V> Clone for PersistentMap<K, V> {
    fn clone(&self) -> PersistentMap<K, V> {
        PersistentMap {
            root: Arc::clone(&self.root),
        }
    }
}

impl<K, V> Clone for Root<K, V> {
    fn clone(&self) -> Root<K, V> {
        Root {
            stamp: self.stamp,
            blocks: self.blocks.clone(),
            len: self.len,
        }
    }
}

impl<K, V> Default for PersistentMap<K, V> {
    fn default() -> PersistentMap<K, V> {
        PersistentMap::new()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for PersistentMap<K, V> {
    fn eq(&self, other: &PersistentMap<K, V>) -> bool {
        let is_same =
            |(one, another): (&Block<K, V>, &Block<K, V>)| Arc::ptr_eq(one, another) || one == another;
        let (one, another) = (&self.root.blocks, &other.root.blocks);
        Arc::ptr_eq(&self.root, &other.root)
            || self.root.len == other.root.len
                && one.keys().eq(another.keys())
                && one.values().zip(another.values()).all(is_same)
    }
}

impl<K: Eq, V: Eq> Eq for PersistentMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for PersistentMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Numbered, V> core::ops::Index<&K> for PersistentMap<K, V> {
    type Output = V;

    /// Returns an object.
    ///
    /// # Panics
    /// If there is no object with this identifier, as an index of a `BTreeMap` does.
    #[allow(clippy::expect_used, reason = "an index has no other way to refuse")]
    fn index(&self, key: &K) -> &V {
        self.get(key).expect("no object has this identifier")
    }
}

impl<'a, K, V> IntoIterator for &'a PersistentMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<K: Numbered, V: Clone> Extend<(K, V)> for PersistentMap<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, objects: T) {
        for (key, value) in objects {
            self.insert(key, value);
        }
    }
}

impl<K: Numbered, V: Clone> FromIterator<(K, V)> for PersistentMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(objects: T) -> PersistentMap<K, V> {
        let mut map = PersistentMap::new();
        map.extend(objects);
        map
    }
}

impl<K: Serialize, V: Serialize> Serialize for PersistentMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, K: Numbered + Deserialize<'de>, V: Clone + Deserialize<'de>> Deserialize<'de>
    for PersistentMap<K, V>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PersistentMap<K, V>, D::Error> {
        let objects = BTreeMap::deserialize(deserializer)?;
        Ok(objects.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ServiceId;

    type Map = PersistentMap<ServiceId, u8>;
    type Oracle = BTreeMap<ServiceId, u8>;

    proptest! {
        #[test]
        fn every_version_stays_as_it_was_and_equals_a_btree_map(
            writes in prop::collection::vec((0u32..300, prop::option::of(any::<u8>()), any::<bool>()), 1..120),
        ) {
            let (mut map, mut oracle) = (Map::new(), Oracle::new());
            let mut versions = vec![(map.clone(), oracle.clone())];
            for (number, value, is_in_place) in writes {
                let key = ServiceId(number);
                match (value, map.get_mut(&key)) {
                    (Some(value), Some(place)) if is_in_place => {
                        *place = value;
                        oracle.insert(key, value);
                    }
                    (Some(value), _) => prop_assert_eq!(map.insert(key, value), oracle.insert(key, value)),
                    (None, _) => prop_assert_eq!(map.remove(&key), oracle.remove(&key)),
                }
                versions.push((map.clone(), oracle.clone()));
            }
            for (map, oracle) in &versions {
                prop_assert!(map.iter().eq(oracle));
                prop_assert!(map.iter().rev().eq(oracle.iter().rev()));
                prop_assert!(map.keys().eq(oracle.keys()) && map.values().eq(oracle.values()));
                prop_assert_eq!(map.len(), oracle.len());
                prop_assert_eq!(map.last_key_value(), oracle.last_key_value());
                let text = serde_json::to_string(map).unwrap();
                prop_assert_eq!(&text, &serde_json::to_string(oracle).unwrap());
                prop_assert_eq!(&serde_json::from_str::<Map>(&text).unwrap(), map);
            }
            let (first, last) = (&versions[versions.len() / 2], &versions[versions.len() - 1]);
            let both = first.1.keys().chain(last.1.keys());
            let slow: BTreeSet<_> = both.filter(|key| first.1.get(key) != last.1.get(key)).copied().collect();
            prop_assert_eq!(first.0 == last.0, first.1 == last.1);
            prop_assert_eq!(first.0.differing(&last.0), slow);
        }
    }

    #[test]
    fn a_write_copies_one_block_and_a_write_of_nothing_none() {
        let before: Map = (0..6_400).map(|number| (ServiceId(number), 0)).collect();
        let mut after = before.clone();
        assert!(after.get_mut(&ServiceId(9_999)).is_none() && after.remove(&ServiceId(9_999)).is_none());
        assert!(Arc::ptr_eq(&before.root, &after.root));
        after.insert(ServiceId(70), 1);
        let pairs = before.root.blocks.values().zip(after.root.blocks.values());
        assert_eq!(pairs.filter(|(one, other)| !Arc::ptr_eq(one, other)).count(), 1);
    }
}
