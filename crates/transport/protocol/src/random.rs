//! A small generator of random numbers with a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
//!
//! It gives the random times of probes and the packet numbers that are skipped. Keys come from another
//! generator.

/// A sequence of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        millrace_types::split_mix::next(&mut self.0)
    }

    /// Returns a number from 0 to below 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `end`, which is not zero.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation for the seed 1234567.
    #[test]
    fn it_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
