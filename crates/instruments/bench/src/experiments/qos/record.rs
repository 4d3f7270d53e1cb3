//! The records of the experiment `qos`.

use serde::{Deserialize, Serialize};

/// A mechanism that limits a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// A meter with a drop band.
    Meter,
    /// The shaper of a port.
    Shaper,
}

impl Mechanism {
    /// Both mechanisms.
    pub const ALL: [Mechanism; 2] = [Mechanism::Meter, Mechanism::Shaper];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Meter => "meter",
            Mechanism::Shaper => "shaper",
        }
    }
}

/// A configured rate and the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateResult {
    pub mechanism: Mechanism,
    /// The number of workers that share the mechanism.
    pub workers: usize,
    /// The size of frames with check sequence in bytes.
    pub frame_size: u16,
    /// The configured rate in bits per second, of frames without check sequence.
    pub asked_bps: f64,
    /// The measured rate in bits per second.
    pub measured_bps: f64,
    /// The offered rate in bits per second.
    pub offered_bps: f64,
    /// The duration of the measurement in seconds.
    pub seconds: f64,
    /// The share of their cores that the forwarding threads got, 0 to 1.
    pub core_share: f64,
}

/// The offered rate must exceed the configured one by this factor.
const OFFERED_MIN: f64 = 1.02;

impl RateResult {
    /// Returns the relative deviation from the configured rate; `None` if the offered rate was too low.
    pub fn error(&self) -> Option<f64> {
        (self.offered_bps >= self.asked_bps * OFFERED_MIN).then(|| self.measured_bps / self.asked_bps - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_needs_a_higher_offered_rate_than_the_configured_one() {
        let result = |offered_bps| RateResult {
            mechanism: Mechanism::Meter,
            workers: 1,
            frame_size: 64,
            asked_bps: 1e6,
            measured_bps: 0.995e6,
            offered_bps,
            seconds: 5.0,
            core_share: 1.0,
        };
        assert!((result(2e6).error().unwrap() + 0.005).abs() < 1e-9);
        assert_eq!(result(1.0e6).error(), None);
    }
}
