//! An ordered map whose copies share their common blocks.
//!
//! Every order works on a copy of the exchange, and readers keep earlier copies. A copy of this map is one
//! counted reference. A write copies the block of its key, the branch of that block and the list of branches, so that
//! its cost hardly grows with the size of the map. The comparison of two versions skips what they share.
//!
//! ```text
//! version 1 --> root --> branch 0 (blocks 0 to 63) --> block 0 (identifiers 0 to 15), block 1 (16 to 31)
//!                                                           |
//! version 2 --> root --> branch 0' ------------------------+------------------------> block 1'   (after a write to 20)
//! ```

use core::fmt;
use core::iter::FusedIterator;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The binary logarithm of the number of identifiers in a block. A write copies a whole block with its objects.
const BLOCK_BITS: u32 = 4;
/// The binary logarithm of the number of blocks in a branch. A write copies the references of a whole branch, and of all
/// branches: 64 and 32 in an exchange of 30,000 objects.
const BRANCH_BITS: u32 = 6;

/// The stamp of the last write to any map of this process.
static LAST_STAMP: AtomicU64 = AtomicU64::new(0);

/// An identifier that is a number, or has one.
pub trait Numbered: Copy + Ord {
    /// Returns the number. Of two identifiers the smaller one never has the larger number; several may have the same.
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
/// Blocks by the upper bits of their identifiers. No block is empty.
type Branch<K, V> = Arc<BTreeMap<u32, Block<K, V>>>;

struct Root<K, V> {
    /// The stamp of the last write. Two maps of the same type with the same stamp are equal.
    stamp: u64,
    /// The branches by the upper bits of the numbers of their blocks. No branch is empty.
    branches: BTreeMap<u32, Branch<K, V>>,
    len: usize,
}

/// Returns the numbers of the branch and of the block of an identifier.
fn place(key: impl Numbered) -> (u32, u32) {
    let block = key.raw() >> BLOCK_BITS;
    (block >> BRANCH_BITS, block)
}

/// Iterator over a [`PersistentMap`] in the order of the identifiers.
#[derive(Clone, Debug)]
pub struct Iter<'a, K, V> {
    /// The branches of which no object was returned.
    branches: btree_map::Values<'a, u32, Branch<K, V>>,
    /// The rest of the branch that was begun at the front.
    front: BranchIter<'a, K, V>,
    /// The rest of the branch that was begun at the back.
    back: BranchIter<'a, K, V>,
    /// The number of objects that were not returned.
    len: usize,
}

/// The rest of a branch: some blocks, and some objects of a block that was begun, before or after them.
#[derive(Clone, Debug)]
struct BranchIter<'a, K, V> {
    blocks: btree_map::Values<'a, u32, Block<K, V>>,
    entries: btree_map::Iter<'a, K, V>,
}

