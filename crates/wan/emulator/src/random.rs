//! Random numbers by counter: the n-th frame's draw in a stage is a function of (seed, stage, n).
//!
//! So the draws of a stage depend neither on which other stages are on, nor on how many numbers they draw. A
//! frame that does not reach a stage does not change the draws for later frames. The function is the output
//! function of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
//! 2014), which is a counter-based generator already: its n-th output is `mix(key + n × GAMMA)`.

use millrace_types::split_mix::{GAMMA, mix};

use crate::config::DirectionId;

/// The number that determines all draws of an emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seed(u64);

impl Seed {
    /// Returns the seed of this number.
    pub const fn new(number: u64) -> Seed {
        Seed(number)
    }

    /// Returns the seed of a direction.
    #[must_use]
    pub const fn direction(self, toward: DirectionId) -> Seed {
        self.derive(match toward {
            DirectionId::Forward => 0x0f0f,
            DirectionId::Backward => 0xb0b0,
        })
    }

    /// Returns the seed of a path. Class 0 is the default path.
    #[must_use]
    pub const fn class(self, class: usize) -> Seed {
        self.derive(0xc1a5_0000 + class as u64)
    }

    /// Returns an independent seed for each `purpose`.
    pub(crate) const fn derive(self, purpose: u64) -> Seed {
        Seed(mix(mix(self.0) ^ purpose))
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// The stages that draw numbers. Each has a stream of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Red = 1,
    Background,
    Bernoulli,
    GilbertElliott,
    FourState,
    BitErrors,
    Outage,
    Delay,
    Reorder,
    Duplicate,
    Corrupt,
    CorruptBits,
}

/// The random numbers of one stage of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    key: u64,
}

impl Stream {
    pub(crate) const fn new(seed: Seed, stage: Stage) -> Stream {
        Stream {
            key: seed.derive(0x57a6_0000 + stage as u64).number(),
        }
    }

    /// Returns the stream of one user of the stage, such as a frame that needs several numbers.
    pub(crate) const fn substream(self, index: u64) -> Stream {
        Stream {
            key: self.bits(index),
        }
    }

    /// Returns the number at `index`: 64 random bits.
    #[inline]
    pub(crate) const fn bits(self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_mul(GAMMA)))
    }

    /// Returns the number at `index` as a fraction strictly between 0 and 1, in steps of 2^-53.
    #[inline]
    pub(crate) fn fraction(self, index: u64) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        // Without the limit, the largest fraction would be rounded to 1.
        (((self.bits(index) >> 11) as f64 + 0.5) * STEP).min(1.0 - STEP)
    }

    /// Returns a whole number below `bound`, of almost equal probabilities (Lemire 2019, without rejection: the
    /// difference is below `bound` × 2^-64).
    #[inline]
    pub(crate) fn below(self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.bits(index)) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_directions_and_classes_draw_different_numbers() {
        let seed = Seed::new(7);
        let streams = [
            Stream::new(seed, Stage::Delay),
            Stream::new(seed, Stage::Reorder),
            Stream::new(seed.class(1), Stage::Delay),
            Stream::new(seed.direction(DirectionId::Backward), Stage::Delay),
            Stream::new(Seed::new(8), Stage::Delay),
        ];
        let first: std::collections::BTreeSet<_> = streams.iter().map(|stream| stream.bits(0)).collect();
        assert_eq!(first.len(), streams.len());
    }

    #[test]
    fn the_first_numbers_are_those_of_splitmix64() {
        // The expected values are the outputs of the published reference implementation from the state 0. The
        // first output is mix(GAMMA).
        let stream = Stream { key: 0 };
        assert_eq!(stream.bits(1), 0xe220_a839_7b1d_cdaf);
        assert_eq!(stream.bits(2), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn fractions_are_never_0_or_1() {
        let stream = Stream { key: 3 };
        let fractions = (0..100_000).map(|index| stream.fraction(index));
        assert!(fractions.clone().all(|fraction| fraction > 0.0 && fraction < 1.0));
        let mean = fractions.sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.004, "{mean}");
    }
}
