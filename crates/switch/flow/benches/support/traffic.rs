//! The packets of a case, and the time of their lookups.

use std::time::Instant;

use millrace_flow::FlowKey;

use super::{Case, Rng, random_packet};

/// The number of keys that are looked up at once.
pub const BURST: usize = 32;

/// Keys, reduced to the words that vary, so that reading them does not fill the caches. Each burst is written
/// to the same buffer, as a parser does.
pub struct Traffic {
    pub keys: Vec<FlowKey>,
    words: Vec<usize>,
    packed: Vec<u64>,
}

impl Traffic {
    pub fn new(keys: Vec<FlowKey>) -> Traffic {
        let vary = |word: &usize| {
            keys.iter()
                .any(|key| key.words()[*word] != keys[0].words()[*word])
        };
        let words: Vec<usize> = (0..FlowKey::WORDS).filter(vary).collect();
        let packed = keys
            .iter()
            .flat_map(|key| words.iter().map(|word| key.words()[*word]))
            .collect();
        Traffic { keys, words, packed }
    }

    /// Returns the nanoseconds per packet of one run of at least `least` packets, including the time to write
    /// keys.
    pub fn run(&self, least: usize, mut look: impl FnMut(&[FlowKey])) -> f64 {
        let mut burst = [self.keys[0]; BURST];
        let size = self.words.len() * BURST;
        let rounds = least.div_ceil(self.keys.len()).max(1);
        let begin = Instant::now();
        let mut count = 0;
        for _ in 0..rounds {
            for chunk in 0..self.keys.len() / BURST {
                let from = &self.packed[chunk * size..][..size];
                for (place, word) in self.words.iter().enumerate() {
                    for (packet, key) in burst.iter_mut().enumerate() {
                        key.words_mut()[*word] = from[packet * self.words.len() + place];
                    }
                }
                look(std::hint::black_box(&burst));
                count += BURST;
            }
        }
        begin.elapsed().as_nanos() as f64 / count as f64
    }
}

/// Returns random 5-tuples.
pub fn random(dice: &mut Rng) -> Vec<FlowKey> {
    (0..1 << 12).map(|_| random_packet(dice)).collect()
}

/// Returns the packets of an attacker who knows the rules: keys of rules with one compared bit inverted, so that as
/// many tuples as possible have candidates, and none of them matches.
pub fn near_misses(case: &Case, dice: &mut Rng) -> Vec<FlowKey> {
    let mut keys: Vec<FlowKey> = Vec::new();
    for _ in 0..1 << 14 {
        let rule = &case.rules[dice.below(case.rules.len() as u64) as usize];
        let mut key = random_packet(dice);
        for (word, held) in key.words_mut().iter_mut().enumerate() {
            let mask = rule.mask.words()[word];
            *held = *held & !mask | rule.key.words()[word];
        }
        let word = [5, 6][dice.below(2) as usize];
        let mask = rule.mask.words()[word] & !(0xff << 32);
        if mask != 0 {
            // The lowest compared bit of an address or port.
            let low = mask & mask.wrapping_neg();
            let high = mask >> 32 << 32;
            let bit = if dice.below(2) == 0 || high == 0 {
                low
            } else {
                high & high.wrapping_neg()
            };
            key.words_mut()[word] ^= bit;
        }
        keys.push(key);
    }
    keys
}
