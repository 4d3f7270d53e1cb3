//! Time as an argument: pure crates never read a clock.

use core::ops::{Add, Sub};
pub use core::time::Duration;

/// A point in monotonic time: nanoseconds since an origin that the caller chose (for the daemon, its start). Values of
/// different origins must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// Returns the time that is `nanos` nanoseconds after the origin. 64 bits suffice for 584 years.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the time that is `millis` milliseconds after the origin.
    #[inline]
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    /// Returns the time that is `secs` seconds after the origin.
    #[inline]
    pub const fn from_secs(secs: u64) -> Time {
        Time(secs * 1_000_000_000)
    }

    /// Returns the nanoseconds since the origin.
    #[inline]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Saturates at the largest value.
    fn add(self, rhs: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// Saturates at the origin.
    fn sub(self, rhs: Duration) -> Time {
        Time(
            self.0
                .saturating_sub(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_go_below_zero() {
        let (early, late) = (Time::from_secs(1), Time::from_millis(2500));
        assert_eq!(late.since(early), Duration::from_millis(1500));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early - Duration::from_secs(9), Time::ZERO);
    }
}
