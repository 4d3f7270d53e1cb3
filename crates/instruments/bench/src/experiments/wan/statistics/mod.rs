//! Gate W5 (docs/gates.md), in virtual time: the statistics of every distribution and loss model, and the outcomes
//! of frames in random bursts. A separate test judges each distribution and model against formulas of the literature.
//!
//! Seeds are fixed, so that every run gives the same result. The significance level is 0.001 everywhere.
//! `tests/interop` has a second judge, in Python.

mod cuts;
mod delays;
pub(super) mod judge;
pub(super) mod losses;

use super::error::WanBenchError;
use super::recorder::Recorder;

/// Measures row W5.
pub(super) fn run(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    delays::distributions(recorder)?;
    delays::correlation(recorder)?;
    delays::independence(recorder)?;
    losses::runs(recorder)?;
    losses::exact(recorder)?;
    losses::shares(recorder)?;
    losses::outages(recorder)?;
    cuts::run(recorder)
}
