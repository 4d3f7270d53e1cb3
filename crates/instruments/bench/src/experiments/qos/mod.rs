//! The experiment `qos`: whether meters and shapers hold the rates that they are asked for, and how long an urgent packet
//! waits while others overflow. Millrace alone: Open vSwitch on DPDK polices and does not schedule.
//!
//! Packets come flat out from capture files, as in `forward`, with one worker and with two that share the meter or the
//! port. A rate is the difference of two readings of a counter, each with the time at which the daemon itself read
//! it, so that no way to the daemon is in it. The waiting is measured with a generator over memif, as in `latency`.

mod rates;
pub(crate) mod section;
mod wait;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figure::QOS;
use crate::peer::Peer;
use crate::peer::millrace::Millrace;
use crate::run::{Run, RunError, TurnError};

/// What holds a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// A meter with a band that drops.
    Meter,
    /// The rate of a port.
    Shaper,
}

impl Mechanism {
    /// Both.
    pub const ALL: [Mechanism; 2] = [Mechanism::Meter, Mechanism::Shaper];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Meter => "meter",
            Mechanism::Shaper => "shaper",
        }
    }
}

/// A rate that was asked for, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// By what.
    pub mechanism: Mechanism,
    /// How many workers shared it.
    pub workers: usize,
    /// The size of frames, with check sequence, bytes.
    pub frame_size: u16,
    /// What was asked for, bits a second, frames without check sequence.
    pub asked_bps: f64,
    /// What came through.
    pub measured_bps: f64,
    /// What was offered.
    pub offered_bps: f64,
    /// Over how long, seconds.
    pub seconds: f64,
    /// The share of their cores that the forwarding threads had.
    pub core_share: f64,
}

/// Less than this above the rate is no test of it.
const OFFERED_MIN: f64 = 1.02;

impl Held {
    /// How far it is from what was asked for, as a share; `None` if too little was offered to say.
    pub fn error(&self) -> Option<f64> {
        (self.offered_bps >= self.asked_bps * OFFERED_MIN).then(|| self.measured_bps / self.asked_bps - 1.0)
    }
}

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(420);

/// Measures it.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>) -> Result<(), RunError> {
    run.tell(&format!(
        "{QOS}: rates of meters and shapers, and waiting behind an overflowing queue"
    ));
    for part in [rates::run, wait::run] {
        match part(run) {
            Ok(()) => {}
            Err(TurnError::Peer(error)) => run.failed(QOS, Millrace::Usual.name(), &error)?,
            Err(TurnError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_needs_more_packets_than_may_pass() {
        let held = |offered_bps| Held {
            mechanism: Mechanism::Meter,
            workers: 1,
            frame_size: 64,
            asked_bps: 1e6,
            measured_bps: 0.995e6,
            offered_bps,
            seconds: 5.0,
            core_share: 1.0,
        };
        assert!((held(2e6).error().unwrap() + 0.005).abs() < 1e-9);
        assert_eq!(held(1.0e6).error(), None);
    }
}
