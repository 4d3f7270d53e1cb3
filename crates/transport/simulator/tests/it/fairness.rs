//! T8: fairness among our flows, their queue, and what they take from CUBIC beside what others take.
//!
//! Harm is the share of its rate alone that a flow loses (Ware et al., HotNets 2019). The gate is BBR version 1's harm; with
//! four BDP of buffer ours is above that and below CUBIC's own, and there CUBIC's is the gate.

use crate::paths::{at_least, at_most, back, bbr, link};
use millrace_transport::congestion::Controller;
use millrace_transport_simulator::measure::jain;
use millrace_transport_simulator::{FlowSpec, PACKET, Simulation, rivals};
use millrace_types::{Duration, Time};

/// Runs flows over one link; returns their rates in bit/s from one second to another.
fn rates(
    settings: &[(&str, &str)],
    flows: Vec<(Box<dyn Controller>, String, u64)>,
    from: u64,
    to: u64,
) -> Vec<f64> {
    let mut simulation = Simulation::new(11);
    let link = simulation.add_link(&link(settings)).unwrap();
    let count = flows.len();
    for (controller, return_delay, start_ms) in flows {
        simulation
            .add_flow(FlowSpec {
                controller,
                start: Time::from_millis(start_ms),
                link,
                back: back(&return_delay),
                bytes: None,
            })
            .unwrap();
    }
    let (from, to) = (Time::from_secs(from), Time::from_secs(to));
    simulation.run_until(to);
    let rates: Vec<f64> = (0..count)
        .map(|flow| simulation.report(flow).arrived.rate(from, to))
        .collect();
    let shares: Vec<String> = rates.iter().map(|rate| format!("{:.1}", rate / 1e6)).collect();
    println!("    Mbit/s: {}", shares.join(" "));
    rates
}

#[test]
fn t8_two_four_and_eight_flows_share_alike() {
    for count in [2, 4, 8] {
        let flows = (0..count)
            .map(|index| (bbr(index), "20ms".to_owned(), index * 700))
            .collect();
        let settings = [("rate", "60Mbps"), ("delay", "20ms"), ("queue", "100ms")];
        let rates = rates(&settings, flows, 30, 90);
        at_least(&format!("T8 Jain's index of {count} flows"), jain(&rates), 0.95);
    }
}

#[test]
fn t8_a_tenth_of_the_round_trip_time_takes_no_more_than_its_weight() {
    for (queue, name) in [("50ms", "0.5 BDP"), ("200ms", "2 BDP")] {
        let flows = vec![(bbr(1), "5ms".to_owned(), 0), (bbr(2), "95ms".to_owned(), 0)];
        let settings = [("rate", "60Mbps"), ("delay", "5ms"), ("queue", queue)];
        let rates = rates(&settings, flows, 30, 90);
        let weaker = rates[0].min(rates[1]) / (rates[0] + rates[1]);
        at_least(
            &format!("T8 weaker share at RTT 10:1, queue {name} of the longer"),
            weaker,
            0.15,
        );
    }
}

#[test]
fn t8_one_flow_queues_no_more_than_half_a_bdp_in_a_buffer_of_four() {
    for rtt_ms in [20, 100] {
        let (delay, queue) = (format!("{}ms", rtt_ms / 2), format!("{}ms", 4 * rtt_ms));
        let settings = [
            ("rate", "100Mbps"),
            ("delay", delay.as_str()),
            ("queue", queue.as_str()),
        ];
        let mut simulation = Simulation::new(3);
        let link = simulation.add_link(&link(&settings)).unwrap();
        simulation
            .add_flow(FlowSpec {
                controller: bbr(1),
                start: Time::ZERO,
                link,
                back: back(&delay),
                bytes: None,
            })
            .unwrap();
        simulation.measure_queues_from(Time::from_secs(5));
        simulation.run_until(Time::from_secs(35));
        let p95 = simulation.report(0).queue.quantile(0.95);
        let share = p95.as_secs_f64() / Duration::from_millis(rtt_ms).as_secs_f64();
        at_most(
            &format!("T8 queue of one flow, p95 in BDP, RTT {rtt_ms} ms"),
            share,
            0.5,
        );
    }
}

#[test]
fn t8_cubic_loses_no_more_to_our_flow_than_to_bbr_version_1_or_to_another_cubic() {
    let rtt_ms = 40;
    for (buffer, name) in [(0.1, "0.1 BDP"), (1.0, "1 BDP"), (4.0, "4 BDP")] {
        let queue = format!("{}us", (f64::from(rtt_ms) * 1_000.0 * buffer) as u64);
        let settings = [("rate", "60Mbps"), ("delay", "20ms"), ("queue", queue.as_str())];
        let cubic = || -> Box<dyn Controller> { Box::new(rivals::Cubic::new(PACKET)) };
        let beside = |other: Option<Box<dyn Controller>>| {
            let mut flows = vec![(cubic(), "20ms".to_owned(), 0)];
            flows.extend(other.map(|other| (other, "20ms".to_owned(), 2_000)));
            rates(&settings, flows, 20, 80)[0]
        };
        let alone = beside(None);
        let harm = |rate: f64| ((alone - rate) / alone).max(0.0);
        let ours = harm(beside(Some(bbr(1))));
        let theirs = harm(beside(Some(Box::new(rivals::Bbr1::new(PACKET)))));
        let its_own = harm(beside(Some(cubic())));
        println!("    buffer {name}: harm by ours {ours:.3}, BBR v1 {theirs:.3}, CUBIC {its_own:.3}");
        at_most(
            &format!("T8 harm to CUBIC, buffer {name}"),
            ours,
            theirs.max(its_own),
        );
    }
}
