//! Paths, flows and gates that the tests share.

use millrace_transport::congestion::Controller;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport_simulator::{FlowSpec, LinkSpec, PACKET, Simulation};
use millrace_types::Time;
use millrace_wan_emulator::PathConfig;

/// Returns the BBR controller of the transport, with its default settings.
pub(crate) fn bbr(seed: u64) -> Box<dyn Controller> {
    Box::new(Bbr::new(BbrConfig::new(PACKET, seed), Time::ZERO))
}

/// Returns a link from the emulator's keys and texts.
pub(crate) fn link(settings: &[(&str, &str)]) -> LinkSpec {
    LinkSpec::new(settings).unwrap()
}

/// Returns a return path with a delay.
pub(crate) fn return_path(delay: &str) -> PathConfig {
    link(&[("delay", delay)]).path
}

/// Returns a simulation of one endless flow.
pub(crate) fn one_flow(
    controller: Box<dyn Controller>,
    forward: &LinkSpec,
    return_path: PathConfig,
) -> Simulation {
    let mut simulation = Simulation::new(7);
    let link = simulation.add_link(forward).unwrap();
    simulation
        .add_flow(FlowSpec {
            controller,
            start: Time::ZERO,
            link,
            return_path,
            bytes: None,
        })
        .unwrap();
    simulation
}

/// Prints the figure of a case, and fails if it is below the gate.
pub(crate) fn at_least(case: &str, reached: f64, gate: f64) {
    println!("{case:66} asked >= {gate:7.3}  reached {reached:7.3}");
    assert!(reached >= gate, "{case}: {reached:.4} is below {gate}");
}

/// Prints the figure of a case, and fails if it is above the gate.
pub(crate) fn at_most(case: &str, reached: f64, gate: f64) {
    println!("{case:66} asked <= {gate:7.3}  reached {reached:7.3}");
    assert!(reached <= gate, "{case}: {reached:.4} is above {gate}");
}
