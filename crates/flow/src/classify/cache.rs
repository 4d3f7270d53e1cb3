//! A cache from whole keys to whatever somebody knows of them: for pipelines of many tables, where one lookup in
//! place of many pays, and for tables of which one lookup costs much.
//!
//! It is of a fixed size, allocated once, and forgets in turn what falls together. It promises less than a
//! classifier and errs to one side only: what it finds was put there for a key that is equal in every bit that
//! counts, since the whole key is compared after the hash; what was put there may be gone.
//!
//! Which bits count, the [`CacheForm`] says: every bit that some rule looks at. Somebody who reads both (a worker)
//! owns a cache; the form belongs to the rules, and when it changes, the cache is to be cleared.

use core::fmt;

use super::columns::{Burst, COLUMNS, Columns, Projection};
use super::hash::{HashKeys, finish, term};
use super::heads::Heads;
use super::simd::prefetch;
use super::table::{LANES, candidates, lane, tag};
use super::{BURST, Simd};
use crate::key::{FlowKey, FlowMask};

/// Words that are kept for each key.
pub const CACHED: usize = 16;

/// Groups of [`LANES`] keys: 57,344 keys. With half as many, one of 80 among 10,000 shared its group with seven others; if
/// packets come in turn, such keys forget each other each time.
const GROUPS: usize = 8192;

/// In the word of tags, above those: the lane that is forgotten next.
const NEXT_SHIFT: u32 = 56;

/// One word of a key.
#[derive(Clone, Copy, Debug)]
struct Word {
    column: u8,
    mask: u64,
    keys: (u64, u64),
}

/// Which bits of a key count, and how they are hashed.
#[derive(Clone, Debug)]
pub struct CacheForm {
    projection: Projection,
    /// In the order of the projection.
    words: Vec<Word>,
    start: u64,
}

impl CacheForm {
    /// The form for rules that look at these bits. `seed` keys the hash, as in [`Adaptive`](super::Adaptive).
    pub fn new(seed: u64, mask: &FlowMask) -> CacheForm {
        let keys = HashKeys::new(seed);
        let mut projection = Projection::default();
        projection.extend(mask);
        let columns = Columns::of_mask(mask);
        let word = |column: usize| Word {
            column: column as u8,
            mask: columns.0[column],
            keys: keys.columns[column],
        };
        CacheForm {
            words: projection.columns().map(word).collect(),
            projection,
            start: keys.start,
        }
    }

    fn stride(&self) -> usize {
        self.words.len() + CACHED
    }

    /// The words of a key that count.
    fn words_of(&self, key: &FlowKey) -> [u64; COLUMNS] {
        let columns = Columns::of(key);
        let mut words = [0; COLUMNS];
        for (held, word) in words.iter_mut().zip(&self.words) {
            *held = columns.0[usize::from(word.column)] & word.mask;
        }
        words
    }

    fn hash(&self, words: &[u64; COLUMNS]) -> u64 {
        let terms = self.words.iter().zip(words);
        finish(terms.fold(self.start, |sum, (word, value)| {
            sum.wrapping_add(term(*value, word.keys))
        }))
    }
}

/// The place of something in a cache, until the next insertion.
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
    /// One word for each group.
    tags: Box<[u64]>,
    /// For each lane of each group the words of the key, and those that are kept for it. As long as the longest form
    /// needs; what the form in use does not is never touched, and so takes no memory.
    entries: Box<[u64]>,
}

impl FlowCache {
    /// How many keys there is room for.
    pub const LEN: usize = GROUPS * LANES;

    /// An empty cache.
    pub fn new() -> FlowCache {
        FlowCache::with_simd(Simd::detect())
    }

    /// The same, with chosen vector instructions.
    pub fn with_simd(simd: Simd) -> FlowCache {
        FlowCache {
            simd,
            tags: vec![0; GROUPS].into_boxed_slice(),
            entries: vec![0; FlowCache::LEN * (COLUMNS + CACHED)].into_boxed_slice(),
        }
    }

    /// Forgets everything. Needed whenever another form is used than before.
    pub fn clear(&mut self) {
        self.tags.fill(0);
    }

