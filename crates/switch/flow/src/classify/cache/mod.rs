//! A cache from whole keys to whatever somebody knows of them: for pipelines of many tables, where one lookup in
//! place of many pays, and for tables of which one lookup costs much.
//!
//! Its room is allocated once, and it forgets in turn what falls together. It promises less than a
//! classifier and errs to one side only: what it finds was put there for a key that is equal in every bit that
//! counts, since the whole key is compared after the hash; what was put there may be gone.
//!
//! A key has two groups, and is in the second if the first was full when it came. A lookup goes on to the second only where
//! the first says that some key had to.
//!
//! It begins small, so that few flows touch little memory, and doubles while keys displace each other. What it holds
//! moves to its new place some groups at a time, and is not found until it is there.
//!
//! Which bits count, the [`CacheForm`] says: every bit that some rule looks at. Somebody who reads both (a worker)
//! owns a cache; the form belongs to the rules, and when it changes, the cache is to be cleared.

mod form;
mod search;

use core::fmt;
use core::ops::Range;

pub use self::form::CacheForm;
use super::Simd;
use super::table::{LANES, candidates, lane, tag};
use crate::key::FlowKey;

/// Words that are kept for each key, at most.
pub const KEPT_MAX: usize = 16;

/// Words of a cache line.
const LINE: usize = 8;

/// Of the words that are kept, so many are asked for with the key.
const NEAR: usize = 8;

/// Groups of [`LANES`] keys at first: 57,344 keys. With half as many, one of 80 among 10,000 shared its group with seven
/// others; if packets come in turn, such keys forget each other each time.
const GROUPS_MIN: usize = 8192;

/// Groups at last, if key and what is kept for it fill one cache line; half as many, if they fill two.
const GROUPS_MAX: usize = 65536;

/// Words of all entries: 29 MB of address space.
const ROOM: usize = GROUPS_MAX * LANES * LINE;

/// It doubles when the keys that found their first group full are a thirty-second of its groups.
const CROWDED: usize = 32;

/// Groups that are moved in one go.
const MOVED: usize = 8;

/// In the word of tags, above those: the lane that is forgotten next.
const NEXT_SHIFT: u32 = 56;
const NEXT: u64 = 7 << NEXT_SHIFT;

/// In the word of tags: some key that belongs to the group is in its other one.
const OVERFLOWS: u64 = 1 << 63;

/// The place of something in a cache, until the next insertion or move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u32);

impl Place {
    /// Nowhere.
    pub const NONE: Place = Place(u32::MAX);

    /// Whether there is something.
    #[inline(always)]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// See the beginning of this file.
pub struct FlowCache {
    simd: Simd,
    /// A power of two.
    groups: usize,
    /// One word for each group; zero beyond those.
    tags: Box<[u64]>,
    /// For each lane of each group the words of the key, and those that are kept for it. What was never used takes no
    /// memory.
    entries: Box<[u64]>,
    /// Where the first of them is: at the beginning of a cache line.
    first: usize,
    /// Keys that found their first group full since it grew.
    crowded: usize,
    /// Groups of which what belongs to others now was not moved yet.
    unmoved: Range<usize>,
}

impl FlowCache {
    /// An empty cache.
    pub fn new() -> FlowCache {
        FlowCache::with_simd(Simd::detect())
    }

