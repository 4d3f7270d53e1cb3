//! A limit of the log lines that a peer can cause.

use millrace_types::Time;

use super::bucket::Bucket;

/// Lines per second in the long run.
const RATE: u32 = 1;
/// Lines at once.
const BURST: u32 = 10;

/// Admits [`BURST`] lines at once and [`RATE`] lines per second, and counts those that it does not admit.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    bucket: Bucket,
    suppressed: u64,
}

impl LogLimit {
    /// Returns the number of lines suppressed since the last admitted one if a line may be written at `now`, and `None`
    /// if it may not.
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
    fn lines_beyond_the_burst_are_counted_and_told_with_the_next_one() {
        let mut limit = LogLimit::default();
        let now = Time::from_secs(100);
        let admitted = (0..1000).filter(|_| limit.admit(now).is_some()).count();
        assert_eq!(admitted, 10);
        assert_eq!(limit.admit(Time::from_secs(101)), Some(990));
        assert_eq!(limit.admit(Time::from_secs(102)), Some(0));
    }
}