    /// What is kept at a place.
    #[inline(always)]
    pub fn value(&self, form: &CacheForm, place: Place) -> &[u64; CACHED] {
        let at = place.0 as usize * form.stride() + form.words.len();
        match self.entries.get(at..).and_then(<[u64]>::first_chunk) {
            Some(value) => value,
            None => &[0; CACHED],
        }
    }

    /// Keeps something for a key, perhaps in place of what was kept for another.
    pub fn insert(&mut self, form: &CacheForm, key: &FlowKey, value: &[u64; CACHED]) {
        let words = form.words_of(key);
        let hash = form.hash(&words);
        let (group, tag) = (group_of(hash), tag(hash));
        let key = &words[..form.words.len()];
        let (tags, stride) = (self.tags[group], form.stride());
        let at = |lane: usize| (group * LANES + lane) * stride;
        let mut same = candidates(tags, tag);
        while same != 0 && self.entries[at(lane(same))..][..key.len()] != *key {
            same &= same - 1;
        }
        let free = candidates(tags, 0);
        let lane = match (same, free) {
            (0, 0) => {
                let next = (tags >> NEXT_SHIFT) as usize % LANES;
                let following = (next as u64 + 1) % LANES as u64;
                self.tags[group] = tags & !(0xff << NEXT_SHIFT) | following << NEXT_SHIFT;
                next
            }
            (0, free) => lane(free),
            (same, _) => lane(same),
        };
        let tags = &mut self.tags[group];
        *tags = *tags & !(0xff << (8 * lane)) | tag << (8 * lane);
        let (held, kept) = self.entries[at(lane)..][..stride].split_at_mut(key.len());
        held.copy_from_slice(key);
        kept.copy_from_slice(value);
    }

    /// Looks up the keys `keys[0]`, `keys[1]`, …, at most [`BURST`] of them, and writes the place of each to `places`,
    /// which is as long.
    #[inline]
    pub fn lookup_burst(&self, form: &CacheForm, keys: &[FlowKey], places: &mut [Place]) {
        self.simd.lookup_cache(self, form, keys, places);
    }

    /// The same by the heads of packets. `packets` and `read` are as for
    /// [`Adaptive::lookup_heads`](super::Adaptive::lookup_heads).
    #[inline]
    pub fn lookup_heads<'p>(
        &self,
        form: &CacheForm,
        heads: &mut Heads,
        packets: impl Iterator<Item = (&'p [u8], usize)>,
        (beside, keys): (&FlowKey, &mut [FlowKey]),
        read: impl FnMut(usize, &mut FlowKey),
        places: &mut [Place],
    ) {
        heads.prepare(&form.projection, packets, keys, read);
        self.simd
            .lookup_cache_heads(self, form, heads, (beside, keys), places);
    }

    /// [`FlowCache::lookup_heads`], with the instructions that the caller is compiled for.
    #[inline(always)]
    pub(super) fn lookup_heads_inlined(
        &self,
        form: &CacheForm,
        heads: &Heads,
        (beside, keys): (&FlowKey, &[FlowKey]),
        places: &mut [Place],
    ) {
        match form.words.len() {
            0..=2 => self.lookup_head_columns::<2>(form, heads, (beside, keys), places),
            3..=4 => self.lookup_head_columns::<4>(form, heads, (beside, keys), places),
            5..=8 => self.lookup_head_columns::<8>(form, heads, (beside, keys), places),
            _ => self.lookup_head_columns::<COLUMNS>(form, heads, (beside, keys), places),
        }
    }

    #[inline(always)]
    fn lookup_head_columns<const N: usize>(
        &self,
        form: &CacheForm,
        heads: &Heads,
        (beside, keys): (&FlowKey, &[FlowKey]),
        places: &mut [Place],
    ) {
        let mut burst = [[0; BURST]; N];
        heads.project(&form.projection, beside, keys, &mut burst);
        self.search(form, &mut burst, places);
    }

    /// [`FlowCache::lookup_burst`], with the instructions that the caller is compiled for.
    #[inline(always)]
    pub(super) fn lookup_inlined(&self, form: &CacheForm, keys: &[FlowKey], places: &mut [Place]) {
        match form.words.len() {
            0..=2 => self.lookup_columns::<2>(form, keys, places),
            3..=4 => self.lookup_columns::<4>(form, keys, places),
            5..=8 => self.lookup_columns::<8>(form, keys, places),
            _ => self.lookup_columns::<COLUMNS>(form, keys, places),
        }
    }

