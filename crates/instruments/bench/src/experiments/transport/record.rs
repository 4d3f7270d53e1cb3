//! The records of the experiment `transport`.

use serde::{Deserialize, Serialize};

use crate::gated::{Missing, Value};

/// A transfer over the emulated path, by any system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transferred {
    /// The system: `millrace`, `iperf3 cubic`, `uftp`, …
    pub system: String,
    /// The number of the round, from 0.
    pub round: usize,
    /// The round-trip time of the path in milliseconds.
    pub rtt_ms: f64,
    /// The loss of the path in words.
    pub loss: String,
    /// The number of receivers.
    pub receivers: usize,
    /// The rate of the link in bit/s.
    pub link_bps: f64,
    /// Payload for each receiver in bit/s, after the ramp where the system shows it.
    pub goodput_bps: f64,
    /// Payload to all receivers in bytes.
    pub bytes: f64,
    /// The duration in seconds.
    pub seconds: f64,
    /// The processor time of the sender and of the receivers in seconds.
    pub cpu_s: [f64; 2],
    /// Bytes of frames that came back to the sender, and that left it.
    pub frames: [f64; 2],
}

/// A record of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportRecord {
    /// A value of a row.
    Value(Value),
    /// A row that could not be measured.
    Missing(Missing),
    /// A transfer.
    Transferred(Transferred),
}
