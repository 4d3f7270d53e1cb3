//! A rate limit of log lines that peers cause.

use millrace_types::Time;

use super::token_bucket::TokenBucket;

/// Lines per second.
const RATE: u32 = 1;
/// Lines in a burst.
const BURST: u32 = 10;

/// Admits [`BURST`] lines at once and [`RATE`] lines per second, and counts those that it does not admit.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    bucket: TokenBucket,
    suppressed: u64,
}

impl LogLimit {
    /// Returns `None` if a line must be suppressed at `now`. Otherwise returns the number of lines suppressed
    /// since the last admitted line.
    pub(crate) fn admit(&mut self, now: Time) -> Option<u64> {
        if self.bucket.take(now, RATE, BURST) {
            return Some(core::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_burst_are_counted_and_reported_with_the_next_one() {
        let mut limit = LogLimit::default();
        let now = Time::from_secs(100);
        let admitted = (0..1000).filter(|_| limit.admit(now).is_some()).count();
        assert_eq!(admitted, 10);
        assert_eq!(limit.admit(Time::from_secs(101)), Some(990));
        assert_eq!(limit.admit(Time::from_secs(102)), Some(0));
    }
}
