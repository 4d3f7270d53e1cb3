//! The keyed hash of the engine's tables. Senders who do not know the seed cannot choose keys that collide.

use core::hash::BuildHasher;

use siphasher::sip::SipHasher13;

/// Builds hashers with the seed of the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(pub(crate) [u64; 2]);

impl BuildHasher for Seed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

impl Seed {
    /// Returns SipHash-1-3 of two words, as a hasher with this seed computes it. This function needs no
    /// buffer for words of other sizes.
    #[inline]
    pub(crate) fn of_two_words(self, words: [u64; 2]) -> u64 {
        let [k0, k1] = self.0;
        // The constants, rounds and finalisation of "SipHash: a fast short-input PRF" (Aumasson and Bernstein, 2012).
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        // The last word has the size in bytes, 16, in its highest byte.
        for word in [words[0], words[1], 16 << 56] {
            v[3] ^= word;
            round(&mut v);
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

/// Applies a round of SipHash.
#[inline(always)]
fn round([v0, v1, v2, v3]: &mut [u64; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v2 = v2.wrapping_add(*v3);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v1);
    *v0 = v0.wrapping_add(*v3);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use core::hash::Hasher;

    use super::*;

    #[test]
    fn two_words_have_the_hash_that_the_hasher_computes() {
        for n in 0..1000u64 {
            let mix = |m: u64| (n * 4 + m).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let seed = Seed([mix(0), mix(1)]);
            let words = [mix(2), mix(3)];
            let mut hasher = seed.build_hasher();
            words.iter().for_each(|word| hasher.write_u64(*word));
            assert_eq!(seed.of_two_words(words), hasher.finish());
        }
    }
}
