//! The length of a run, and its recorder.

use super::record::RouteRecord;
use crate::gated::program::ProgramError;
use crate::gated::recorder::{self, gated_record};

/// The number of rounds, and the sizes of the full table.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// Rounds, of which medians are judged.
    pub rounds: usize,
    /// The number of IPv4 routes.
    pub routes_v4: usize,
    /// The number of IPv6 routes.
    pub routes_v6: usize,
    /// True if DPDK's own structures are measured, too.
    pub has_peers: bool,
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, RouteRecord>;

gated_record!(RouteRecord, Route, "route", ProgramError);
