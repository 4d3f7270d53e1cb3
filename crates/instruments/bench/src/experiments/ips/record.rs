//! The records of the experiment `ips`.

use serde::{Deserialize, Serialize};

use crate::gated::{Missing, Value};

/// A record of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IpsRecord {
    /// A value of a row.
    Value(Value),
    /// A row that could not be measured.
    Missing(Missing),
    /// The rate of a system.
    Rate(Rate),
}

/// The rate of a system on one core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The system: `monitor`, `one rule` or `14,000 rules`.
    pub system: String,
    /// The number of the round, from 0.
    pub round: usize,
    /// The size of frames with data, in bytes, with their frame check sequence.
    pub frame: u16,
    /// Packets per second.
    pub packets_per_second: f64,
    /// Time in seconds for reading and compiling the rules.
    pub load_s: f64,
}
