//! Searches for the largest number that passes. RFC 2889, section 5.7.3, asks for a binary search and leaves the start
//! open: with a good estimate, two trials suffice.

/// The largest number that a system carries, found by trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SearchResult {
    /// The largest number that passed; 0 if none did.
    pub(super) largest: usize,
    /// True if the largest allowed number passed, so that larger ones may pass, too.
    pub(super) is_bound: bool,
}

/// Searches between 1 and `bound`: from `start` on in steps that double, then by bisection. A failed trial is
/// repeated up to `retries` times, because one passed trial shows that the system can carry the number.
///
/// # Errors
/// The error of `trial`.
pub(super) fn largest<E>(
    start: usize,
    bound: usize,
    retries: usize,
    mut trial: impl FnMut(usize) -> Result<bool, E>,
) -> Result<SearchResult, E> {
    // All numbers up to `low` pass, and none from `high` on.
    let (mut low, mut high) = (0, bound + 1);
    let (mut next, mut step) = (start.clamp(1, bound), 1);
    while high - low > 1 {
        let mut passed = false;
        for _ in 0..=retries {
            passed = trial(next)?;
            if passed {
                break;
            }
        }
        if passed {
            low = next;
        } else {
            high = next;
        }
        next = if high == bound + 1 {
            (low + step).min(bound)
        } else if low == 0 {
            high.saturating_sub(step).max(1)
        } else {
            usize::midpoint(low, high)
        };
        step *= 2;
    }
    Ok(SearchResult {
        largest: low,
        is_bound: low == bound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: usize, bound: usize, capacity: usize) -> (SearchResult, usize) {
        let mut trials = 0;
        let found = largest(start, bound, 0, |len| {
            trials += 1;
            Ok::<_, ()>(len <= capacity)
        });
        (found.unwrap(), trials)
    }

    #[test]
    fn the_largest_number_that_passes_is_found_from_any_start() {
        for capacity in 0..=300 {
            for start in [1, 7, 100, 299, 300] {
                let (found, trials) = run(start, 300, capacity);
                assert_eq!((found.largest, found.is_bound), (capacity, capacity == 300));
                assert!(trials <= 18, "{start} {capacity}: {trials}");
            }
        }
    }

    #[test]
    fn a_search_from_a_good_estimate_needs_two_trials() {
        assert_eq!(run(8191, 65_536, 8191).1, 2);
        assert_eq!(run(8191, 65_536, 8190).1, 2);
    }

    #[test]
    fn a_failure_that_does_not_come_again_is_not_the_switchs() {
        let mut trials = 0;
        let found = largest(50, 1000, 1, |len| {
            trials += 1;
            Ok::<_, ()>(len <= 700 && trials % 2 == 0)
        });
        assert_eq!(found.unwrap().largest, 700);
    }
}
