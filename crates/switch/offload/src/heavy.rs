//! The heavy flows among sampled packets: Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and
//! Top-k Elements in Data Streams", ICDT 2005).
//!
//! A table of fixed size counts keys. A key that is not in a full table takes the place of the one with the least count,
//! and inherits this count as its error. The count less the error is what was certainly seen: a flood of keys that come once
//! never has more than one.

use std::collections::{BTreeMap, BTreeSet};

use millrace_flow::FlowKey;

type Words = [u64; FlowKey::WORDS];

#[derive(Clone, Copy, Debug)]
struct Counted {
    key: FlowKey,
    count: u32,
    error: u32,
}

/// Counts of sampled keys.
#[derive(Debug)]
pub struct HeavyFlows {
    capacity: usize,
    counted: Vec<Counted>,
    /// Positions in `counted`. A tree instead of a hash table: no sender can prepare collisions.
    index: BTreeMap<Words, usize>,
    by_count: BTreeSet<(u32, usize)>,
}

impl HeavyFlows {
    /// Returns an empty table for this many keys, at least 1.
    pub fn new(capacity: usize) -> HeavyFlows {
        HeavyFlows {
            capacity: capacity.max(1),
            counted: Vec::new(),
            index: BTreeMap::new(),
            by_count: BTreeSet::new(),
        }
    }

    /// Counts a key once.
    pub fn add(&mut self, key: &FlowKey) {
        let at = match self.index.get(key.words()) {
            Some(at) => *at,
            None if self.counted.len() < self.capacity => {
                self.counted.push(Counted {
                    key: *key,
                    count: 0,
                    error: 0,
                });
                let at = self.counted.len() - 1;
                self.index.insert(*key.words(), at);
                self.by_count.insert((0, at));
                at
            }
            None => {
                let Some((least, at)) = self.by_count.first().copied() else {
                    return;
                };
                self.index.remove(self.counted[at].key.words());
                self.counted[at] = Counted {
                    key: *key,
                    count: least,
                    error: least,
                };
                self.index.insert(*key.words(), at);
                at
            }
        };
        let counted = &mut self.counted[at];
        self.by_count.remove(&(counted.count, at));
        counted.count = counted.count.saturating_add(1);
        self.by_count.insert((counted.count, at));
    }

    /// Removes a key, whose flow is sampled no more.
    pub fn remove(&mut self, key: &FlowKey) {
        if let Some(at) = self.index.get(key.words()).copied() {
            let counted = &mut self.counted[at];
            self.by_count.remove(&(counted.count, at));
            (counted.count, counted.error) = (0, 0);
            self.by_count.insert((0, at));
        }
    }

    /// Halves all counts.
    pub fn halve(&mut self) {
        self.by_count.clear();
        for (at, counted) in self.counted.iter_mut().enumerate() {
            counted.count /= 2;
            counted.error /= 2;
            self.by_count.insert((counted.count, at));
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.counted.clear();
        self.index.clear();
        self.by_count.clear();
    }

    /// Returns keys that were certainly seen at least `least` times, with the number of times, the heaviest first, `max` at
    /// most.
    pub fn heaviest(&self, least: u32, max: usize) -> Vec<(FlowKey, u32)> {
        let mut all: Vec<(FlowKey, u32)> = self
            .counted
            .iter()
            .map(|counted| (counted.key, counted.count - counted.error))
            .filter(|(_, seen)| *seen >= least)
            .collect();
        all.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.words().cmp(two.0.words())));
        all.truncate(max);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::Field;

    fn key(number: u32) -> FlowKey {
        let mut key = FlowKey::default();
        key.put(Field::Ipv4Dst, number.into());
        key
    }

    #[test]
    fn a_key_that_comes_often_is_found_among_many_that_come_once() {
        let mut heavy = HeavyFlows::new(64);
        for number in 0..10_000 {
            heavy.add(&key(1_000 + number));
            if number % 20 == 0 {
                heavy.add(&key(7));
            }
        }
        let found = heavy.heaviest(2, 10);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, key(7));
        assert!((1..=500).contains(&found[0].1), "never more than it was seen");
    }

    #[test]
    fn a_removed_key_begins_anew_and_halving_forgets() {
        let mut heavy = HeavyFlows::new(4);
        (0..8).for_each(|_| heavy.add(&key(1)));
        heavy.add(&key(2));
        heavy.halve();
        assert_eq!(heavy.heaviest(1, 4), [(key(1), 4)]);
        heavy.remove(&key(1));
        assert_eq!(heavy.heaviest(1, 4), []);
        heavy.add(&key(1));
        assert_eq!(heavy.heaviest(1, 4), [(key(1), 1)]);
    }
}
