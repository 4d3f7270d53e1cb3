//! An event that happens to a share of frames. The draws may be correlated from frame to frame.

use crate::math::{normal_cdf, normal_quantile};
use crate::random::Stream;
use crate::text::Probability;

/// The parameters of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chance {
    probability: f64,
    correlation: f64,
}

/// The natural logarithm of 10^9.
const LN_BILLION: f64 = 20.723_265_836_946_41;

/// The Gaussian draw of the last frame, or `None` before the first.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LastDraw(Option<f64>);

impl Chance {
    pub(crate) fn new(probability: Probability, correlation: Probability) -> Chance {
        Chance {
            probability: probability.get(),
            correlation: correlation.get(),
        }
    }

    /// Returns an upper bound of the share of `frames` successive frames to which the event happens. By Bernstein's
    /// inequality, independent events exceed the bound less than once in a billion cases. The share of correlated
    /// events varies like that of fewer independent ones: if successive Gaussian draws have the correlation r, the
    /// events of two frames at a distance of k frames have at most the correlation r^k.
    pub(crate) fn largest_share(&self, frames: f64) -> f64 {
        if self.probability == 0.0 {
            return 0.0;
        }
        let independent = (frames * (1.0 - self.correlation) / (1.0 + self.correlation)).max(1.0);
        let variance = independent * self.probability * (1.0 - self.probability);
        let linear = LN_BILLION / 3.0;
        let excess = linear + libm::sqrt(linear * linear + 2.0 * LN_BILLION * variance);
        (self.probability + excess / independent).min(1.0)
    }

    /// Returns true if the event happens to frame number `frame`. The probability is the share of frames,
    /// with and without correlation.
    #[inline]
    pub(crate) fn happens(&self, stream: Stream, frame: u64, last: &mut LastDraw) -> bool {
        if self.correlation == 0.0 {
            return stream.fraction(frame) < self.probability;
        }
        let z = last.next(self.correlation, normal_quantile(stream.fraction(frame)));
        normal_cdf(z) < self.probability
    }
}

impl LastDraw {
    /// Returns the next value of an AR(1) process with standard normal values, and stores it.
    #[inline]
    pub(crate) fn next(&mut self, correlation: f64, innovation: f64) -> f64 {
        let value = match self.0 {
            None => innovation,
            Some(last) => correlation * last + libm::sqrt(1.0 - correlation * correlation) * innovation,
        };
        self.0 = Some(value);
        value
    }
}