impl<K, V> Default for BranchIter<'_, K, V> {
    fn default() -> Self {
        BranchIter {
            blocks: btree_map::Values::default(),
            entries: btree_map::Iter::default(),
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        self.len = self.len.saturating_sub(1);
        loop {
            if let Some(entry) = self.front.entries.next() {
                return Some(entry);
            }
            if let Some(block) = self.front.blocks.next() {
                self.front.entries = block.iter();
            } else if let Some(branch) = self.branches.next() {
                self.front.blocks = branch.values();
            } else if let Some(block) = self.back.blocks.next() {
                self.front.entries = block.iter();
            } else {
                return self.back.entries.next();
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<'a, K, V> DoubleEndedIterator for Iter<'a, K, V> {
    fn next_back(&mut self) -> Option<(&'a K, &'a V)> {
        self.len = self.len.saturating_sub(1);
        loop {
            if let Some(entry) = self.back.entries.next_back() {
                return Some(entry);
            }
            if let Some(block) = self.back.blocks.next_back() {
                self.back.entries = block.iter();
            } else if let Some(branch) = self.branches.next_back() {
                self.back.blocks = branch.values();
            } else if let Some(block) = self.front.blocks.next_back() {
                self.back.entries = block.iter();
            } else {
                return self.front.entries.next_back();
            }
        }
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

/// Two versions of a part of a map. A version that lacks the part has `None`.
type Versions<'a, T> = (Option<&'a T>, Option<&'a T>);

/// Returns the parts that two versions of a list do not share.
fn unshared<'a, T>(
    one: Option<&'a BTreeMap<u32, Arc<T>>>,
    other: Option<&'a BTreeMap<u32, Arc<T>>>,
) -> Vec<Versions<'a, T>> {
    let parts = |list: Option<&'a BTreeMap<u32, Arc<T>>>| list.into_iter().flatten().peekable();
    let (mut one, mut other) = (parts(one), parts(other));
    let mut found = Vec::new();
    loop {
        let next = match (one.peek(), other.peek()) {
            (None, None) => return found,
            (Some((number, _)), Some((theirs, _))) => number.min(theirs),
            (Some((number, _)), None) | (None, Some((number, _))) => number,
        };
        let next = **next;
        let take = |(number, _): &(&u32, &Arc<T>)| **number == next;
        let pair = (one.next_if(take), other.next_if(take));
        let pair = (pair.0.map(|(_, part)| part), pair.1.map(|(_, part)| part));
        match pair {
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => {}
            (one, other) => found.push((one.map(|part| &**part), other.map(|part| &**part))),
        }
    }
}

impl<K, V> PersistentMap<K, V> {
    /// Returns a map without objects.
    pub fn new() -> PersistentMap<K, V> {
        PersistentMap {
            root: Arc::new(Root {
                stamp: 0,
                branches: BTreeMap::new(),
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
        Iter {
            branches: self.root.branches.values(),
            front: BranchIter::default(),
            back: BranchIter::default(),
            len: self.root.len,
        }
    }

    /// Returns an iterator over the identifiers.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns an iterator over the objects, in the order of their identifiers.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
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
        let (branch, block) = place(*key);
        self.root.branches.get(&branch)?.get(&block)?.get(key)
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
        let (branch, block) = place(*key);
        let branch = self.write().branches.get_mut(&branch)?;
        let block = Arc::make_mut(branch).get_mut(&block)?;
        Arc::make_mut(block).get_mut(key)
    }

    /// Inserts an object. Returns the object that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let root = self.write();
        let (branch, block) = place(key);
        let branch = root.branches.entry(branch).or_default();
        let block = Arc::make_mut(branch).entry(block).or_default();
        let before = Arc::make_mut(block).insert(key, value);
        root.len += usize::from(before.is_none());
        before
    }

    /// Removes and returns an object.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.get(key)?;
        let root = self.write();
        let (branch_number, block_number) = place(*key);
        let branch = Arc::make_mut(root.branches.get_mut(&branch_number)?);
        let block = branch.get_mut(&block_number)?;
        let removed = Arc::make_mut(block).remove(key);
        if block.is_empty() {
            branch.remove(&block_number);
        }
        if branch.is_empty() {
            root.branches.remove(&branch_number);
        }
        root.len -= usize::from(removed.is_some());
        removed
    }

    /// Returns an iterator over all objects, for writing.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let root = self.write();
        let branches = root.branches.values_mut();
        let blocks = branches.flat_map(|branch| Arc::make_mut(branch).values_mut());
        blocks.flat_map(|block| Arc::make_mut(block).values_mut())
    }
}

impl<K: Numbered, V: PartialEq> PersistentMap<K, V> {
    /// Returns the identifiers whose objects differ in two maps, or are in one of them only.
    pub fn differing(&self, other: &PersistentMap<K, V>) -> BTreeSet<K> {
        let mut found = BTreeSet::new();
        if Arc::ptr_eq(&self.root, &other.root) {
            return found;
        }
        let blocks = unshared(Some(&self.root.branches), Some(&other.root.branches))
            .into_iter()
            .flat_map(|(one, other)| unshared(one, other));
        for (one, other) in blocks {
            for (block, counterpart) in [(one, other), (other, one)] {
                let differs = |key: &K, value: &V| {
                    counterpart.and_then(|counterpart| counterpart.get(key)) != Some(value)
                };
                let entries = block.into_iter().flatten();
                found.extend(
                    entries
                        .filter(|(key, value)| differs(key, value))
                        .map(|(key, _)| *key),
                );
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
            branches: self.branches.clone(),
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
        let blocks = || {
            unshared(Some(&self.root.branches), Some(&other.root.branches))
                .into_iter()
                .flat_map(|(one, other)| unshared(one, other))
        };
        Arc::ptr_eq(&self.root, &other.root)
            || self.root.len == other.root.len && blocks().all(|(one, other)| one == other)
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

    /// Returns numbers of which many are in one block, and some in other blocks and branches.
    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![0u32..40, 0u32..300, 0u32..5_000]
    }

    /// A write to one object or to all.
    #[derive(Clone, Copy, Debug)]
    enum Write {
        Insert(u8),
        Remove,
        InPlace(u8),
        All(u8),
    }

    fn write() -> impl Strategy<Value = Write> {
        prop_oneof![
            8 => any::<u8>().prop_map(Write::Insert),
            6 => Just(Write::Remove),
            4 => any::<u8>().prop_map(Write::InPlace),
            1 => any::<u8>().prop_map(Write::All),
        ]
    }

    type Map = PersistentMap<ServiceId, u8>;
    type Oracle = BTreeMap<ServiceId, u8>;

    proptest! {
        #[test]
        fn an_iterator_returns_each_object_once_from_both_ends(
            numbers in prop::collection::btree_set(number(), 0..60),
            ends in prop::collection::vec(any::<bool>(), 64),
        ) {
            let oracle: Oracle = numbers.iter().map(|number| (ServiceId(*number), 0)).collect();
            let map: Map = oracle.clone().into_iter().collect();
            let (mut found, mut expected) = (map.iter(), oracle.iter());
            for is_back in ends {
                prop_assert_eq!(found.len(), expected.len());
                if is_back {
                    prop_assert_eq!(found.next_back(), expected.next_back());
                } else {
                    prop_assert_eq!(found.next(), expected.next());
                }
            }
            prop_assert!(found.next().is_none() && found.next_back().is_none());
        }

        #[test]
        fn every_version_stays_as_it_was_and_equals_a_btree_map(
            writes in prop::collection::vec((number(), write()), 1..120),
        ) {
            let (mut map, mut oracle) = (Map::new(), Oracle::new());
            let mut versions = vec![(map.clone(), oracle.clone())];
            for (number, write) in writes {
                let key = ServiceId(number);
                match write {
                    Write::Insert(value) => prop_assert_eq!(map.insert(key, value), oracle.insert(key, value)),
                    Write::Remove => prop_assert_eq!(map.remove(&key), oracle.remove(&key)),
                    Write::InPlace(value) => {
                        let places = (map.get_mut(&key), oracle.get_mut(&key));
                        prop_assert_eq!(&places.0, &places.1);
                        for place in places.0.into_iter().chain(places.1) {
                            *place = value;
                        }
                    }
                    Write::All(value) => {
                        map.values_mut().chain(oracle.values_mut()).for_each(|place| *place ^= value);
                    }
                }
                prop_assert_eq!(map.get(&key), oracle.get(&key));
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
            // Neighbours share nearly everything, others less.
            let last = &versions[versions.len() - 1];
            let neighbours = versions.iter().zip(&versions[1..]);
            for (one, other) in neighbours.chain(versions.iter().map(|one| (one, last))) {
                let both = one.1.keys().chain(other.1.keys());
                let slow: BTreeSet<_> = both.filter(|key| one.1.get(key) != other.1.get(key)).copied().collect();
                prop_assert_eq!(one.0 == other.0, one.1 == other.1);
                prop_assert_eq!(one.0.differing(&other.0), slow);
            }
        }
    }

    /// Tasks keep iterators while they wait.
    #[test]
    fn a_task_that_waits_with_an_iterator_can_move_between_threads() {
        fn moves(_: impl Future<Output = usize> + Send) {}
        moves(async {
            let map = Map::new();
            let (mut entries, keys) = (map.iter(), map.keys());
            core::future::ready(()).await;
            entries.by_ref().count() + keys.count()
        });
    }

    #[test]
    fn a_write_copies_one_block_and_a_write_of_nothing_none() {
        let before: Map = (0..6_400).map(|number| (ServiceId(number), 0)).collect();
        let blocks = |map: &Map| -> Vec<Block<ServiceId, u8>> {
            let branches = map.root.branches.values();
            branches.flat_map(|branch| branch.values().cloned()).collect()
        };
        let mut after = before.clone();
        assert!(after.get_mut(&ServiceId(9_999)).is_none() && after.remove(&ServiceId(9_999)).is_none());
        assert!(Arc::ptr_eq(&before.root, &after.root));
        after.insert(ServiceId(70), 1);
        let pairs: Vec<_> = blocks(&before).into_iter().zip(blocks(&after)).collect();
        assert_eq!(pairs.len(), 400);
        let copied = |(one, other): &&(Block<_, _>, Block<_, _>)| !Arc::ptr_eq(one, other);
        assert_eq!(pairs.iter().filter(copied).count(), 1);
        let pairs = before.root.branches.values().zip(after.root.branches.values());
        assert_eq!(pairs.filter(|(one, other)| !Arc::ptr_eq(one, other)).count(), 1);
    }
}
