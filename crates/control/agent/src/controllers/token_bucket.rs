//! A token bucket: a rate in events per second, and a burst.

use millrace_types::Time;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A token bucket, which counts tokens in billionths, so that no rate loses a fraction. A new bucket is full.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    /// Tokens missing from a full bucket, in billionths.
    used: u128,
    filled_at: Time,
}

impl TokenBucket {
    /// Takes one token from a bucket that gets `rate` tokens a second and holds `burst`. Returns false if it has none;
    /// a rate of 0 is no limit.
    pub(crate) fn take(&mut self, now: Time, rate: u32, burst: u32) -> bool {
        if rate == 0 {
            return true;
        }
        let gained = u128::from(rate) * now.since(self.filled_at).as_nanos();
        self.used = self.used.saturating_sub(gained);
        self.filled_at = self.filled_at.max(now);
        let has_room = self.used + NANOS_PER_SECOND <= u128::from(burst) * NANOS_PER_SECOND;
        if has_room {
            self.used += NANOS_PER_SECOND;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_through_and_then_the_rate() {
        let mut bucket = TokenBucket::default();
        let mut taken = |at| (0..1000).filter(|_| bucket.take(at, 10, 50)).count();
        assert_eq!(taken(Time::from_secs(1)), 50);
        assert_eq!(taken(Time::from_secs(1)), 0);
        assert_eq!(taken(Time::from_millis(1500)), 5);
        assert_eq!(taken(Time::from_secs(100)), 50);
    }

    #[test]
    fn a_slow_rate_is_not_rounded_away_and_zero_is_no_limit() {
        let mut bucket = TokenBucket::default();
        assert!(bucket.take(Time::ZERO, 1, 1));
        let taken = (0..3000)
            .filter(|ms| bucket.take(Time::from_millis(*ms), 1, 1))
            .count();
        assert_eq!(taken, 2);
        assert!((0..1000).all(|_| bucket.take(Time::ZERO, 0, 1)));
    }
}
