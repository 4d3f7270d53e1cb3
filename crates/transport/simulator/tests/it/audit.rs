//! Conservation: every packet is delivered, dropped by name, or in flight.

use crate::budget;
use crate::paths::{bbr, link, one_flow, return_path};
use millrace_transport_simulator::{PACKET, PolicerSpec};
use millrace_types::{BitRate, Time};

#[test]
fn every_packet_of_a_hostile_path_is_delivered_dropped_by_name_or_in_flight_at_any_moment() {
    let mut forward = link(&[
        ("rate", "50Mbps"),
        ("delay", "50ms"),
        ("queue", "20ms"),
        ("loss", "ge:2%,burst=4"),
        ("duplicate", "1%"),
        ("jitter", "5ms"),
        ("order", "reordering"),
    ]);
    forward.policer = Some(PolicerSpec {
        rate: BitRate::from_kbps(40_000),
        bucket: 20 * PACKET,
    });
    let mut simulation = one_flow(bbr(1), &forward, return_path("50ms"));
    for step in 1..=40 {
        simulation.run_until(Time::from_millis(100 * step));
        simulation.check().unwrap();
    }
    let counters = simulation.link(0);
    assert!(counters.policed > 0 && counters.duplicated > 0);
    let names: Vec<&str> = counters.drops().map(|(name, _)| name).collect();
    assert!(names.contains(&"loss_gilbert_elliott"), "{names:?}");
    assert!(
        counters.released < counters.offered,
        "losses are no releases: {counters:?}"
    );
    budget::spend(simulation.packets());
}
