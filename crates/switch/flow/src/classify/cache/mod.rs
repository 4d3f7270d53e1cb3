//! A cache that maps exact keys to some words of the caller. It serves pipelines of many tables, in which one
//! cache lookup replaces many table lookups, and tables with slow lookups.
//!
//! The memory is allocated once, and keys of a full group are evicted in turn. The guarantee is weaker than a
//! classifier's: an entry that a lookup finds was inserted for a key that is equal in every compared bit, because the
//! whole key is compared after the hash; but an inserted entry may have been evicted.
//!
//! A key has two groups, and is in the second one if the first one was full at its insertion. A lookup reads the
//! second group only if the first one is marked as overflowed.
//!
//! A cache starts small, so that few flows touch little memory, and doubles while keys displace each other. The
//! entries move to their new groups some groups at a time, and a lookup does not find an entry before its move.
//!
//! The [`CacheForm`] contains every bit that some rule compares. The form belongs to the rules; when it
//! changes, the cache must be cleared. The cache belongs to one worker, which reads the form and the cache.

mod form;
mod search;

use core::fmt;
use core::ops::Range;

pub use self::form::CacheForm;
use super::Simd;
use super::lanes::{LANES, candidates, lane, tag};
use crate::key::FlowKey;

/// The maximum number of words for each key.
pub const KEPT_MAX: usize = 16;

/// The number of words of a cache line.
const LINE: usize = 8;

/// The number of cached words that are prefetched with the key.
const NEAR: usize = 8;

/// The initial number of groups of [`LANES`] keys: 57,344 keys. With half as many groups, one in 80 among 10,000 keys
/// shared its group with seven others; if packets of such keys alternate, they evict each other every time.
const GROUPS_MIN: usize = 8192;

/// The maximum number of groups if the key and the cached words fill one cache line; half as many if they fill two.
const GROUPS_MAX: usize = 65536;

/// The number of words of all entries: 29 MB of address space.
const ROOM: usize = GROUPS_MAX * LANES * LINE;

/// The cache doubles when the number of keys that found their first group full exceeds its groups divided by this.
const CROWDED: usize = 32;

/// The number of groups that are moved in one call.
const MOVED: usize = 8;

/// In a word of tags, above the tags: the position of the lane that is evicted next.
const NEXT_SHIFT: u32 = 56;
const NEXT: u64 = 7 << NEXT_SHIFT;

/// In a word of tags: some key with this first group is in its second group.
const OVERFLOWS: u64 = 1 << 63;

/// The index of an entry in a cache, until the next insertion or move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheIndex(u32);

impl CacheIndex {
    /// No entry.
    pub const NONE: CacheIndex = CacheIndex(u32::MAX);

    /// Returns true if there is an entry.
    #[inline(always)]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// A cache from exact keys to some words; see the module documentation.
pub struct FlowCache {
    simd: Simd,
    /// The number of groups; a power of two.
    groups: usize,
    /// One word of tags for each group; zero beyond the last group.
    tags: Box<[u64]>,
    /// For each lane of each group the words of the key, followed by the cached words. Unused entries take no memory.
    entries: Box<[u64]>,
    /// The index of the first entry, which is at the beginning of a cache line.
    first: usize,
    /// The number of keys that found their first group full since the cache last grew.
    crowded: usize,
    /// The groups with entries that may belong to other groups since the cache grew.
    unmoved: Range<usize>,
}

impl FlowCache {
    /// Returns an empty cache.
    pub fn new() -> FlowCache {
        FlowCache::with_simd(Simd::detect())
    }

    /// Returns an empty cache that uses the given vector instructions.
    pub fn with_simd(simd: Simd) -> FlowCache {
        // There is room after the last entry, as a read covers the same number of words for every entry.
        let entries = vec![0_u64; ROOM + LINE + KEPT_MAX].into_boxed_slice();
        FlowCache {
            simd,
            groups: GROUPS_MIN,
            tags: vec![0; GROUPS_MAX].into_boxed_slice(),
            first: entries
                .as_ptr()
                .align_offset(LINE * size_of::<u64>())
                .min(LINE - 1),
            entries,
            crowded: 0,
            unmoved: 0..0,
        }
    }

    /// Removes every entry, and restores the initial size. The caller must clear the cache before it uses
    /// another form.
    pub fn clear(&mut self) {
        self.tags[..self.groups].fill(0);
        (self.groups, self.crowded, self.unmoved) = (GROUPS_MIN, 0, 0..0);
    }

