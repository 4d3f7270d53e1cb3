//! The length of a run, and its recorder.

use std::time::Duration;

use super::error::WanBenchError;
use super::record::WanRecord;
use crate::gated::recorder::{self, gated_record};

/// The number of rounds and the size of each measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// The number of rounds of live measurements and of rates of one core.
    pub rounds: usize,
    /// The time for which frames are sent in each live run.
    pub window: Duration,
    /// The number of frames from which a distribution is judged.
    pub frames: u64,
    /// The number of frames of a measurement of one core.
    pub core_frames: u64,
    /// The duration of the measurement at 10 Gbit/s x 200 ms, in seconds of virtual time.
    pub virtual_s: u64,
    /// The number of changes under traffic.
    pub changes: u32,
    /// The number of frames of each run in the guest, one a millisecond.
    pub guest_frames: usize,
    /// True if the run is shorter than the gates ask for.
    pub quick: bool,
}

impl RunLength {
    /// The run length of the gates.
    pub const FULL: RunLength = RunLength {
        rounds: 5,
        window: Duration::from_secs(2),
        frames: 1_000_000,
        core_frames: 16_000_000,
        virtual_s: 60,
        changes: 1000,
        guest_frames: 8000,
        quick: false,
    };
    /// A run of about three minutes that shows the shape of the result.
    pub const QUICK: RunLength = RunLength {
        rounds: 1,
        window: Duration::from_millis(500),
        frames: 200_000,
        core_frames: 2_000_000,
        virtual_s: 3,
        changes: 1000,
        guest_frames: 2000,
        quick: true,
    };
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, WanRecord>;

gated_record!(WanRecord, Wan, "wan", WanBenchError);
