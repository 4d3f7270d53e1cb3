//! Messages between the program and the poll loop: commands to it, reports from it.

use std::time::Duration;

use crate::control::{Rate, Selection};
use crate::latency::Latencies;
use crate::report::Counters;

/// A command to the loop.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineCommand {
    /// Starts a run, with devices and packets that exist.
    Start(Rate, Option<Duration>, Selection),
    /// Ends the run.
    Stop,
    /// Ends the loop.
    Quit,
}

/// The latencies of an interval of a run.
#[derive(Debug, Default)]
pub struct IntervalLatencies {
    /// The latencies of all packets.
    pub all: Latencies,
    /// The latencies of packets that were not in flight during an absence of the loop.
    pub attended: Latencies,
}

/// A report about the progress of a run.
#[derive(Debug)]
pub struct Progress {
    /// The number of the run, from 1.
    pub run: u64,
    /// The requested rate in packets per second; `None` for `flat`.
    pub rate: Option<f64>,
    /// The time for which packets were sent, in seconds.
    pub seconds: f64,
    /// The counters since the start of the run.
    pub counters: Counters,
    /// The latencies since the previous report.
    pub latencies: Box<IntervalLatencies>,
    /// True if the run has ended.
    pub is_end: bool,
}
