//! Sleep of an idle worker.
//!
//! A poll-mode worker that never sleeps uses its whole core, which other programs need on a small machine. A
//! worker that finds no packets continues to poll for a while, and then sleeps for longer and longer times.
//! The longest sleep, [`SLEEP_MAX`], is also the longest wait of the first packet after a pause.

use core::time::Duration;

/// The behaviour of a worker that finds no packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Sleeps when idle, up to [`SLEEP_MAX`].
    #[default]
    Adaptive,
    /// Never sleeps: lowest latency, one core always busy.
    Busy,
}

/// Number of empty polls before the first sleep: some tens of microseconds, so that the gaps between bursts on a busy
/// link cause no sleep.
const POLLS: u32 = 256;
/// Duration of the first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(5);
/// Maximum duration of a sleep, which is also the longest wait of a packet for an idle worker.
pub const SLEEP_MAX: Duration = Duration::from_micros(250);

/// The time before a packet is due at which a worker stops sleeping and polls, so that the kernel's wake-up latency
/// does not delay the packet.
pub const POLL_BEFORE_DUE: Duration = Duration::from_micros(150);

/// Returns the duration for which a worker may sleep, at most `sleep`, if the next packet is due after `due_in`; `None`
/// if it must poll.
pub(crate) fn until_due(sleep: Duration, due_in: Duration) -> Option<Duration> {
    let sleep = sleep.min(due_in.saturating_sub(POLL_BEFORE_DUE));
    (!sleep.is_zero()).then_some(sleep)
}

/// Counts empty polls and computes the duration of sleeps.
#[derive(Debug)]
pub(crate) struct IdleBackoff {
    idle: Idle,
    empty_polls: u32,
    next: Duration,
}

impl IdleBackoff {
    pub(crate) fn new(idle: Idle) -> IdleBackoff {
        IdleBackoff {
            idle,
            empty_polls: 0,
            next: SLEEP_MIN,
        }
    }

    /// Returns the duration to sleep after a poll, if any. `found` is true if the poll found a packet.
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
        let mut backoff = IdleBackoff::new(Idle::Adaptive);
        for _ in 1..POLLS {
            assert_eq!(backoff.after_poll(false), None);
        }
        assert_eq!(backoff.after_poll(false), Some(SLEEP_MIN));
        for _ in 0..20 {
            backoff.after_poll(false);
        }
        assert_eq!(backoff.after_poll(false), Some(SLEEP_MAX));
        assert_eq!(backoff.after_poll(true), None);
        assert_eq!(backoff.after_poll(false), None);
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
        let mut backoff = IdleBackoff::new(Idle::Busy);
        assert!((0..10 * POLLS).all(|_| backoff.after_poll(false).is_none()));
    }
}
