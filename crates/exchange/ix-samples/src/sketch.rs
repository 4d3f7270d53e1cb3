//! The heaviest keys of a stream in bounded memory: the space-saving algorithm (Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! With m counters, the weight of every key is overestimated by at most the total weight divided by m, and every key above
//! that share has a counter.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The counter of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counter {
    /// The weight, overestimated by `error` at most.
    pub(crate) weight: u64,
    /// The weight of the key whose counter this key took over.
    pub(crate) error: u64,
}

/// The heaviest keys.
#[derive(Clone, Debug)]
pub(crate) struct SpaceSaving<K> {
    capacity: usize,
    counters: HashMap<K, Counter>,
    /// The keys in order of weight.
    order: BTreeSet<(u64, K)>,
}

impl<K: Copy + Ord + Hash> SpaceSaving<K> {
    pub(crate) fn new(capacity: usize) -> SpaceSaving<K> {
        SpaceSaving {
            capacity: capacity.max(1),
            counters: HashMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// Adds weight to a key. If all counters are in use, a new key takes over the counter of the lightest
    /// key, and the function returns that key.
    pub(crate) fn add(&mut self, key: K, weight: u64) -> Option<K> {
        if let Some(counter) = self.counters.get_mut(&key) {
            self.order.remove(&(counter.weight, key));
            counter.weight = counter.weight.saturating_add(weight);
            self.order.insert((counter.weight, key));
            return None;
        }
        let mut evicted = None;
        let mut error = 0;
        if self.counters.len() >= self.capacity
            && let Some((least, lightest)) = self.order.pop_first()
        {
            self.counters.remove(&lightest);
            (error, evicted) = (least, Some(lightest));
        }
        let counter = Counter {
            weight: error.saturating_add(weight),
            error,
        };
        self.order.insert((counter.weight, key));
        self.counters.insert(key, counter);
        evicted
    }

    /// Returns the keys with their counters, the heaviest first.
    pub(crate) fn heaviest(&self) -> impl Iterator<Item = (K, Counter)> + '_ {
        let with_counter = |(_, key): &(u64, K)| Some((*key, *self.counters.get(key)?));
        self.order.iter().rev().filter_map(with_counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn weights_are_overestimated_by_the_total_over_the_capacity_at_most(
            stream in proptest::collection::vec((0u8..60, 1u64..100), 0..400),
        ) {
            let mut sketch = SpaceSaving::new(16);
            let mut exact: HashMap<u8, u64> = HashMap::new();
            let mut total = 0;
            for (key, weight) in stream {
                sketch.add(key, weight);
                *exact.entry(key).or_default() += weight;
                total += weight;
            }
            let found: HashMap<u8, Counter> = sketch.heaviest().collect();
            prop_assert!(found.len() <= 16);
            for (key, counter) in &found {
                let truth = exact[key];
                prop_assert!(counter.weight >= truth && counter.weight - counter.error <= truth);
                prop_assert!(counter.error <= total / 16);
            }
            for (key, truth) in exact {
                prop_assert!(found.contains_key(&key) || truth <= total / 16);
            }
        }
    }
}
