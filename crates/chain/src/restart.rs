//! When a function that failed is made again: soon at first, then later and later.

use millrace_types::{Duration, Time};

const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(10);
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

    /// Whether to make it again, now that it is known to be down.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = match self.due {
            Some(due) => due,
            None => {
                if now.since(self.started) >= STEADY {
                    self.pause = FIRST;
                }
                *self.due.insert(now + self.pause)
            }
        };
        if now < due {
            return false;
        }
        self.due = None;
        self.started = now;
        self.pause = (self.pause * 2).min(LAST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a function that fails at once is made again, in milliseconds.
    fn restarts(restart: &mut Restart, from: u64, to: u64) -> Vec<u64> {
        (from..to)
            .filter(|now| restart.is_due(Time::from_millis(*now)))
            .collect()
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut restart = Restart::new(Time::ZERO);
        let times = restarts(&mut restart, 0, 60_000);
        assert_eq!(times[0], 100);
        assert!(times[1] - times[0] >= 200 && times[2] - times[1] >= 400);
        let last = times.windows(2).last().unwrap();
        assert!((10_000..=10_001).contains(&(last[1] - last[0])), "{times:?}");
    }

    #[test]
    fn who_worked_for_long_begins_anew() {
        let mut restart = Restart::new(Time::ZERO);
        assert_eq!(restarts(&mut restart, 0, 703).len(), 3);
        let times = restarts(&mut restart, 11_000, 11_200);
        assert_eq!(times, [11_100]);
    }
}
