//! The length of a run, and its recorder.

use super::record::NicRecord;
use crate::gated::program::ProgramError;
use crate::gated::recorder::{self, gated_record};

/// The number of rounds, and the sizes of one.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// Rounds, of which medians are judged.
    pub rounds: usize,
    /// The number of windows of each variant.
    pub windows: u32,
    /// The number of flows.
    pub flows: u32,
    /// The seconds for each case of `forward` and `hostile` in the mode `auto`; 0 for none.
    pub governed_seconds: u32,
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, NicRecord>;

gated_record!(NicRecord, Nic, "nic", ProgramError);
