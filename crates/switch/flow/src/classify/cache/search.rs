//! Lookup of a burst in a cache.

use super::super::columns::{AlignedColumns, Burst, COLUMNS};
use super::super::hash::{finish, term};
use super::super::header_columns::HeaderColumns;
use super::super::lanes::{LANES, candidates, lane, tag};
use super::super::simd::prefetch;
use super::super::{ALL, BURST};
use super::{CacheForm, CacheIndex, FlowCache, LINE, NEAR, OVERFLOWS};
use crate::key::FlowKey;

impl FlowCache {
    /// Looks up `keys`, at most [`BURST`], and writes the index of each entry to `indices`, which is as long
    /// as `keys`.
    #[inline]
    pub fn lookup_burst(&self, form: &CacheForm, keys: &[FlowKey], indices: &mut [CacheIndex]) {
        self.simd.lookup_cache(self, form, keys, indices);
    }

    /// Looks up a burst by its header columns, which were read as [`CacheForm::matches_layer2`] requires.
    /// `pipeline_fields` has the fields that are not in the packets' bytes, and the keys of
    /// [`HeaderColumns::others`].
    #[inline]
    pub fn lookup_headers(
        &self,
        form: &CacheForm,
        headers: &HeaderColumns,
        pipeline_fields: (&FlowKey, &[FlowKey]),
        indices: &mut [CacheIndex],
    ) {
        self.simd
            .lookup_cache_headers(self, form, headers, pipeline_fields, indices);
    }

    /// Same as [`FlowCache::lookup_headers`], with the vector instructions of the caller's compilation.
    #[inline(always)]
    pub(in super::super) fn lookup_headers_inlined(
        &self,
        form: &CacheForm,
        headers: &HeaderColumns,
        pipeline_fields: (&FlowKey, &[FlowKey]),
        indices: &mut [CacheIndex],
    ) {
        match form.words.len() {
            0..=2 => self.lookup_header_columns::<2>(form, headers, pipeline_fields, indices),
            3..=4 => self.lookup_header_columns::<4>(form, headers, pipeline_fields, indices),
            5..=8 => self.lookup_header_columns::<8>(form, headers, pipeline_fields, indices),
            _ => self.lookup_header_columns::<COLUMNS>(form, headers, pipeline_fields, indices),
        }
    }

    #[inline(always)]
    fn lookup_header_columns<const N: usize>(
        &self,
        form: &CacheForm,
        headers: &HeaderColumns,
        (pipeline_fields, keys): (&FlowKey, &[FlowKey]),
        indices: &mut [CacheIndex],
    ) {
        let mut burst = AlignedColumns::<N>::new();
        headers.project(&form.projection, pipeline_fields, keys, &mut burst.0);
        self.search(form, &mut burst.0, indices);
    }

    /// Same as [`FlowCache::lookup_burst`], with the vector instructions of the caller's compilation.
    #[inline(always)]
    pub(in super::super) fn lookup_inlined(
        &self,
        form: &CacheForm,
        keys: &[FlowKey],
        indices: &mut [CacheIndex],
    ) {
        match form.words.len() {
            0..=2 => self.lookup_columns::<2>(form, keys, indices),
            3..=4 => self.lookup_columns::<4>(form, keys, indices),
            5..=8 => self.lookup_columns::<8>(form, keys, indices),
            _ => self.lookup_columns::<COLUMNS>(form, keys, indices),
        }
    }

    #[inline(always)]
    fn lookup_columns<const N: usize>(&self, form: &CacheForm, keys: &[FlowKey], indices: &mut [CacheIndex]) {
        let len = keys.len().min(indices.len()).min(BURST);
        let mut burst = AlignedColumns::<N>::new();
        form.projection.extract(keys, &ALL[..len], &mut burst.0);
        self.search(form, &mut burst.0, &mut indices[..len]);
    }

    #[inline(always)]
    fn search(&self, form: &CacheForm, burst: &mut Burst, indices: &mut [CacheIndex]) {
        let len = indices.len().min(BURST);
        let words = &form.words[..form.words.len().min(burst.len())];
        let mut temporary = AlignedColumns::<2>::new();
        let [hashes, lanes] = &mut temporary.0;
        hashes.fill(form.start);
        // The loops process whole registers; results beyond the burst are ignored.
        let padded = len.next_multiple_of(8);
        for (word, column) in words.iter().zip(&mut *burst) {
            for (hash, value) in hashes[..padded].iter_mut().zip(column) {
                *value &= word.mask;
                *hash = hash.wrapping_add(term(*value, word.keys));
            }
        }
        hashes[..padded].iter_mut().for_each(|hash| *hash = finish(*hash));
        let lines = (words.len() + NEAR).min(form.stride).div_ceil(LINE);
        for (lanes, hash) in lanes[..len].iter_mut().zip(&*hashes) {
            let group = self.group(*hash);
            *lanes = candidates(self.tags[group], tag(*hash));
            let at = self.at(form, group * LANES + lane(*lanes) % LANES);
            for line in 0..lines {
                prefetch(&self.entries, at + line * LINE);
            }
        }
        self.compare(form, burst, (hashes, lanes), &mut indices[..len]);
    }

    #[inline(always)]
    fn compare(
        &self,
        form: &CacheForm,
        burst: &Burst,
        (hashes, lanes): (&[u64; BURST], &[u64; BURST]),
        indices: &mut [CacheIndex],
    ) {
        // Returns the entry among these lanes of a group that has the key of a packet.
        let same = |packet: usize, group: usize, mut lanes: u64| {
            while lanes != 0 {
                let number = group * LANES + lane(lanes);
                let held = &self.entries[self.at(form, number)..][..form.stride];
                let mut difference = 0;
                for ((column, held), _) in burst.iter().zip(held).zip(&form.words) {
                    difference |= column[packet] ^ held;
                }
                if difference == 0 {
                    return CacheIndex(number as u32);
                }
                lanes &= lanes - 1;
            }
            CacheIndex::NONE
        };
        for (packet, index) in indices.iter_mut().enumerate() {
            let hash = hashes[packet];
            let group = self.group(hash);
            *index = same(packet, group, lanes[packet]);
            if !index.is_some() && self.tags[group] & OVERFLOWS != 0 {
                let other = self.other(group, hash);
                *index = same(packet, other, candidates(self.tags[other], tag(hash)));
            }
        }
    }
}
