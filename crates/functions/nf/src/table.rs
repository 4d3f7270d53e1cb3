//! A table of state by flow, in memory that is allocated once: an 8-way set-associative hash table with a keyed hash.
//!
//! The hash of a key selects a set, so a lookup compares eight keys at most, and entries never move. Eight tags, which are bits
//! of the hashes, lie side by side: a lookup reads the tags and usually one entry. A full set evicts its least recently used
//! entry, if the caller permits that.

use core::hash::{Hash, Hasher};

use millrace_types::Time;

/// Entries of a set.
const WAYS: usize = 8;

/// A hash function with a secret key, so that nobody else can choose keys that collide. It folds words by multiplication.
#[derive(Clone, Copy, Debug)]
pub struct KeyedHash(u64);

impl KeyedHash {
    /// Returns the hash function of a secret seed.
    pub fn new(seed: u64) -> KeyedHash {
        KeyedHash(seed)
    }

    /// Returns the hash of a value.
    pub fn of<T: Hash>(self, value: &T) -> u64 {
        let mut folding = Folding(self.0 ^ 0x9e37_79b9_7f4a_7c15, self.0 | 1);
        value.hash(&mut folding);
        folding.finish()
    }
}

struct Folding(u64, u64);

impl Hasher for Folding {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(self.1 ^ 0xd6e8_feb8_6659_fd93);
        self.0 = (product as u64) ^ (product >> 64) as u64 ^ self.1.rotate_left(17);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let product = u128::from(self.0) * 0x9e37_79b9_7f4a_7c15;
        (product as u64) ^ (product >> 64) as u64
    }
}

#[derive(Clone, Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    used: Time,
}

/// A table of values `V` by keys `K`, of fixed capacity.
#[derive(Debug)]
pub struct Table<K, V> {
    /// The tags of each set: one for each entry; 0 for an empty entry.
    tags: Box<[[u16; WAYS]]>,
    entries: Box<[Option<Entry<K, V>>]>,
    hash: KeyedHash,
    len: usize,
    /// The ageing cursor: the set at which the next scan for old entries continues.
    sweep: usize,
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    /// Returns a table for `capacity` entries. Above eight entries, it allocates at least twice as many,
    /// because flows spread unevenly over sets. Up to eight entries fit into one set of eight.
    pub fn new(capacity: usize, seed: u64) -> Table<K, V> {
        let entries = match capacity {
            0..=WAYS => WAYS,
            _ => capacity.saturating_mul(2).next_power_of_two(),
        };
        Table {
            tags: vec![[0; WAYS]; entries / WAYS].into_boxed_slice(),
            entries: (0..entries).map(|_| None).collect(),
            hash: KeyedHash::new(seed),
            len: 0,
            sweep: 0,
        }
    }

    /// Returns whether the table has no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the set of a key, and its tag.
    #[inline]
    fn place(&self, key: &K) -> (usize, u16) {
        let hash = self.hash.of(key);
        // The number of sets is a power of two.
        let set = (hash >> 32) as usize & (self.tags.len() - 1);
        (set, (hash as u16).max(1))
    }

    /// Returns the index of the entry of a key.
    #[inline(always)]
    fn find(&self, key: &K) -> Option<usize> {
        let (set, tag) = self.place(key);
        let first = set * WAYS;
        for (way, other) in self.tags[set].iter().enumerate() {
            if *other == tag
                && let Some(entry) = &self.entries[first + way]
                && entry.key == *key
            {
                return Some(first + way);
            }
        }
        None
    }

    /// Returns the value of a key, and records the use of its entry.
    #[inline]
    pub fn get(&mut self, key: &K, now: Time) -> Option<&mut V> {
        let at = self.find(key)?;
        let entry = self.entries[at].as_mut()?;
        entry.used = now;
        Some(&mut entry.value)
    }

    /// Returns the value of a key, and records the use of its entry, unless `is_over` returns true for the value and the time of
    /// its last use.
    #[inline]
    pub fn get_unless(
        &mut self,
        key: &K,
        now: Time,
        is_over: impl FnOnce(&V, Time) -> bool,
    ) -> Option<&mut V> {
        let at = self.find(key)?;
        let entry = self.entries[at].as_mut()?;
        if is_over(&entry.value, entry.used) {
            return None;
        }
        entry.used = now;
        Some(&mut entry.value)
    }

    /// Returns the value of a key, and the time at which its entry was used last.
    #[inline]
    pub fn peek(&self, key: &K) -> Option<(&V, Time)> {
        let at = self.find(key)?;
        self.entries[at].as_ref().map(|entry| (&entry.value, entry.used))
    }

