//! The length of a run, and its recorder.

use super::record::ExchangeRecord;
use crate::gated::program::ProgramError;
use crate::gated::recorder::{self, gated_record};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// The duration of the traffic in seconds.
    pub seconds: u32,
    /// The mean rate of all tenants in Mbit/s.
    pub rate_mbps: u32,
    /// Changes a second.
    pub changes: u32,
    /// The number of tenants.
    pub tenants: u32,
}

impl RunLength {
    /// The duration of gate A38 in seconds.
    pub const FULL_S: u32 = 3600;
    /// The duration in seconds from which on the memory of processes is compared.
    pub(super) const MEMORY_FROM_S: u32 = 600;
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, ExchangeRecord>;

gated_record!(ExchangeRecord, Exchange, "exchange", ProgramError);
