//! Pseudorandom numbers from a seed: a workload is the same on every run.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): the state is one
//! word, the generator passes BigCrush, and its code fits on a page. It is not suited for secrets.

/// A pseudorandom number generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns the generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        millrace_types::split_mix::next(&mut self.0)
    }

    /// Returns the next 32 bits.
    pub fn word32(&mut self) -> u32 {
        (self.word() >> 32) as u32
    }

    /// Returns the next 16 bits.
    pub fn word16(&mut self) -> u16 {
        (self.word() >> 48) as u16
    }

    /// Returns a number from 0 to `bound` - 1; 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }

    /// Returns true with a probability of `percent` / 100.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the items, with a probability proportional to its weight; the last one if all weights are 0.
    pub fn weighted<T: Copy>(&mut self, items: &[(usize, T)]) -> Option<T> {
        let mut ticket = self.below(items.iter().map(|item| item.0).sum());
        for (weight, item) in items {
            if ticket < *weight {
                return Some(*item);
            }
            ticket -= weight;
        }
        items.last().map(|item| item.1)
    }

    /// Permutes the items uniformly at random (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        // The first outputs for the seed 1234567, as published with the reference implementation.
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.word(), random.word(), random.word()],
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn numbers_below_a_bound_reach_every_value() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[random.below(7)] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }

    #[test]
    fn weights_decide_how_often_an_item_comes() {
        let mut random = Random::new(2);
        let heads = (0..10_000)
            .filter(|_| random.weighted(&[(9, true), (1, false)]) == Some(true))
            .count();
        assert!((8_800..9_200).contains(&heads), "{heads}");
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..100).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