    /// Returns the cached words of an entry. Words after the first [`CacheForm::kept`] are undefined.
    #[inline(always)]
    pub fn value(&self, form: &CacheForm, index: CacheIndex) -> &[u64; KEPT_MAX] {
        let at = self.at(form, index.0 as usize) + form.words.len();
        match self.entries.get(at..).and_then(<[u64]>::first_chunk) {
            Some(value) => value,
            None => &[0; KEPT_MAX],
        }
    }

    /// Stores words for a key, and may evict those of another key. Words after the first [`CacheForm::kept`] are not
    /// stored.
    pub fn insert(&mut self, form: &CacheForm, key: &FlowKey, value: &[u64]) {
        let words = form.words_of(key);
        let hash = form.hash(&words);
        let key = &words[..form.words.len()];
        let same = self.find(form, hash, key);
        let number = same.or_else(|| self.take_free(hash)).unwrap_or_else(|| {
            let group = self.group(hash);
            let tags = &mut self.tags[group];
            let next = (*tags & NEXT) >> NEXT_SHIFT;
            *tags = *tags & !NEXT | ((next + 1) % LANES as u64) << NEXT_SHIFT;
            self.crowded += 1;
            group * LANES + next as usize % LANES
        });
        self.set_tag(number, tag(hash));
        let at = self.at(form, number);
        let (held, kept) = self.entries[at..][..form.stride].split_at_mut(key.len());
        held.copy_from_slice(key);
        kept.iter_mut().zip(value).for_each(|(kept, word)| *kept = *word);
        if self.crowded > self.groups / CROWDED && !self.is_moving() && self.groups < form.groups_max() {
            self.unmoved = 0..self.groups;
            self.groups *= 2;
            self.crowded = 0;
        }
    }

    /// Returns true if an insertion of a key evicts no other key.
    pub fn has_room(&self, form: &CacheForm, key: &FlowKey) -> bool {
        let words = form.words_of(key);
        let hash = form.hash(&words);
        let group = self.group(hash);
        let is_free = |group: usize| candidates(self.tags[group], 0) != 0;
        let same = || self.find(form, hash, &words[..form.words.len()]);
        is_free(group) || is_free(self.other(group, hash)) || same().is_some()
    }

    /// Returns true if the cache has outgrown its initial size, 57,344 entries: they no longer fit a second-level cache.
    #[inline]
    pub fn has_grown(&self) -> bool {
        self.groups > GROUPS_MIN
    }

    /// Returns true if the cache has grown, and some entries may not have moved yet.
    #[inline(always)]
    pub fn is_moving(&self) -> bool {
        !self.unmoved.is_empty()
    }

    /// Moves the entries of some groups that have not moved yet.
    pub fn move_some(&mut self, form: &CacheForm) {
        for group in self.unmoved.clone().take(MOVED) {
            self.move_group(form, group);
            self.unmoved.start = group + 1;
        }
    }

    fn move_group(&mut self, form: &CacheForm, group: usize) {
        let tags = self.tags[group];
        for lane in (0..LANES).filter(|lane| tags >> (8 * lane) & 0xff != 0) {
            let number = group * LANES + lane;
            let from = self.at(form, number);
            let key = &self.entries[from..][..form.words.len()];
            let hash = form.hash(key);
            if self.group(hash) == group {
                continue;
            }
            // A lookup does not find an entry before its move, so the key may have been inserted again
            // meanwhile.
            let is_kept = self.find(form, hash, key).is_some_and(|found| found != number);
            self.set_tag(number, 0);
            if !is_kept && let Some(free) = self.take_free(hash) {
                let to = self.at(form, free);
                self.entries.copy_within(from..from + form.stride, to);
                self.set_tag(free, tag(hash));
            }
        }
    }

    /// Returns the index of the entry of a key.
    fn find(&self, form: &CacheForm, hash: u64, key: &[u64]) -> Option<usize> {
        let group = self.group(hash);
        let is_same = |number: &usize| self.entries[self.at(form, *number)..][..key.len()] == *key;
        let found = self.numbers(group, hash).find(is_same);
        if found.is_some() || self.tags[group] & OVERFLOWS == 0 {
            return found;
        }
        self.numbers(self.other(group, hash), hash).find(is_same)
    }

