//! The length of a run, and its recorder.

use super::error::IpsBenchError;
use super::record::IpsRecord;
use crate::gated::recorder::{self, gated_record};

/// The number of rounds and the duration of each measurement.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// Rounds, of which medians are judged.
    pub rounds: usize,
    /// Time of each measurement in seconds.
    pub seconds: f64,
    /// True if the run is shorter than the gates ask for.
    pub quick: bool,
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, IpsRecord>;

gated_record!(IpsRecord, Ips, "ips", IpsBenchError);
