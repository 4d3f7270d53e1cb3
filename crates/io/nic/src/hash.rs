//! The keys of both hashes, and the hash of the exact table.
//!
//! # The flow hash
//! [`millrace_wire::flow_hash::FlowHash`] of the window, bit for bit. `mix(a, b)` is the exclusive or of both halves of the
//! 128-bit product a × b. With the six keys k0 to k5:
//! ```text
//!   end(address48, port16) = mix((address48 << 16 | port16) ^ k0, k1)
//!   v6(address128)         = mix(bits 127..64 ^ k2, bits 63..0 ^ k3) >> 16
//!   join(network, number)  = rotate_left(network, 21) ^ number
//!   hash                   = mix(ends ^ (kind * k3 mod 2^64) ^ k4, network ^ k5)
//! ```
//! `ends` is the sum modulo 2^64 of both ends. The bucket is bits 63 to 54 of the hash, and a completion has bits 63 to 32.
//!
//! # The hash of the exact table
//! The exclusive or over i = 0 to 3 of `mix(w[2i] ^ t[2i], w[2i+1] ^ t[2i+1])`, with the words w of the masked key and the
//! eight keys t. The row of way j is bits 16j to 16j + n − 1, where a way has 2^n rows.

use millrace_types::split_mix;

use crate::WAYS;
use crate::key::{Key, WORDS};

/// Number of keys of the flow hash.
pub const FLOW_KEYS: usize = millrace_wire::flow_hash::KEYS;

/// The keys of both hashes.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKeys {
    /// The keys k0 to k5 of the flow hash.
    pub flow: [u64; FLOW_KEYS],
    /// The keys t0 to t7 of the exact table.
    pub table: [u64; WORDS],
}

/// The keys are secret, so a debug text does not contain them.
impl core::fmt::Debug for HashKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HashKeys").finish_non_exhaustive()
    }
}

impl HashKeys {
    /// Returns the keys that are derived from a seed. Those of the flow hash are the keys of `FlowHash::new(seed)`.
    #[must_use]
    pub fn new(seed: u64) -> HashKeys {
        let mut state = seed;
        HashKeys {
            flow: core::array::from_fn(|_| split_mix::next(&mut state)),
            table: core::array::from_fn(|_| split_mix::next(&mut state)),
        }
    }

    /// Returns the hash of the exact table for a masked key.
    #[must_use]
    pub fn table(&self, key: &Key) -> u64 {
        (0..WORDS / 2).fold(0, |hash, at| {
            let word = |at: usize| key.0[at] ^ self.table[at];
            hash ^ mix(word(2 * at), word(2 * at + 1))
        })
    }
}

/// Returns the row of each way for a hash of the exact table; a way has 2^`row_bits` rows, at most 2^16.
#[must_use]
pub fn rows(hash: u64, row_bits: u32) -> [usize; WAYS] {
    core::array::from_fn(|way| (hash >> (16 * way)) as usize & ((1 << row_bits.min(16)) - 1))
}

/// Returns the exclusive or of both halves of the product.
#[must_use]
#[inline]
pub fn mix(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    product as u64 ^ (product >> 64) as u64
}