    /// Returns the numbers of the entries of a group that have the tag of a hash.
    #[inline(always)]
    fn numbers(&self, group: usize, hash: u64) -> impl Iterator<Item = usize> {
        let mut lanes = candidates(self.tags[group], tag(hash));
        core::iter::from_fn(move || {
            let lane = (lanes != 0).then(|| lane(lanes))?;
            lanes &= lanes - 1;
            Some(group * LANES + lane)
        })
    }

    /// Returns a free lane in one of the two groups of a key, and marks the first group if the lane is in the second
    /// one.
    fn take_free(&mut self, hash: u64) -> Option<usize> {
        let group = self.group(hash);
        let other = self.other(group, hash);
        let free = candidates(self.tags[group], 0);
        if free != 0 {
            return Some(group * LANES + lane(free));
        }
        let free = candidates(self.tags[other], 0);
        (free != 0).then(|| {
            self.tags[group] |= OVERFLOWS;
            self.crowded += 1;
            other * LANES + lane(free)
        })
    }

    fn set_tag(&mut self, number: usize, tag: u64) {
        let (tags, shift) = (&mut self.tags[number / LANES], 8 * (number % LANES));
        *tags = *tags & !(0xff << shift) | tag << shift;
    }

    /// Returns the second group of a key.
    #[inline(always)]
    fn other(&self, group: usize, hash: u64) -> usize {
        /// Odd, so that no tag leads back to the first group, and large, so that near tags lead to distant groups.
        const STEP: usize = 0x5bd1;
        (group ^ (tag(hash) as usize * STEP)) & (self.groups - 1)
    }

    #[inline(always)]
    fn group(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.groups - 1)
    }

    /// Returns the index of the first word of an entry.
    #[inline(always)]
    fn at(&self, form: &CacheForm, number: usize) -> usize {
        self.first + number * form.stride
    }
}

impl Default for FlowCache {
    fn default() -> FlowCache {
        FlowCache::new()
    }
}

