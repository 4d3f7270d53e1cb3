//! The rate in progress events, which both ends compute in the same way.

use millrace_types::Time;
use std::time::Duration;

/// The shortest interval between two progress events. A busy thread reports later.
pub(crate) const PROGRESS: Duration = Duration::from_millis(500);
/// The shortest time over which a rate is computed.
const RATE_OVER_MIN: Duration = Duration::from_millis(1);

/// A count of bytes at the last progress event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateMeter {
    at: Time,
    bytes: u64,
}

impl RateMeter {
    /// Returns a meter that starts at `now` with a count.
    pub(crate) fn start(now: Time, bytes: u64) -> RateMeter {
        RateMeter { at: now, bytes }
    }

    /// Returns the rate in bit/s since the last call or the start: the growth of the count, divided by the elapsed
    /// time, which counts as 1 ms at least. If the count fell, the rate is 0.
    pub(crate) fn rate_bps(&mut self, now: Time, bytes: u64) -> f64 {
        let elapsed = now.since(self.at).max(RATE_OVER_MIN);
        let new = bytes.saturating_sub(self.bytes);
        *self = RateMeter::start(now, bytes);
        new as f64 * 8.0 / elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_divided_by_the_time_since_the_last_event_however_late_it_is() {
        let mut meter = RateMeter::start(Time::from_millis(1_000), 5_000_000);
        assert_eq!(meter.rate_bps(Time::from_millis(1_750), 6_500_000), 16e6);
        assert_eq!(meter.rate_bps(Time::from_millis(2_250), 7_500_000), 16e6);
        assert_eq!(meter.rate_bps(Time::from_millis(4_250), 7_500_000), 0.0);
    }

    #[test]
    fn a_rate_is_finite_right_after_the_start_and_if_the_count_falls() {
        let mut meter = RateMeter::start(Time::ZERO, 10);
        assert_eq!(meter.rate_bps(Time::ZERO, 1_010), 8e6);
        assert_eq!(meter.rate_bps(Time::from_secs(1), 10), 0.0);
    }
}
