//! The highest rate without loss (RFC 2544, section 26.1), by bisection between a rate that passed and one that
//! failed.
//!
//! RFC 2544 asks for trials of 60 seconds. Ours take one or a few seconds, and a failed trial is repeated: on a shared
//! machine a switch loses its core now and then, which is no property of the switch. The result is the highest rate of
//! a trial without loss.

/// The result of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The offered load in packets per second.
    pub offered: f64,
    /// The share of the offered packets that was lost, 0 to 1.
    pub loss: f64,
    /// The share of the due packets that were not offered, 0 to 1.
    pub shortfall: f64,
}

/// The parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The largest share of packets that may be lost, 0 to 1.
    pub tolerance: f64,
    /// The width of the interval at which the search ends, relative to its upper end.
    pub resolution: f64,
    /// The number of retries of a failed trial.
    pub retries: usize,
}

impl Search {
    /// A search without loss, to a resolution of 2 %.
    pub const ZERO_LOSS: Search = Search {
        tolerance: 0.0,
        resolution: 0.02,
        retries: 2,
    };
}

/// The largest shortfall, 0 to 1, at which the rate counts as offered.
const SHORTFALL_MAX: f64 = 0.05;

/// The search ends below this share of the highest rate: a switch that loses packets there loses packets at any rate.
const RATE_MIN: f64 = 1e-3;

/// The highest offered load without loss, found by trials (RFC 2544, section 26.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchResult {
    /// The offered load of the best trial that passed, in packets per second; 0 if none did.
    pub rate: f64,
    /// The number of trials.
    pub trials: usize,
    /// True if the generator, and not the switch, limits the rate.
    pub generator_limited: bool,
}

/// The number of times that an estimate is doubled at most.
const DOUBLINGS_MAX: u32 = 8;

impl Search {
    /// Searches for the highest rate up to `most` packets per second.
    ///
    /// # Errors
    /// The error of `trial`.
    pub fn run<E>(self, most: f64, trial: impl FnMut(f64) -> Result<Trial, E>) -> Result<SearchResult, E> {
        self.search(most, 0, trial)
    }

    /// Searches for the highest rate, from an estimate on, in packets per second. While trials pass, the rate is
    /// doubled: a system that returns less under overload than it can carry has an estimate that is too low.
    ///
    /// # Errors
    /// The error of `trial`.
    pub fn run_from<E>(
        self,
        estimate: f64,
        trial: impl FnMut(f64) -> Result<Trial, E>,
    ) -> Result<SearchResult, E> {
        self.search(estimate, DOUBLINGS_MAX, trial)
    }

