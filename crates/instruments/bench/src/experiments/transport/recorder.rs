//! The length of a run, and its recorder.

use super::error::TransportBenchError;
use super::record::{Transferred, TransportRecord};
use crate::gated::Row;
use crate::gated::recorder::{self, gated_record};

/// The number of rounds and the size of each measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// The number of rounds of live rows.
    pub rounds: usize,
    /// The duration of a live transfer after its ramp, in seconds, if it runs at the rate of the link.
    pub seconds: u64,
    /// The number of small files of row T10 of docs/gates.md.
    pub small_files: usize,
    /// The number of kills of row T11.
    pub kills: u32,
    /// The least size of the file of row T11 in bytes. It is well above the 64 MiB of its gate, which a transfer that
    /// lost all progress could keep otherwise.
    pub kill_bytes: u64,
    /// True if the run is shorter than the gates ask for.
    pub quick: bool,
}

impl RunLength {
    /// The run length to which the gates refer, as far as one machine can measure it live.
    pub const FULL: RunLength = RunLength {
        rounds: 5,
        seconds: 15,
        small_files: 100_000,
        kills: 200,
        kill_bytes: 512 << 20,
        quick: false,
    };
    /// A run that shows the shape of the result.
    pub const QUICK: RunLength = RunLength {
        rounds: 1,
        seconds: 5,
        small_files: 5_000,
        kills: 10,
        kill_bytes: 192 << 20,
        quick: true,
    };
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, TransportRecord>;

impl Recorder<'_> {
    /// Records and prints a transfer.
    pub(super) fn transferred(&mut self, transfer: &Transferred) -> Result<(), TransportBenchError> {
        let each = transfer.goodput_bps / 1e6;
        let (system, receivers) = (&transfer.system, transfer.receivers);
        (self.progress)(&format!(
            "    {system} to {receivers}, RTT {} ms, {}: {each:.2} Mbit/s",
            transfer.rtt_ms, transfer.loss
        ));
        self.add(TransportRecord::Transferred(transfer.clone()))
    }
}

gated_record!(
    TransportRecord,
    Transport,
    "transport",
    TransportBenchError,
    fn sort(rows: &mut [Row]) {
        super::rows::sort(rows);
    }
);
