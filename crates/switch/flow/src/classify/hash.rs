//! The keyed hash.
//!
//! A sender must not be able to prepare many packets that fall into one bucket. The hash is therefore drawn from a
//! family by a seed that only the switch knows: *pair-multiply-shift* (Dietzfelbinger et al., "A Reliable Randomized
//! Algorithm for the Closest-Pair Problem", 1997; Thorup, "High Speed Hashing for Integers and Strings", 2015). For
//! words `x` with halves `hi` and `lo`,
//! ```text
//! h(x) = (c + sum over words i of (a_i + hi(x_i)) * (b_i + lo(x_i)))  mod 2^64
//! ```
//! with random 64-bit `a`, `b` and `c`. Its high 32 bits are 2-independent: any two different keys collide in `k` of
//! them with probability `2^-k`, however the keys were chosen, if the choice does not depend on the seed. The hash
//! takes one multiplication for each word, the multiplications do not depend on each other, and eight packets fit one
//! AVX-512 register.
//!
//! A low probability of collision does not imply an even distribution: for keys in arithmetic progression, which
//! addresses often are, the sum is nearly linear, and one seed in eight put half of the keys into a few groups.
//! [`finish`] therefore folds the sum and multiplies it once more. This step is a bijection, so it adds no collisions.

use super::columns::COLUMNS;
use millrace_types::split_mix;

/// The random numbers of one classifier.
#[derive(Clone, Debug)]
pub(super) struct HashKeys {
    /// The initial value of every sum.
    pub(super) start: u64,
    /// For each column, the numbers that are added to the high half and to the low half of the word.
    pub(super) columns: [(u64, u64); COLUMNS],
}

impl HashKeys {
    /// Returns the numbers that follow from a seed.
    pub(super) fn new(seed: u64) -> HashKeys {
        let mut state = seed;
        let mut next = || split_mix::next(&mut state);
        HashKeys {
            start: next(),
            columns: core::array::from_fn(|_| (next(), next())),
        }
    }
}

/// Returns the term of one word in the sum.
#[inline(always)]
pub(super) fn term(word: u64, (a, b): (u64, u64)) -> u64 {
    a.wrapping_add(word >> 32)
        .wrapping_mul(b.wrapping_add(word & 0xffff_ffff))
}

/// Returns the hash from the sum.
#[inline(always)]
pub(super) const fn finish(sum: u64) -> u64 {
    (sum ^ sum >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25)
}