    fn search<E>(
        self,
        most: f64,
        mut doublings: u32,
        mut trial: impl FnMut(f64) -> Result<Trial, E>,
    ) -> Result<SearchResult, E> {
        let mut found = SearchResult {
            rate: 0.0,
            trials: 0,
            generator_limited: false,
        };
        let (mut low, mut high) = (0.0, most);
        let mut rate = most;
        while high - low > self.resolution * high && high > most * RATE_MIN {
            let mut passed = None;
            let (mut short, mut always_short) = (false, true);
            for _ in 0..=self.retries {
                found.trials += 1;
                let outcome = trial(rate)?;
                let is_short = outcome.shortfall > SHORTFALL_MAX;
                always_short &= is_short;
                if outcome.loss <= self.tolerance {
                    short = is_short;
                    passed = Some(outcome);
                    if !short {
                        break;
                    }
                }
            }
            if let Some(outcome) = passed {
                found.rate = found.rate.max(outcome.offered);
            }
            match passed {
                Some(outcome) if short => {
                    // The generator could not offer a higher rate either. If it fell short each time, it has offered
                    // its own highest rate.
                    found.generator_limited = true;
                    high = rate;
                    if always_short {
                        low = outcome.offered.max(low);
                        high = low;
                    }
                }
                Some(_) if rate >= high && doublings > 0 => {
                    doublings -= 1;
                    low = rate;
                    high = rate * 2.0;
                    rate = high;
                    continue;
                }
                Some(_) => low = rate,
                None => high = rate,
            }
            rate = f64::midpoint(low, high);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(search: Search, most: f64, mut trial: impl FnMut(f64) -> Trial) -> SearchResult {
        search.run(most, |rate| Ok::<_, ()>(trial(rate))).unwrap()
    }

    fn switch(capacity: f64) -> impl Fn(f64) -> Trial {
        move |rate| Trial {
            offered: rate,
            loss: (1.0 - capacity / rate).max(0.0),
            shortfall: 0.0,
        }
    }

    #[test]
    fn the_rate_that_is_found_is_below_the_capacity_and_close_to_it() {
        for capacity in [1e5, 2.5e6, 9.9e6] {
            let found = run(Search::ZERO_LOSS, 1e7, switch(capacity));
            assert!(
                found.rate <= capacity && found.rate >= capacity * 0.96,
                "{found:?}"
            );
            assert!(!found.generator_limited);
        }
    }

    #[test]
    fn a_switch_that_is_faster_than_asked_for_takes_one_trial() {
        let found = run(Search::ZERO_LOSS, 1e6, switch(2e6));
        assert_eq!((found.rate, found.trials), (1e6, 1));
    }

    #[test]
    fn a_tolerance_finds_a_higher_rate() {
        let tolerant = Search {
            tolerance: 0.1,
            ..Search::ZERO_LOSS
        };
        let found = run(tolerant, 1e7, switch(1e6));
        assert!(found.rate > 1.05e6 && found.rate <= 1.12e6, "{found:?}");
    }

    #[test]
    fn a_loss_that_does_not_come_again_is_not_the_switchs() {
        let mut trials = 0;
        let found = run(Search::ZERO_LOSS, 1e7, |rate| {
            trials += 1;
            let mut outcome = switch(5e6)(rate);
            if trials % 3 == 1 {
                outcome.loss = 0.5;
            }
            outcome
        });
        assert!(found.rate >= 4.8e6, "{found:?}");
    }

    #[test]
    fn a_generator_that_is_too_slow_says_so() {
        let found = run(Search::ZERO_LOSS, 1e7, |rate| Trial {
            offered: rate.min(3e6),
            loss: 0.0,
            shortfall: (1.0 - 3e6 / rate).max(0.0),
        });
        assert!(found.generator_limited && found.rate == 3e6, "{found:?}");
    }

    #[test]
    fn a_short_trial_without_loss_that_is_followed_by_loss_does_not_pass_at_the_full_rate() {
        let mut first = [(6e5, 0.0, 0.4), (1e6, 0.01, 0.0), (1e6, 0.01, 0.0)]
            .into_iter()
            .map(|(offered, loss, shortfall)| Trial {
                offered,
                loss,
                shortfall,
            });
        let found = run(Search::ZERO_LOSS, 1e6, |rate| {
            first.next().unwrap_or_else(|| switch(9e5)(rate))
        });
        assert!(found.generator_limited && found.trials > 3, "{found:?}");
        assert!(found.rate > 8.7e5 && found.rate <= 9e5, "{found:?}");
    }

    #[test]
    fn a_switch_that_loses_always_has_no_rate() {
        let found = run(Search::ZERO_LOSS, 1e6, |rate| Trial {
            offered: rate,
            loss: 0.01,
            shortfall: 0.0,
        });
        assert!(found.rate == 0.0 && found.trials < 100, "{found:?}");
    }

    #[test]
    fn a_switch_that_carries_less_under_overload_is_searched_beyond_the_estimate() {
        let most = |rate: f64| if rate > 10e6 { 5e6 } else { rate };
        let trial = |rate: f64| Trial {
            offered: rate,
            loss: 1.0 - most(rate) / rate,
            shortfall: 0.0,
        };
        let found = Search::ZERO_LOSS.run_from(5.25e6, |rate| Ok::<_, ()>(trial(rate)));
        let found = found.unwrap();
        assert!(found.rate > 9.6e6 && found.rate <= 10e6, "{found:?}");
        assert!(!found.generator_limited);
        // A good estimate costs no trial more.
        let count = |found: Result<SearchResult, ()>| found.unwrap().trials;
        assert_eq!(
            count(Search::ZERO_LOSS.run_from(1e7, |rate| Ok(switch(9.5e6)(rate)))),
            count(Search::ZERO_LOSS.run(1e7, |rate| Ok(switch(9.5e6)(rate))))
        );
    }

    #[test]
    fn a_search_beyond_the_estimate_ends_where_the_generator_does() {
        let found = Search::ZERO_LOSS
            .run_from(3.1e6, |rate| {
                Ok::<_, ()>(Trial {
                    offered: rate.min(3e6),
                    loss: 0.0,
                    shortfall: (1.0 - 3e6 / rate).max(0.0),
                })
            })
            .unwrap();
        assert!(found.generator_limited && found.rate == 3e6, "{found:?}");
        assert_eq!(found.trials, 4);
    }
}
