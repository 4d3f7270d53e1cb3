//! Paths and flows that the rows share.

use super::RowError;
use crate::{FlowSpec, LinkSpec, PACKET, Simulation};
use millrace_transport::congestion::Controller;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_types::Time;
use millrace_wan_emulator::PathConfig;

/// Returns our controller with its defaults.
pub(super) fn bbr(seed: u64) -> Box<dyn Controller> {
    Box::new(Bbr::new(BbrConfig::new(PACKET, seed), Time::ZERO))
}

/// Returns a return path with a delay.
pub(super) fn return_path(delay: &str) -> Result<PathConfig, RowError> {
    Ok(LinkSpec::new(&[("delay", delay)])?.path)
}

/// Returns a simulation of one endless flow.
pub(super) fn one_flow(
    controller: Box<dyn Controller>,
    forward: &LinkSpec,
    return_path: PathConfig,
) -> Result<Simulation, RowError> {
    let mut simulation = Simulation::new(7);
    let link = simulation.add_link(forward)?;
    simulation.add_flow(FlowSpec {
        controller,
        start: Time::ZERO,
        link,
        return_path,
        bytes: None,
    })?;
    Ok(simulation)
}

/// Runs until a time, and checks the balances.
pub(super) fn run(simulation: &mut Simulation, end: Time) -> Result<(), RowError> {
    simulation.run_until(end);
    Ok(simulation.check()?)
}

/// Returns half of a round-trip time in milliseconds, as a text for the emulator's configuration.
pub(super) fn one_way(rtt_ms: f64) -> String {
    format!("{}us", (rtt_ms * 500.0).round())
}