    /// The same, with chosen vector instructions.
    pub fn with_simd(simd: Simd) -> FlowCache {
        // Of the last one, too, as many words are read as of others.
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

    /// Forgets everything, and is small again. Needed whenever another form is used than before.
    pub fn clear(&mut self) {
        self.tags[..self.groups].fill(0);
        (self.groups, self.crowded, self.unmoved) = (GROUPS_MIN, 0, 0..0);
    }

    /// What is kept at a place: so many words as the form says, and then some that mean nothing.
    #[inline(always)]
    pub fn value(&self, form: &CacheForm, place: Place) -> &[u64; KEPT_MAX] {
        let at = self.at(form, place.0 as usize) + form.words.len();
        match self.entries.get(at..).and_then(<[u64]>::first_chunk) {
            Some(value) => value,
            None => &[0; KEPT_MAX],
        }
    }

    /// Keeps something for a key, perhaps in place of what was kept for another. There is room for
    /// [`CacheForm::kept`] words; what follows is not kept.
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

    /// Whether something can be kept for a key without forgetting another.
    pub fn has_room(&self, form: &CacheForm, key: &FlowKey) -> bool {
        let words = form.words_of(key);
        let hash = form.hash(&words);
        let group = self.group(hash);
        let is_free = |group: usize| candidates(self.tags[group], 0) != 0;
        let same = || self.find(form, hash, &words[..form.words.len()]);
        is_free(group) || is_free(self.other(group, hash)) || same().is_some()
    }

    /// Whether it has grown, and something may still be where it is not looked for.
    #[inline(always)]
    pub fn is_moving(&self) -> bool {
        !self.unmoved.is_empty()
    }

    /// Moves what is in some of the groups that were not moved yet.
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
            // Whoever was not found was kept anew, perhaps.
            let is_kept = self.find(form, hash, key).is_some_and(|found| found != number);
            self.set_tag(number, 0);
            if !is_kept && let Some(free) = self.take_free(hash) {
                let to = self.at(form, free);
                self.entries.copy_within(from..from + form.stride, to);
                self.set_tag(free, tag(hash));
            }
        }
    }

    /// Where there is something for a key.
    fn find(&self, form: &CacheForm, hash: u64, key: &[u64]) -> Option<usize> {
        let group = self.group(hash);
        let is_same = |number: &usize| self.entries[self.at(form, *number)..][..key.len()] == *key;
        let found = self.numbers(group, hash).find(is_same);
        if found.is_some() || self.tags[group] & OVERFLOWS == 0 {
            return found;
        }
        self.numbers(self.other(group, hash), hash).find(is_same)
    }

    /// The entries of a group that have the tag of a hash.
    #[inline(always)]
    fn numbers(&self, group: usize, hash: u64) -> impl Iterator<Item = usize> {
        let mut lanes = candidates(self.tags[group], tag(hash));
        core::iter::from_fn(move || {
            let lane = (lanes != 0).then(|| lane(lanes))?;
            lanes &= lanes - 1;
            Some(group * LANES + lane)
        })
    }

    /// A free place in one of the two groups of a key, which from now on is looked for there.
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

    /// The second group of a key.
    #[inline(always)]
    fn other(&self, group: usize, hash: u64) -> usize {
        /// Odd, so that no tag leads back to the first group, and large, so that near tags lead far apart.
        const STEP: usize = 0x5bd1;
        (group ^ (tag(hash) as usize * STEP)) & (self.groups - 1)
    }

    #[inline(always)]
    fn group(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.groups - 1)
    }

    /// Where an entry begins.
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
        let mut place = [Place::NONE];
        cache.lookup_burst(form, core::slice::from_ref(key), &mut place);
        place[0].is_some().then(|| cache.value(form, place[0])[0])
    }

    /// How many keys there is room for at last.
    fn room(form: &CacheForm) -> u64 {
        (form.groups_max() * LANES) as u64
    }

    /// Keeps keys of these numbers, with the number.
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
        // One line, two lines, three.
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
        // It grew long before it was full, and half of the keys have another first group now.
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
        // One whose groups were full at its turn is forgotten.
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
                let mut places = vec![Place::NONE; asked.len()];
                cache.lookup_burst(&form, &asked, &mut places);
                for (key, place) in asked.iter().zip(&places) {
                    let held = place.is_some().then(|| cache.value(&form, *place)[0]);
                    let right = last.get(&key.masked(&mask)).copied();
                    prop_assert!(held == right || held.is_none(), "{:?} {:?}", held, right);
                }
                let first = first.get_or_insert_with(|| places.clone());
                prop_assert_eq!(&*first, &places, "{}", simd.name());
            }
        }
    }
}