impl fmt::Debug for FlowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowCache({})", self.simd.name())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::BURST;
    use super::*;
    use crate::field::Field;
    use crate::key::FlowMask;

    fn five_tuple() -> FlowMask {
        let mut mask = FlowMask::default();
        for field in [
            Field::EthType,
            Field::IpProto,
            Field::Ipv4Src,
            Field::Ipv4Dst,
            Field::TcpSrc,
            Field::TcpDst,
        ] {
            mask.0.put(field, field.max_value());
        }
        mask
    }

    fn key(number: u64) -> FlowKey {
        let mut key = FlowKey::default();
        key.put(Field::EthType, 0x800);
        key.put(Field::IpProto, 6);
        key.put(Field::Ipv4Src, u128::from(number));
        key.put(Field::TcpDst, u128::from(number % 7));
        key
    }

    fn find(cache: &FlowCache, form: &CacheForm, key: &FlowKey) -> Option<u64> {
        let mut index = [CacheIndex::NONE];
        cache.lookup_burst(form, core::slice::from_ref(key), &mut index);
        index[0].is_some().then(|| cache.value(form, index[0])[0])
    }

    /// Returns the maximum number of keys.
    fn room(form: &CacheForm) -> u64 {
        (form.groups_max() * LANES) as u64
    }

    /// Inserts keys with these numbers. The value of each key is its number.
    fn keep(cache: &mut FlowCache, form: &CacheForm, numbers: Range<u64>) {
        for number in numbers {
            cache.insert(form, &key(number), &[number; KEPT_MAX]);
            if cache.is_moving() {
                cache.move_some(form);
            }
        }
    }

    #[test]
    fn nearly_all_of_half_as_many_keys_as_there_is_room_for_are_kept() {
        // Entries of one, two and three cache lines.
        for kept in [4, 12, KEPT_MAX] {
            let form = CacheForm::new(7, &five_tuple(), kept);
            let mut cache = FlowCache::new();
            let count = room(&form) / 2;
            keep(&mut cache, &form, 0..count);
            let found = (0..count).filter(|number| {
                let held = find(&cache, &form, &key(*number));
                assert!(held.is_none_or(|held| held == *number));
                held.is_some()
            });
            let found = found.count() as u64;
            assert!(found > count * 99 / 100, "{found} of {count}");
            assert_eq!(find(&cache, &form, &key(count)), None);
            cache.clear();
            assert_eq!(find(&cache, &form, &key(0)), None);
            assert_eq!(cache.groups, GROUPS_MIN);
        }
    }

    #[test]
    fn keys_that_moved_are_found_again_as_they_were_kept_last() {
        let form = CacheForm::new(7, &five_tuple(), 4);
        let mut cache = FlowCache::new();
        let mut count = 0;
        while !cache.is_moving() {
            cache.insert(&form, &key(count), &[count; KEPT_MAX]);
            count += 1;
        }
        // The cache grew long before it was full, and half of the keys have another first group now.
        assert!(count > GROUPS_MIN as u64 * 3 && count < (GROUPS_MIN * LANES) as u64);
        let lost = |cache: &FlowCache| {
            let is_lost = |number: &u64| find(cache, &form, &key(*number)).is_none();
            (0..count).filter(is_lost).collect::<Vec<u64>>()
        };
        let hidden = lost(&cache);
        assert!(hidden.len() as u64 > count / 4);
        for number in hidden.iter().take(100) {
            cache.insert(&form, &key(*number), &[u64::MAX; KEPT_MAX]);
        }
        while cache.is_moving() {
            cache.move_some(&form);
        }
        // A key is evicted if both of its groups were full at its move.
        assert!(lost(&cache).len() as u64 <= count / 1000);
        for number in hidden.iter().take(100) {
            let held = find(&cache, &form, &key(*number));
            assert!(held.is_none_or(|held| held == u64::MAX));
        }
    }

    #[test]
    fn more_keys_than_there_is_room_for_displace_others_and_are_found_themselves() {
        let form = CacheForm::new(7, &five_tuple(), KEPT_MAX);
        let mut cache = FlowCache::new();
        let count = room(&form) * 2;
        assert!(cache.has_room(&form, &key(0)));
        for number in 0..count {
            keep(&mut cache, &form, number..number + 1);
            assert!(cache.is_moving() || find(&cache, &form, &key(number)) == Some(number));
        }
        let kept = (0..count).filter(|number| find(&cache, &form, &key(*number)).is_some());
        assert!(kept.count() as u64 > room(&form) * 9 / 10);
        assert!((count..count + 1000).all(|number| !cache.has_room(&form, &key(number))));
        assert!(cache.has_room(&form, &key(count - 1)));
    }

    #[test]
    fn what_is_kept_for_a_key_is_replaced_and_bits_that_do_not_count_are_not_seen() {
        let form = CacheForm::new(7, &five_tuple(), KEPT_MAX);
        let mut cache = FlowCache::new();
        cache.insert(&form, &key(1), &[1; KEPT_MAX]);
        let mut other = key(1);
        other.put(Field::EthDst, 99);
        cache.insert(&form, &other, &[2; KEPT_MAX]);
        assert_eq!(find(&cache, &form, &key(1)), Some(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_cache_finds_only_what_was_kept_for_an_equal_key_on_each_level(
            columns in prop::collection::vec(0..Field::ALL.len(), 1..12),
            numbers in prop::collection::vec(0..400_u64, 1..300),
            asked in prop::collection::vec(0..400_u64, 1..=BURST),
        ) {
            let mut mask = FlowMask::default();
            for field in columns {
                let field = Field::ALL[field];
                mask.0.put(field, field.max_value() & !3);
            }
            let form = CacheForm::new(3, &mask, KEPT_MAX);
            let made = |number: u64| {
                let mut key = FlowKey::default();
                for (i, word) in key.words_mut().iter_mut().enumerate() {
                    *word = (number % (i as u64 + 3)).wrapping_mul(0x0101_0101_0101_0101);
                }
                key
            };
            let asked: Vec<FlowKey> = asked.iter().map(|number| made(*number)).collect();
            let mut first = None;
            for simd in Simd::available() {
                let mut cache = FlowCache::with_simd(simd);
                let mut last = std::collections::HashMap::new();
                for (at, number) in (1..).zip(&numbers) {
                    cache.insert(&form, &made(*number), &[at; KEPT_MAX]);
                    last.insert(made(*number).masked(&mask), at);
                }
                let mut indices = vec![CacheIndex::NONE; asked.len()];
                cache.lookup_burst(&form, &asked, &mut indices);
                for (key, index) in asked.iter().zip(&indices) {
                    let held = index.is_some().then(|| cache.value(&form, *index)[0]);
                    let right = last.get(&key.masked(&mask)).copied();
                    prop_assert!(held == right || held.is_none(), "{:?} {:?}", held, right);
                }
                let first = first.get_or_insert_with(|| indices.clone());
                prop_assert_eq!(&*first, &indices, "{}", simd.name());
            }
        }
    }
}
