//! The records of the experiment `wan`.

use serde::{Deserialize, Serialize};

use crate::gated::{Missing, Value};

/// The error of the delay in one run over veth pairs: the measured delay minus the asked delay, minus the
/// median of the run at 0 ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// The system: `millrace-wan`, or `netem`.
    pub system: String,
    /// The number of the round, from 0.
    pub round: usize,
    /// The size of the frames in bytes, without check sequence.
    pub frame: usize,
    /// The rate in frames per second.
    pub pps: u32,
    /// The delay that was asked for, in milliseconds.
    pub asked_ms: f64,
    /// The number of frames that arrived.
    pub frames: usize,
    /// The number of frames that did not arrive.
    pub lost: usize,
    /// The number of frames that left earlier than asked.
    pub early: usize,
    /// The median of the time between the two stamps at 0 ms, in microseconds.
    pub baseline_us: f64,
    /// The median of the error's absolute value in microseconds.
    pub p50_us: f64,
    /// The 99th percentile in microseconds.
    pub p99_us: f64,
    /// The largest value in microseconds.
    pub max_us: f64,
}

/// A rate that was asked for, and the rate of the frames that arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealisedRate {
    /// The system: `virtual time`, `millrace-wan` or `tbf`.
    pub system: String,
    /// The number of the round, from 0.
    pub round: usize,
    /// The asked rate in bits per second.
    pub asked_bps: f64,
    /// The rate in bits per second of the frames that arrived.
    pub realised_bps: f64,
    /// The number of frames that arrived.
    pub frames: usize,
}

/// The lengths of runs of lost frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossRuns {
    /// The settings of the loss.
    pub loss: String,
    /// The shares of runs of 1, 2, 3, … frames, by the model.
    pub asked: Vec<f64>,
    /// The shares of the runs that were counted.
    pub realised: Vec<f64>,
    /// The number of runs.
    pub runs: usize,
}

/// A record of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WanRecord {
    /// A value of a row.
    Value(Value),
    /// The error of the delay in one run.
    Delay(DelayError),
    Rate(RealisedRate),
    /// The lengths of runs of lost frames.
    Runs(LossRuns),
    /// A row that could not be measured.
    Missing(Missing),
}
