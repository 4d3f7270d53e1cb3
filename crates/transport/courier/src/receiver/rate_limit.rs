//! The rate limit of a session, kept by credit: a sender that has used its credit waits, whatever it is.

use millrace_types::{BitRate, Duration, Time};

/// Releases credit at a rate.
#[derive(Clone, Debug)]
pub(super) struct RateLimit {
    rate: BitRate,
    /// The time at which the next byte may be released.
    next: Time,
    /// Bytes that are written, and whose credit is not released.
    pending: u64,
}

/// The smallest release, in time at the rate: fewer would wake the thread too often.
const STEP: Duration = Duration::from_millis(10);
/// The pool of a limited session, in time at the rate: a round trip of this duration is filled.
const POOL: Duration = Duration::from_millis(400);
/// The smallest pool.
const POOL_MIN: u64 = 64 << 10;

impl RateLimit {
    pub(super) fn new(rate: BitRate, now: Time) -> RateLimit {
        RateLimit {
            rate,
            next: now,
            pending: 0,
        }
    }

    /// Returns the pool of a session at this rate.
    pub(super) fn pool(&self) -> u64 {
        self.bytes_in(POOL).max(POOL_MIN)
    }

    fn bytes_in(&self, time: Duration) -> u64 {
        let bytes = u128::from(self.rate.bps()) * time.as_nanos() / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(self.rate.bps().max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4).min(u64::MAX / 4))
    }

    /// Adds bytes whose credit is to be released.
    pub(super) fn add(&mut self, bytes: u64) {
        self.pending += bytes;
    }

    /// Returns the bytes whose credit is released now.
    pub(super) fn release(&mut self, now: Time) -> u64 {
        // Time without pending bytes is not saved up beyond one step.
        self.next = self.next.max(now - STEP);
        if self.pending == 0 || now < self.due() {
            return 0;
        }
        let bytes = self.bytes_in(now.since(self.next)).min(self.pending);
        self.next = self.next + self.time_of(bytes);
        self.pending -= bytes;
        bytes
    }

    fn due(&self) -> Time {
        self.next + self.time_of(self.pending).min(STEP)
    }

    /// Returns when credit is released next.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        (self.pending > 0).then(|| self.due())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_released_at_the_rate_and_time_is_not_saved_up() {
        let mut limit = RateLimit::new(BitRate::from_bps(80_000_000), Time::from_nanos(0));
        let (mut now, mut released) = (Time::from_nanos(0), 0);
        limit.add(10_000_000);
        while now < Time::from_nanos(500_000_000) {
            now = limit.next_timeout().unwrap();
            released += limit.release(now);
        }
        assert!((4_900_000..=5_200_000).contains(&released), "{released}");
        while let Some(due) = limit.next_timeout() {
            now = due;
            released += limit.release(now);
        }
        assert_eq!(released, 10_000_000);
        // After a pause of ten seconds a step's worth may go at once, and no more.
        now = now + Duration::from_secs(10);
        limit.release(now);
        limit.add(10_000_000);
        assert!(limit.release(now) <= 100_000);
    }
}
