//! Allocation of numbers: a pure function of the numbers in use, the held numbers and the requested range.
//!
//! A released number is held until the engine has confirmed that no switch has a rule with it, and for [`HOLD_DOWN`]
//! after that, because late packets may still carry it.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::persistent::PersistentMap;
use crate::service::NumberHold;
use crate::time::Timestamp;

/// The numbers of a pool that objects use; several objects may use one number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    uses: PersistentMap<u32, u32>,
    /// A bit for each number, up to the highest that was ever in use.
    bits: Bits,
}

impl Taken {
    /// Returns true if no object uses a number.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// Adds one use of a number.
    pub fn add(&mut self, number: u32) {
        match self.uses.get_mut(&number) {
            Some(uses) => *uses += 1,
            None => {
                self.uses.insert(number, 1);
                self.bits.set(number, true);
            }
        }
    }

    /// Removes one use of a number.
    pub fn remove(&mut self, number: u32) {
        match self.uses.get_mut(&number) {
            Some(uses) if *uses > 1 => *uses -= 1,
            Some(_) => {
                self.uses.remove(&number);
                self.bits.set(number, false);
            }
            None => {}
        }
    }
}

impl FromIterator<u32> for Taken {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Taken {
        let mut taken = Taken::default();
        numbers.into_iter().for_each(|number| taken.add(number));
        taken
    }
}

/// A set of numbers as a bit vector, up to the highest number.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, number: u32, to: bool) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if to {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    fn has(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Returns the lowest number that is at least `first` and not in the set.
    fn first_free(&self, first: u32) -> u64 {
        let begin = first as usize / 64;
        // The numbers below `first` count as taken.
        let below = (1_u64 << (first % 64)) - 1;
        let words = self.0.iter().skip(begin).enumerate();
        let mut masked = words.map(|(number, word)| (number, if number == 0 { word | below } else { *word }));
        match masked.find(|(_, word)| *word != u64::MAX) {
            Some((number, word)) => (begin + number) as u64 * 64 + u64::from(word.trailing_ones()),
            None => u64::from(first).max(self.0.len() as u64 * 64),
        }
    }
}

/// Sets are equal if they have the same numbers. Trailing words of zeros do not matter.
impl PartialEq for Bits {
    fn eq(&self, other: &Bits) -> bool {
        let shared = self.0.len().min(other.0.len());
        let is_zero = |word: &u64| *word == 0;
        self.0[..shared] == other.0[..shared]
            && self.0[shared..].iter().all(is_zero)
            && other.0[shared..].iter().all(is_zero)
    }
}

impl Eq for Bits {}

/// The shortest time from the removal of a number's rules to the next use of the number.
pub const HOLD_DOWN: Duration = Duration::from_secs(60);

/// Returns the lowest number from `first` to `last` that is neither taken nor held, or `None`.
pub fn lowest_free(
    (first, last): (u32, u32),
    taken: &Taken,
    released: &BTreeMap<u32, NumberHold>,
    now: Timestamp,
) -> Option<u32> {
    u32::try_from(busy(taken, released, now).first_free(first))
        .ok()
        .filter(|free| *free <= last)
}

/// Returns how many numbers from `first` to `last` are neither taken nor held.
pub fn free(
    (first, last): (u32, u32),
    taken: &Taken,
    released: &BTreeMap<u32, NumberHold>,
    now: Timestamp,
) -> usize {
    let busy = busy(taken, released, now);
    (first..=last).filter(|number| !busy.has(*number)).count()
}

/// Returns the numbers that are in use or held.
fn busy(taken: &Taken, released: &BTreeMap<u32, NumberHold>, now: Timestamp) -> Bits {
    let mut busy = taken.bits.clone();
    for (number, hold) in released {
        if is_held(*hold, now) {
            busy.set(*number, true);
        }
    }
    busy
}

/// Returns true if a released number cannot be used yet.
pub fn is_held(hold: NumberHold, now: Timestamp) -> bool {
    match hold {
        NumberHold::InSwitches => true,
        NumberHold::FreeFrom(time) => now < time,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);

    fn taken<const N: usize>(numbers: [u32; N]) -> Taken {
        numbers.into_iter().collect()
    }

    #[test]
    fn a_number_rests_until_its_rules_are_gone_and_sixty_seconds_more() {
        let free_from = NOW.after(HOLD_DOWN);
        let released = BTreeMap::from([(1, NumberHold::InSwitches), (2, NumberHold::FreeFrom(free_from))]);
        assert_eq!(lowest_free((1, 9), &taken([3]), &released, NOW), Some(4));
        assert_eq!(lowest_free((1, 9), &taken([3]), &released, free_from), Some(2));
        assert_eq!(lowest_free((1, 3), &taken([3]), &released, NOW), None);
        assert_eq!(free((1, 200), &taken([3]), &released, NOW), 197);
        assert_eq!(free((2, 3), &taken([3]), &released, free_from), 1);
    }

    #[test]
    fn the_highest_number_of_all_is_allocated_too() {
        let last = u32::MAX;
        assert_eq!(
            lowest_free((last, last), &Taken::default(), &BTreeMap::new(), NOW),
            Some(last)
        );
        for last in [63, 64, 4094] {
            let all_but_last: Taken = (0..last).collect();
            assert_eq!(
                lowest_free((2, last), &all_but_last, &BTreeMap::new(), NOW),
                Some(last)
            );
            let all: Taken = (0..=last).collect();
            assert_eq!(lowest_free((2, last), &all, &BTreeMap::new(), NOW), None);
        }
    }

    proptest! {
        #[test]
        fn the_number_is_the_lowest_that_is_free(
            first in 0..150u32, len in 0..80u32,
            numbers in prop::collection::vec(0..200u32, 0..200),
            ended in 0..100usize,
            held in prop::collection::btree_set(0..200u32, 0..20),
        ) {
            let released = held.iter().map(|number| (*number, NumberHold::InSwitches)).collect();
            let mut taken: Taken = numbers.iter().copied().collect();
            let ended = ended.min(numbers.len());
            numbers[..ended].iter().for_each(|number| taken.remove(*number));
            let left = &numbers[ended..];
            let expected = (first..=first + len).find(|number| !left.contains(number) && !held.contains(number));
            prop_assert_eq!(lowest_free((first, first + len), &taken, &released, NOW), expected);
            prop_assert_eq!(taken, left.iter().copied().collect());
        }
    }
}