    #[inline(always)]
    fn lookup_columns<const N: usize>(&self, form: &CacheForm, keys: &[FlowKey], places: &mut [Place]) {
        let len = keys.len().min(places.len()).min(BURST);
        let mut burst = [[0; BURST]; N];
        form.projection.extract(keys, &super::ALL[..len], &mut burst);
        self.search(form, &mut burst, &mut places[..len]);
    }

    #[inline(always)]
    fn search(&self, form: &CacheForm, burst: &mut Burst, places: &mut [Place]) {
        let len = places.len().min(BURST);
        let words = &form.words[..form.words.len().min(burst.len())];
        let mut hashes = [form.start; BURST];
        // Whole registers; what lies beyond the burst is never looked at.
        let padded = len.next_multiple_of(8);
        for (word, column) in words.iter().zip(&mut *burst) {
            for (hash, value) in hashes[..padded].iter_mut().zip(column) {
                *value &= word.mask;
                *hash = hash.wrapping_add(term(*value, word.keys));
            }
        }
        hashes[..padded].iter_mut().for_each(|hash| *hash = finish(*hash));
        let stride = form.stride();
        let mut lanes = [0; BURST];
        for (lanes, hash) in lanes[..len].iter_mut().zip(&hashes) {
            let group = group_of(*hash);
            *lanes = candidates(self.tags[group], tag(*hash));
            let at = (group * LANES + lane(*lanes) % LANES) * stride;
            // The key, and what is looked at of what is kept for it.
            for line in 0..(words.len() + CACHED / 2).div_ceil(8) {
                prefetch(&self.entries, at + line * 8);
            }
            prefetch(&self.entries, at + words.len() + CACHED / 2 - 1);
        }
        self.compare(words, burst, (&hashes, &lanes), stride, &mut places[..len]);
    }

    #[inline(always)]
    fn compare(
        &self,
        words: &[Word],
        burst: &Burst,
        (hashes, lanes): (&[u64; BURST], &[u64; BURST]),
        stride: usize,
        places: &mut [Place],
    ) {
        for (packet, place) in places.iter_mut().enumerate() {
            *place = Place::NONE;
            let (group, mut lanes) = (group_of(hashes[packet]), lanes[packet]);
            while lanes != 0 {
                let number = group * LANES + lane(lanes);
                let held = &self.entries[number * stride..][..stride];
                let mut difference = 0;
                for ((column, held), _) in burst.iter().zip(held).zip(words) {
                    difference |= column[packet] ^ held;
                }
                if difference == 0 {
                    *place = Place(number as u32);
                    break;
                }
                lanes &= lanes - 1;
            }
        }
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

#[inline(always)]
const fn group_of(hash: u64) -> usize {
    (hash >> 40) as usize % GROUPS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::field::Field;

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

    #[test]
    fn nearly_all_of_half_as_many_keys_as_there_is_room_for_are_kept() {
        let form = CacheForm::new(7, &five_tuple());
        let mut cache = FlowCache::new();
        let count = FlowCache::LEN as u64 / 2;
        for number in 0..count {
            cache.insert(&form, &key(number), &[number; CACHED]);
        }
        let found = (0..count).filter(|number| {
            let held = find(&cache, &form, &key(*number));
            assert!(held.is_none_or(|held| held == *number));
            held.is_some()
        });
        let found = found.count() as u64;
        assert!(found > count * 9 / 10, "{found} of {count}");
        assert_eq!(find(&cache, &form, &key(count)), None);
        cache.clear();
        assert_eq!(find(&cache, &form, &key(0)), None);
    }

    #[test]
    fn what_is_kept_for_a_key_is_replaced_and_bits_that_do_not_count_are_not_seen() {
        let form = CacheForm::new(7, &five_tuple());
        let mut cache = FlowCache::new();
        cache.insert(&form, &key(1), &[1; CACHED]);
        let mut other = key(1);
        other.put(Field::EthDst, 99);
        cache.insert(&form, &other, &[2; CACHED]);
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
            let form = CacheForm::new(3, &mask);
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
                    cache.insert(&form, &made(*number), &[at; CACHED]);
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
