//! The keyed hash.
//!
//! Whoever sends packets must not be able to prepare many that fall into one bucket. So the hash is drawn
//! from a family by a seed that only the switch knows: *pair-multiply-shift* (Dietzfelbinger et al. 1997;
//! Thorup, "High speed hashing for integers and strings", 2015). For words `x` with halves `hi` and `lo`,
//! ```text
//! h(x) = (c + sum over words i of (a_i + hi(x_i)) * (b_i + lo(x_i)))  mod 2^64
//! ```
//! with random 64-bit `a`, `b` and `c`. Its high 32 bits are 2-independent: any two different keys collide
//! in `k` of them with probability `2^-k`, whoever chose the keys, so long as the choice does not depend on
//! the seed. It takes one multiplication a word, has no chain of dependent ones, and eight packets fit one
//! AVX-512 register.
//!
//! Few collisions of pairs do not make an even spread: for keys in arithmetic progression, as addresses often are,
//! the sum is nearly linear, and one seed in eight crowded half of them into a few groups. So [`finish`] folds the
//! sum and multiplies it once more, which loses nothing: it is a bijection.

use super::columns::COLUMNS;

/// The random numbers of one classifier.
#[derive(Clone, Debug)]
pub(super) struct HashKeys {
    /// Where every sum starts.
    pub(super) start: u64,
    /// For each column, what is added to the high half and to the low half.
    pub(super) columns: [(u64, u64); COLUMNS],
}

impl HashKeys {
    /// Expands a seed.
    pub(super) fn new(seed: u64) -> HashKeys {
        let mut state = seed;
        let mut next = || split_mix(&mut state);
        HashKeys {
            start: next(),
            columns: core::array::from_fn(|_| (next(), next())),
        }
    }
}

/// One word's part of the sum.
#[inline(always)]
pub(super) fn term(word: u64, (a, b): (u64, u64)) -> u64 {
    a.wrapping_add(word >> 32)
        .wrapping_mul(b.wrapping_add(word & 0xffff_ffff))
}

/// The hash from the sum.
#[inline(always)]
pub(super) const fn finish(sum: u64) -> u64 {
    (sum ^ sum >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25)
}

/// SplitMix64 (Steele, Lea and Flood 2014): the next number of a sequence.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
