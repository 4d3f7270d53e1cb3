//! Round-trip times: smoothed mean and variation (RFC 9002, section 5).

use millrace_types::Duration;

/// The round-trip time that is assumed before the first sample (RFC 9002, section 6.2.2).
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Estimates from the samples of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
    least: Option<Duration>,
    /// The assumption before the first sample.
    initial: Option<Duration>,
}

impl RttEstimator {
    /// Returns an estimator without samples that assumes a round-trip time, such as that of a handshake over the same path.
    pub fn new(initial: Option<Duration>) -> RttEstimator {
        RttEstimator {
            initial,
            ..RttEstimator::default()
        }
    }

    fn initial(&self) -> Duration {
        self.initial.unwrap_or(INITIAL_RTT)
    }

    /// Takes a sample. The receiver's delay is already subtracted from it.
    pub fn update(&mut self, sample: Duration) {
        self.latest = sample;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((7 * smoothed + sample) / 8);
            }
        }
    }

    /// Returns the smoothed round-trip time, or the assumed time before the first sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_else(|| self.initial())
    }

    /// Returns true if there was a sample.
    pub fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// Returns the latest sample.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the smallest of all samples, if there is any.
    pub fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Returns the time without feedback after which a probe is due. `delay` is the receiver's interval of
    /// feedback.
    pub fn probe_timeout(&self, delay: Duration) -> Duration {
        let variation = if self.is_known() {
            (4 * self.variation).max(Duration::from_millis(1))
        } else {
            2 * self.initial()
        };
        self.smoothed() + variation + delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_equations_of_rfc_9002() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.smoothed(), INITIAL_RTT);
        rtt.update(Duration::from_millis(100));
        assert_eq!(rtt.probe_timeout(Duration::ZERO), Duration::from_millis(300));
        rtt.update(Duration::from_millis(180));
        assert_eq!(rtt.smoothed(), Duration::from_millis(110));
        // variation: 3/4 of 50 ms and 1/4 of 80 ms
        assert_eq!(
            rtt.probe_timeout(Duration::from_millis(5)),
            Duration::from_micros(110_000 + 4 * 57_500 + 5_000)
        );
        assert_eq!(rtt.least(), Some(Duration::from_millis(100)));
    }
}
