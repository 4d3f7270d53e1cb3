//! What a worker does when there is nothing to do.
//!
//! A poll-mode worker that never sleeps burns its core, which on a small machine is also its neighbours'
//! core. A worker that finds nothing polls on for a while, then sleeps, longer and longer up to a bound
//! that a person does not notice: the first packet after a pause waits at most that long.

use core::time::Duration;

/// Whether a worker may sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Sleep when idle, up to [`SLEEP_MAX`].
    #[default]
    Adaptive,
    /// Never sleep: lowest latency, one core always busy.
    Busy,
}

/// Polls without a packet before the first sleep: some tens of microseconds, so that a busy link's gaps
/// between bursts cost no sleep.
const POLLS: u32 = 256;
/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(5);
/// The longest sleep, and so the longest that a packet waits for an idle worker.
pub const SLEEP_MAX: Duration = Duration::from_micros(250);

/// The time before a packet is due at which a worker stops sleeping and polls, so that the kernel's wake-up latency
/// does not delay the packet.
pub const POLL_BEFORE_DUE: Duration = Duration::from_micros(150);

/// Returns how long a worker may sleep that would sleep for `sleep`, if the next packet is due after `due_in`; `None` if
/// it must poll.
pub(crate) fn until_due(sleep: Duration, due_in: Duration) -> Option<Duration> {
    let sleep = sleep.min(due_in.saturating_sub(POLL_BEFORE_DUE));
    (!sleep.is_zero()).then_some(sleep)
}

/// Counts empty polls and says how long to sleep.
#[derive(Debug)]
pub(crate) struct Sleeper {
    idle: Idle,
    empty_polls: u32,
    next: Duration,
}

impl Sleeper {
    pub(crate) fn new(idle: Idle) -> Sleeper {
        Sleeper {
            idle,
            empty_polls: 0,
            next: SLEEP_MIN,
        }
    }

    /// How long to sleep after a poll that brought, or did not bring, a packet.
    pub(crate) fn after_poll(&mut self, found: bool) -> Option<Duration> {
        if found {
            self.empty_polls = 0;
            self.next = SLEEP_MIN;
            return None;
        }
        self.empty_polls = self.empty_polls.saturating_add(1);
        if self.idle == Idle::Busy || self.empty_polls < POLLS {
            return None;
        }
        let sleep = self.next;
        self.next = (sleep * 2).min(SLEEP_MAX);
        Some(sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_to_their_bound_and_a_packet_ends_them() {
        let mut sleeper = Sleeper::new(Idle::Adaptive);
        for _ in 1..POLLS {
            assert_eq!(sleeper.after_poll(false), None);
        }
        assert_eq!(sleeper.after_poll(false), Some(SLEEP_MIN));
        for _ in 0..20 {
            sleeper.after_poll(false);
        }
        assert_eq!(sleeper.after_poll(false), Some(SLEEP_MAX));
        assert_eq!(sleeper.after_poll(true), None);
        assert_eq!(sleeper.after_poll(false), None);
    }

    #[test]
    fn a_worker_sleeps_until_shortly_before_a_packet_is_due_and_then_polls() {
        let micros = Duration::from_micros;
        assert_eq!(until_due(SLEEP_MAX, micros(10_000)), Some(SLEEP_MAX));
        assert_eq!(until_due(SLEEP_MAX, micros(200)), Some(micros(50)));
        assert_eq!(until_due(SLEEP_MAX, micros(150)), None);
        assert_eq!(until_due(SLEEP_MIN, Duration::ZERO), None);
    }

    #[test]
    fn a_busy_worker_never_sleeps() {
        let mut sleeper = Sleeper::new(Idle::Busy);
        assert!((0..10 * POLLS).all(|_| sleeper.after_poll(false).is_none()));
    }
}
