//! The rate at which new bytes arrive.

use millrace_types::{BitRate, Duration, Time};

/// The period over which the rate is measured.
const RATE_TIME: Duration = Duration::from_millis(250);

/// The rate at which new bytes arrive, over the last quarter of a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveRate {
    since: Time,
    bytes: u64,
    last: u64,
}

impl ReceiveRate {
    /// Counts bytes that arrived.
    pub(super) fn add(&mut self, now: Time, bytes: u64) {
        self.end_period(now);
        self.bytes += bytes;
    }

    /// Ends the period if it is over.
    fn end_period(&mut self, now: Time) {
        let passed = now.since(self.since);
        if passed >= RATE_TIME {
            let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).max(1);
            self.last = self.bytes.saturating_mul(8_000_000) / (nanos / 1_000).max(1);
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Returns the rate of the last whole period.
    pub(super) fn rate(&mut self, now: Time) -> BitRate {
        self.end_period(now);
        BitRate::from_bps(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_whole_period() {
        let mut rate = ReceiveRate::default();
        for millis in 0..1_000 {
            rate.add(Time::from_millis(millis), 1_250);
        }
        assert_eq!(rate.rate(Time::from_millis(1_000)), BitRate::from_bps(10_000_000));
    }
}
