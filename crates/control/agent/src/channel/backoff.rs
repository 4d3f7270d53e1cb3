//! Pauses between attempts to connect: they double from one second, with jitter, so that a hundred switches do not
//! return to a restarted controller in the same instant.

use millrace_types::Duration;

/// The first pause, before jitter.
const FIRST: Duration = Duration::from_secs(1);

/// The pauses between attempts.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Returns pauses from one second to `max`.
    pub(crate) fn new(max: Duration) -> Backoff {
        Backoff {
            next: FIRST.min(max),
            max,
        }
    }

    /// Returns the next pause: the due time, shortened by up to a quarter according to `random`.
    pub(crate) fn pause(&mut self, random: u64) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.max);
        let jitter = due / 4 * (random % 1024) as u32 / 1024;
        due - jitter
    }

    /// Begins again with the shortest pause, after an attempt that succeeded.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST.min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_begin_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(5));
        let pauses: Vec<u64> = (0..4).map(|_| backoff.pause(0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5]);
        backoff.reset();
        assert_eq!(backoff.pause(0), Duration::from_secs(1));
    }

    #[test]
    fn jitter_shortens_by_a_quarter_at_most() {
        for random in [0, 1, 512, 1023, u64::MAX] {
            let pause = Backoff::new(Duration::from_secs(60)).pause(random);
            assert!(pause <= Duration::from_secs(1) && pause >= Duration::from_millis(750));
        }
    }
}
