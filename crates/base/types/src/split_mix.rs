//! SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): pseudorandom numbers
//! from a seed of one word. Not suited for secrets.

/// 2^64 divided by the golden ratio, odd: the step of the state.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a bijective mix of 64 bits: Stafford's variant 13 of the finalizer of MurmurHash3. The n-th number of the sequence
/// of a seed is `mix(seed + n × GAMMA)`.
#[inline]
pub const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the next number of the sequence. The first state is the seed.
#[inline]
pub const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GAMMA);
    mix(*state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_implementation() {
        let mut state = 0;
        assert_eq!(next(&mut state), 0xe220_a839_7b1d_cdaf);
        assert_eq!(next(&mut state), 0x6e78_9e6a_a1b9_65f4);
    }
}
