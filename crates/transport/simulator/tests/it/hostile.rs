//! T9: a policer, random loss, and a path that is cut to a hundredth.

use crate::paths::{at_least, at_most, back, bbr, link, one_flow};
use millrace_transport_simulator::{PACKET, PolicerSpec, ideal_goodput, ideal_rate};
use millrace_types::{BitRate, Duration, Time};

#[test]
fn t9_a_policer_at_half_the_rate_loses_little_and_passes_its_rate() {
    let mut forward = link(&[("rate", "200Mbps"), ("delay", "25ms")]);
    forward.policer = Some(PolicerSpec {
        rate: BitRate::from_kbps(100_000),
        bucket: 20 * PACKET,
    });
    let mut simulation = one_flow(bbr(1), &forward, back("25ms"));
    let (from, to) = (Time::from_secs(5), Time::from_secs(45));
    simulation.run_until(to);
    let report = simulation.report(0);
    let (sent, arrived) = (report.sent.rate(from, to), report.arrived.rate(from, to));
    at_most("T9 policer at R/2: share lost", 1.0 - arrived / sent, 0.05);
    at_least("T9 policer at R/2: arrived / (R/2)", arrived / 100e6, 0.9);
}

#[test]
fn t9_three_percent_of_random_loss_leave_nine_tenths_of_what_is_possible() {
    for seed in 1..=3 {
        let forward = link(&[("rate", "200Mbps"), ("delay", "50ms"), ("loss", "3%")]);
        let mut simulation = one_flow(bbr(seed), &forward, back("50ms"));
        let (from, to) = (Time::from_secs(5), Time::from_secs(25));
        simulation.run_until(to);
        let goodput = simulation.report(0).goodput.rate(from, to);
        at_least(
            "T9 3 % random: goodput / Ideal",
            goodput / ideal_goodput(200e6, 0.03),
            0.9,
        );
    }
}

#[test]
fn t9_a_path_cut_to_a_hundredth_is_not_flooded_for_longer_than_five_round_trips_and_a_second() {
    for (queue, rtt_ms) in [("250ms", 50), ("64KiB", 50), ("250ms", 200)] {
        let delay = format!("{}ms", rtt_ms / 2);
        let full = [("rate", "500Mbps"), ("delay", delay.as_str()), ("queue", "250ms")];
        let cut = [("rate", "5Mbps"), ("delay", delay.as_str()), ("queue", queue)];
        let mut simulation = one_flow(bbr(1), &link(&full), back(&delay));
        let at = Time::from_secs(6);
        simulation.reconfigure_at(at, 0, link(&cut).path);
        let from = at + 5 * Duration::from_millis(rtt_ms) + Duration::from_secs(1);
        let to = from + Duration::from_secs(10);
        simulation.run_until(to);
        let report = simulation.report(0);
        for second in 0..10 {
            let begin = from + Duration::from_secs(second);
            let end = begin + Duration::from_secs(1);
            println!(
                "    second {second}: sent {:.2}, arrived {:.2} Mbit/s",
                report.sent.rate(begin, end) / 1e6,
                report.arrived.rate(begin, end) / 1e6
            );
        }
        let (sent, arrived) = (report.sent.rate(from, to), report.arrived.rate(from, to));
        let case = format!("T9 cut to R/100, queue {queue}, RTT {rtt_ms} ms");
        at_most(&format!("{case}: sent / arrived"), sent / arrived, 2.0);
        at_least(
            &format!("{case}: arrived / possible"),
            arrived / ideal_rate(5e6),
            0.7,
        );
    }
}
