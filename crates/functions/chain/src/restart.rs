//! When a function that failed is made again: soon at first, then later and later.
//!
//! Two kinds of end are told apart. A function that fails by itself (a panic, a signal of its own making, a lie, silence)
//! will most likely fail again: it waits up to ten seconds. A process that somebody kills from outside (SIGKILL: an
//! operator, the kernel short of memory) did nothing wrong: it waits half a second at most, so that it is back in less
//! than two however often that happens, and a switch that is short of memory still does not spin.

use millrace_types::{Duration, Time};

const FIRST: Duration = Duration::from_millis(100);
/// The longest pause of one that fails by itself.
const LAST: Duration = Duration::from_secs(10);
/// The longest pause of one that was killed.
const LAST_KILLED: Duration = Duration::from_millis(500);
/// A function that worked so long had no trouble.
const STEADY: Duration = Duration::from_secs(10);

/// The back-off of one function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restart {
    pause: Duration,
    started: Time,
    due: Option<Time>,
}

impl Restart {
    pub(crate) fn new(now: Time) -> Restart {
        Restart {
            pause: FIRST,
            started: now,
            due: None,
        }
    }

    /// Whether to make it again, now that it is known to be down, and whether it was killed.
    pub(crate) fn is_due(&mut self, now: Time, killed: bool) -> bool {
        let due = match self.due {
            Some(due) => due,
            None => {
                if now.since(self.started) >= STEADY {
                    self.pause = FIRST;
                }
                let pause = match killed {
                    true => self.pause.min(LAST_KILLED),
                    false => self.pause,
                };
                *self.due.insert(now + pause)
            }
        };
        if now < due {
            return false;
        }
        self.due = None;
        self.started = now;
        // Kills do not make the next failure of its own worse than they are themselves.
        let last = if killed { self.pause.max(LAST_KILLED) } else { LAST };
        self.pause = (self.pause * 2).min(last);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a function that fails at once is made again, in milliseconds.
    fn restarts(restart: &mut Restart, from: u64, to: u64, killed: bool) -> Vec<u64> {
        (from..to)
            .filter(|now| restart.is_due(Time::from_millis(*now), killed))
            .collect()
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut restart = Restart::new(Time::ZERO);
        let times = restarts(&mut restart, 0, 60_000, false);
        assert_eq!(times[0], 100);
        assert!(times[1] - times[0] >= 200 && times[2] - times[1] >= 400);
        let last = times.windows(2).last().unwrap();
        assert!((10_000..=10_001).contains(&(last[1] - last[0])), "{times:?}");
    }

    #[test]
    fn who_is_killed_again_and_again_is_back_within_half_a_second() {
        let mut restart = Restart::new(Time::ZERO);
        let times = restarts(&mut restart, 0, 60_000, true);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 501), "{times:?}");
        assert!(times.len() < 130, "and not at once each time: {times:?}");
        let crashes = restarts(&mut restart, 60_000, 120_000, false);
        assert!(crashes.len() < 12, "one that crashes backs off: {crashes:?}");
        let killed = restarts(&mut restart, 120_000, 125_000, true);
        assert!(
            killed.windows(2).all(|pair| pair[1] - pair[0] <= 501),
            "{killed:?}"
        );
    }

    #[test]
    fn who_worked_for_long_begins_anew() {
        let mut restart = Restart::new(Time::ZERO);
        assert_eq!(restarts(&mut restart, 0, 703, false).len(), 3);
        let times = restarts(&mut restart, 11_000, 11_200, false);
        assert_eq!(times, [11_100]);
    }
}