    /// Returns the time at which the entry of a key was used last.
    #[inline]
    pub fn used(&self, key: &K) -> Option<Time> {
        let at = self.find(key)?;
        self.entries[at].as_ref().map(|entry| entry.used)
    }

    /// Removes the entry of a key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key)?;
        self.tags[at / WAYS][at % WAYS] = 0;
        let entry = self.entries[at].take()?;
        self.len -= 1;
        Some(entry.value)
    }

    /// Inserts an entry. If the set is full, the least recently used entry is evicted and returned. `may_go`
    /// decides, from the value and the time of the last use, if the entry may be evicted.
    ///
    /// # Errors
    /// The value, if no entry may be evicted.
    pub fn insert(
        &mut self,
        key: K,
        value: V,
        now: Time,
        may_go: impl Fn(&V, Time) -> bool,
    ) -> Result<Option<(K, V)>, V> {
        let (set, tag) = self.place(&key);
        let first = set * WAYS;
        let entry = Entry {
            key,
            value,
            used: now,
        };
        if let Some(way) = self.tags[set].iter().position(|tag| *tag == 0) {
            self.tags[set][way] = tag;
            self.entries[first + way] = Some(entry);
            self.len += 1;
            return Ok(None);
        }
        let ways = self.entries[first..first + WAYS].iter().enumerate();
        let oldest = ways
            .filter_map(|(way, slot)| slot.as_ref().map(|old| (way, old)))
            .min_by_key(|(_, old)| old.used);
        match oldest {
            Some((way, old)) if may_go(&old.value, old.used) => {
                self.tags[set][way] = tag;
                let old = self.entries[first + way].replace(entry);
                Ok(old.map(|old| (old.key, old.value)))
            }
            _ => Err(entry.value),
        }
    }

    /// Scans the next `sets` sets, and removes the entries for which `is_over` returns true, given the value and the time of its
    /// last use. Each removed entry is passed to `gone`.
    pub fn sweep(
        &mut self,
        sets: usize,
        mut is_over: impl FnMut(&mut V, Time) -> bool,
        mut gone: impl FnMut(K, V),
    ) {
        let all = self.tags.len();
        for _ in 0..sets.min(all) {
            let set = self.sweep;
            self.sweep = (self.sweep + 1) % all;
            for way in 0..WAYS {
                if self.tags[set][way] == 0 {
                    continue;
                }
                let slot = &mut self.entries[set * WAYS + way];
                if let Some(place) = slot
                    && is_over(&mut place.value, place.used)
                    && let Some(place) = slot.take()
                {
                    self.tags[set][way] = 0;
                    self.len -= 1;
                    gone(place.key, place.value);
                }
            }
        }
    }

    /// Returns the number of sets.
    pub fn sets(&self) -> usize {
        self.tags.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_until_they_are_swept() {
        let mut table = Table::new(1024, 7);
        for key in 0..500_u64 {
            assert!(
                table
                    .insert(key, key * 2, Time::from_secs(key), |_, _| false)
                    .is_ok()
            );
        }
        assert_eq!(table.peek(&10), Some((&20, Time::from_secs(10))));
        assert_eq!(table.get_unless(&10, Time::from_secs(600), |_, _| true), None);
        assert_eq!(table.used(&10), Some(Time::from_secs(10)));
        assert_eq!(
            table.get_unless(&10, Time::from_secs(600), |_, _| false),
            Some(&mut 20)
        );
        assert_eq!(table.get(&501, Time::ZERO), None);
        let mut gone = Vec::new();
        let sets = table.sets();
        table.sweep(
            sets,
            |_, used| used < Time::from_secs(100),
            |key, _| gone.push(key),
        );
        gone.sort_unstable();
        assert_eq!(gone, (0..100).filter(|key| *key != 10).collect::<Vec<_>>());
        assert_eq!(table.len(), 401);
    }

    #[test]
    fn a_full_set_gives_up_the_oldest_entry_that_may_go() {
        let mut table = Table::new(WAYS, 7);
        for key in 0..WAYS as u64 {
            assert_eq!(
                table.insert(key, key, Time::from_secs(key), |_, _| false),
                Ok(None)
            );
        }
        assert_eq!(
            table.insert(100, 100, Time::from_secs(50), |_, _| false),
            Err(100)
        );
        assert_eq!(
            table.insert(100, 100, Time::from_secs(50), |_, _| true),
            Ok(Some((0, 0)))
        );
        assert_eq!(table.len(), WAYS);
    }
}
