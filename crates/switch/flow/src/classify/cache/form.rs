//! The layout of keys and entries in a cache.

use super::super::columns::{COLUMNS, Columns, Projection};
use super::super::hash::{HashKeys, finish, term};
use super::super::lanes::LANES;
use super::{KEPT_MAX, LINE, ROOM};
use crate::key::{FlowKey, FlowMask};

/// One word of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word {
    column: u8,
    pub(super) mask: u64,
    pub(super) keys: (u64, u64),
}

/// The bits of a key that a cache compares, their hash, and the number of words for each key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheForm {
    pub(super) projection: Projection,
    /// The compared words, in the order of the projection.
    pub(super) words: Vec<Word>,
    /// The initial value of every hash.
    pub(super) start: u64,
    /// Number of words of an entry, in whole cache lines: the key, and the cached words.
    pub(super) stride: usize,
}

impl CacheForm {
    /// Returns the form for rules that compare these bits. `seed` keys the hash, as in
    /// [`Adaptive`](super::super::Adaptive). The cache keeps at least `kept` words for each key, but never more than
    /// [`KEPT_MAX`].
    pub fn new(seed: u64, mask: &FlowMask, kept: usize) -> CacheForm {
        let keys = HashKeys::new(seed);
        let mut projection = Projection::default();
        projection.extend(mask);
        let columns = Columns::of_mask(mask);
        let word = |column: usize| Word {
            column: column as u8,
            mask: columns.0[column],
            keys: keys.columns[column],
        };
        let words: Vec<Word> = projection.columns().map(word).collect();
        CacheForm {
            stride: (words.len() + kept.min(KEPT_MAX)).next_multiple_of(LINE),
            words,
            projection,
            start: keys.start,
        }
    }

    /// Returns true if a compared bit is in a field before the IP header.
    #[inline]
    pub fn matches_layer2(&self) -> bool {
        self.projection.matches_layer2()
    }

    /// Returns the number of cached words for each key, which fills whole cache lines.
    #[inline(always)]
    pub fn kept(&self) -> usize {
        (self.stride - self.words.len()).min(KEPT_MAX)
    }

    /// Returns the number of cache lines of an entry.
    pub fn lines(&self) -> usize {
        self.stride / LINE
    }

    /// Returns the maximum number of groups.
    pub(super) fn groups_max(&self) -> usize {
        let groups = ROOM / (LANES * self.stride.max(LINE));
        1 << groups.ilog2()
    }

    /// Returns the compared bits.
    pub fn mask(&self) -> FlowMask {
        let mut mask = FlowMask::default();
        for word in &self.words {
            mask.0.words_mut()[usize::from(word.column)] |= word.mask;
        }
        mask
    }

    /// Returns true if two keys are equal in every compared bit.
    #[inline]
    pub fn has_equal(&self, one: &FlowKey, two: &FlowKey) -> bool {
        let (one, two) = (one.words(), two.words());
        let difference = self.words.iter().fold(0, |difference, word| {
            let column = usize::from(word.column);
            difference | (one[column] ^ two[column]) & word.mask
        });
        difference == 0
    }

    /// Returns the compared words of a key.
    pub(super) fn words_of(&self, key: &FlowKey) -> [u64; COLUMNS] {
        let columns = Columns::of(key);
        let mut words = [0; COLUMNS];
        for (held, word) in words.iter_mut().zip(&self.words) {
            *held = columns.0[usize::from(word.column)] & word.mask;
        }
        words
    }

    pub(super) fn hash(&self, words: &[u64]) -> u64 {
        let terms = self.words.iter().zip(words);
        finish(terms.fold(self.start, |sum, (word, value)| {
            sum.wrapping_add(term(*value, word.keys))
        }))
    }
}
