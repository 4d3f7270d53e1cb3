//! Allocation of numbers: a pure function of what is taken, what rests and what is asked for.
//!
//! A number that was given back rests until the engine has confirmed that no switch has a rule with it, and for
//! [`REST`] more: late packets carry it still.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::service::Released;
use crate::time::Timestamp;

/// The time from the end of a number's rules to its next use.
pub const REST: Duration = Duration::from_secs(60);

/// Returns the lowest number from `first` to `last` that is neither taken nor resting, or `None`.
pub fn lowest_free(
    (first, last): (u32, u32),
    taken: impl IntoIterator<Item = u32>,
    released: &BTreeMap<u32, Released>,
    now: Timestamp,
) -> Option<u32> {
    let mut busy: Vec<u32> = taken
        .into_iter()
        .chain(
            released
                .iter()
                .filter(|(_, rest)| rests(**rest, now))
                .map(|(number, _)| *number),
        )
        .filter(|number| (first..=last).contains(number))
        .collect();
    busy.sort_unstable();
    busy.dedup();
    // The busy numbers are in order: the first that is not at its place leaves a gap.
    let is_at_its_place = |(offset, number): &(usize, &u32)| (**number - first) as usize == *offset;
    let offset = busy.iter().enumerate().take_while(is_at_its_place).count();
    let free = u64::from(first) + offset as u64;
    u32::try_from(free).ok().filter(|free| *free <= last)
}

/// Returns true if a number that was given back cannot be used yet.
pub fn rests(released: Released, now: Timestamp) -> bool {
    match released {
        Released::InSwitches => true,
        Released::FreeFrom(time) => now < time,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);

    #[test]
    fn a_number_rests_until_its_rules_are_gone_and_sixty_seconds_more() {
        let free_from = NOW.after(REST);
        let released = BTreeMap::from([(1, Released::InSwitches), (2, Released::FreeFrom(free_from))]);
        assert_eq!(lowest_free((1, 9), [3], &released, NOW), Some(4));
        assert_eq!(lowest_free((1, 9), [3], &released, free_from), Some(2));
        assert_eq!(lowest_free((1, 3), [3], &released, NOW), None);
    }

    #[test]
    fn the_highest_number_of_all_is_allocated_too() {
        let last = u32::MAX;
        assert_eq!(lowest_free((last, last), [], &BTreeMap::new(), NOW), Some(last));
        assert_eq!(lowest_free((last, last), [last], &BTreeMap::new(), NOW), None);
    }

    proptest! {
        #[test]
        fn the_number_is_the_lowest_that_is_free(
            first in 0..20u32, len in 0..30u32,
            taken in prop::collection::vec(0..60u32, 0..60),
            resting in prop::collection::btree_set(0..60u32, 0..20),
        ) {
            let released = resting.iter().map(|number| (*number, Released::InSwitches)).collect();
            let expected = (first..=first + len).find(|number| !taken.contains(number) && !resting.contains(number));
            prop_assert_eq!(lowest_free((first, first + len), taken, &released, NOW), expected);
        }
    }
}
