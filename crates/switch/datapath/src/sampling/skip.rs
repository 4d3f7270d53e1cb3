//! The skip counter: the number of packets that pass before the next one is sampled.
//!
//! Skips are geometrically distributed, so that each packet is sampled with the probability 1/N independently of all
//! others, and the number of samples of n packets is binomially distributed. sFlow allows any distribution with the mean N
//! ("sFlow Version 5", section 3.1); with this one the error of an estimate from c samples is known: at most 196 % × √(1/c)
//! in 95 % of cases (Phaal and Panchen, "Packet Sampling Basics", sFlow.org).

use millrace_types::split_mix;

/// 2^-53: the distance between neighbouring random numbers below one.
const STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// The skip counter of one port in one worker.
#[derive(Clone, Debug)]
pub(crate) struct SkipCounter {
    /// The number of packets that pass before the next sample.
    skip: u64,
    /// The state of the random numbers.
    random: u64,
    /// 1 / ln(1 - 1/N); 0 for N = 1.
    scale: f64,
}

impl SkipCounter {
    /// Returns a counter that samples one of `rate` packets on average.
    pub(crate) fn new(rate: u32, seed: u64) -> SkipCounter {
        let mut counter = SkipCounter {
            skip: 0,
            random: seed,
            scale: (-1.0 / f64::from(rate.max(1))).ln_1p().recip(),
        };
        counter.skip = counter.draw();
        counter
    }

    /// Counts `len` packets. Returns the index of the first sampled packet, if any; packets after it are then
    /// not counted.
    #[inline]
    pub(crate) fn advance(&mut self, len: usize) -> Option<usize> {
        match self.skip.checked_sub(len as u64) {
            Some(left) => {
                self.skip = left;
                None
            }
            None => {
                let index = self.skip as usize;
                self.skip = self.draw();
                Some(index)
            }
        }
    }

    /// Returns the index of the first sampled packet among the next `len` packets, if any, without counting
    /// them.
    pub(crate) fn peek(&self, len: usize) -> Option<usize> {
        (self.skip < len as u64).then_some(self.skip as usize)
    }

    /// Returns a geometrically distributed number, by inversion: the logarithm of a uniformly distributed number in (0, 1],
    /// divided by the logarithm of the probability that a packet is not sampled.
    fn draw(&mut self) -> u64 {
        let uniform = ((split_mix::next(&mut self.random) >> 11) + 1) as f64 * STEP;
        // The product is not negative: both factors are at most zero. For N = 1, ln(0) is infinite and `scale` is -0.
        (uniform.ln() * self.scale) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts `packets` packets in bursts of 32, and returns the number of samples.
    fn samples(counter: &mut SkipCounter, packets: usize) -> u64 {
        let mut found = 0;
        for _ in 0..packets / 32 {
            let mut left = 32;
            while let Some(index) = counter.advance(left) {
                assert!(index < left);
                found += 1;
                left -= index + 1;
            }
        }
        found
    }

    #[test]
    fn every_packet_is_sampled_at_a_rate_of_one() {
        assert_eq!(samples(&mut SkipCounter::new(1, 9), 3_200), 3_200);
    }

    #[test]
    fn the_true_number_lies_in_the_interval_of_confidence_in_93_of_100_runs() {
        for rate in [2_u32, 100, 1000] {
            let packets = rate as usize * 3_200;
            let mut inside = 0;
            for seed in 0..100 {
                let found = samples(&mut SkipCounter::new(rate, seed), packets) as f64;
                let estimate = found * f64::from(rate);
                let error = 1.96 * (1.0 / found).sqrt();
                inside += u32::from((estimate / packets as f64 - 1.0).abs() <= error);
            }
            assert!(inside >= 93, "1 of {rate}: {inside} of 100");
        }
    }

    #[test]
    fn ten_million_packets_are_estimated_within_1_96_percent_in_19_of_20_runs() {
        const PACKETS: usize = 10_000_000;
        let is_inside = |seed: &u64| {
            let estimate = samples(&mut SkipCounter::new(1_000, *seed), PACKETS) * 1_000;
            (estimate as f64 / PACKETS as f64 - 1.0).abs() <= 0.0196
        };
        // 19 of 20 are expected, so that 200 runs differ by chance.
        let inside = (0..200).filter(is_inside).count();
        assert!(inside >= 186, "{inside} of 200");
    }

    #[test]
    fn the_variance_of_skips_is_that_of_independent_choices() {
        let (rate, count) = (50.0, 200_000);
        let mut counter = SkipCounter::new(50, 3);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            let skip = counter.draw() as f64;
            sum += skip;
            squares += skip * skip;
        }
        let mean = sum / f64::from(count);
        let variance = squares / f64::from(count) - mean * mean;
        assert!((mean - (rate - 1.0)).abs() < 0.5, "{mean}");
        let expected = rate * (rate - 1.0);
        assert!((variance / expected - 1.0).abs() < 0.03, "{variance}");
    }
}
