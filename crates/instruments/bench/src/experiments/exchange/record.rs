//! The records of the experiment `exchange`.

use serde::{Deserialize, Serialize};

use crate::gated::{Missing, Value};

/// A record of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExchangeRecord {
    /// A value of a row.
    Value(Value),
    /// A row that could not be measured.
    Missing(Missing),
    /// The counts of an interval.
    Sample(Sample),
    /// A moment of loss.
    Moment(Moment),
}

/// A moment in which frames of circuits that nobody changed were lost, apart from cuts of a trunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the start.
    pub at: f64,
    /// The time in ms in which the frames were sent.
    pub ms: f64,
    /// The lost frames.
    pub frames: u64,
    /// The frames among them that a ring dropped while the machine did not run its reader.
    pub asleep: u64,
    /// The stalls and the drops of that time, in words, with times relative to `at`.
    pub beside: Vec<String>,
}

impl Moment {
    /// Returns a line for people.
    pub(super) fn words(&self) -> String {
        format!(
            "  {:.3} s: {} frames lost in {} ms, {} of them at a ring whose reader did not run: {}",
            self.at,
            self.frames,
            self.ms,
            self.asleep,
            self.beside.join("; ")
        )
    }
}

/// The counts of an interval, at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// The rate of all frames that were sent in the interval, without FCS, in Mbit/s.
    pub load_mbps: f64,
    /// The changes that the engine accepted in the interval, for each second.
    pub changes_per_s: f64,
    /// The frames at a wrong tenant since the start.
    pub wrong: u64,
    /// The frames of circuits that nobody changed that are missing since the start, also those lost at a cut of a trunk.
    pub missing: u64,
    /// The 95th percentile of the times of the interval's orders, in ms; `None` without an order.
    pub order_ms: Option<f64>,
    /// The resident memory of the engine in MB; `None` while it does not run.
    pub engine_mb: Option<f64>,
    /// The resident memory of each switch in MB.
    pub switches_mb: Vec<Option<f64>>,
}

impl Sample {
    /// Returns a line for people.
    pub(super) fn words(&self) -> String {
        format!(
            "  {:.0} s: {:.0} Mbit/s, {:.1} changes a second, {} frames at a wrong tenant, {} missing",
            self.at, self.load_mbps, self.changes_per_s, self.wrong, self.missing
        )
    }
}
