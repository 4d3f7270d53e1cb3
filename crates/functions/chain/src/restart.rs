//! The back-off of restarts of a function that failed.
//!
//! A function that fails by itself (a panic, a signal, a protocol violation, no heartbeat) will probably fail again: its
//! pause doubles up to ten seconds. A process that was killed from outside (SIGKILL by an operator, or by the kernel for
//! lack of memory) has no fault: its pause is half a second at most. It is back within two seconds however often it is
//! killed, and a machine short of memory does not spin.

use millrace_types::{Duration, Time};

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);
/// The longest pause after a failure.
const LAST: Duration = Duration::from_secs(10);
/// The longest pause after a kill from outside.
const LAST_KILLED: Duration = Duration::from_millis(500);
/// A function that worked for this time starts over with the first pause.
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

    /// Returns whether to restart the function, which is down, at `now`. `killed` is true if it was killed
    /// from outside.
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
        // Kills do not extend the pause after the next failure beyond their own limit.
        let last = if killed { self.pause.max(LAST_KILLED) } else { LAST };
        self.pause = (self.pause * 2).min(last);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times, in milliseconds, at which a function that fails at once is restarted.
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
    fn a_process_that_is_killed_repeatedly_is_restarted_within_half_a_second() {
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
    fn a_function_that_worked_for_long_starts_over_with_the_first_pause() {
        let mut restart = Restart::new(Time::ZERO);
        assert_eq!(restarts(&mut restart, 0, 703, false).len(), 3);
        let times = restarts(&mut restart, 11_000, 11_200, false);
        assert_eq!(times, [11_100]);
    }
}
