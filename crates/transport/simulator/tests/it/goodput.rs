//! T1 and T2 in part: goodput of one flow against what the path can carry, and against rivals on the same path. `examples/grid.rs` has the whole grid.

use crate::paths::{at_least, at_most, back, bbr, link, one_flow};
use millrace_transport::congestion::Controller;
use millrace_transport_simulator::{PACKET, ideal_goodput, rivals};
use millrace_types::Time;

fn goodput(settings: &[(&str, &str)], delay: &str, loss: f64, gate: f64) {
    let mut all = vec![("rate", "100Mbps"), ("delay", delay)];
    all.extend_from_slice(settings);
    let mut simulation = one_flow(bbr(1), &link(&all), back(delay));
    let (from, to) = (Time::from_secs(8), Time::from_secs(20));
    simulation.run_until(to);
    let goodput = simulation.report(0).goodput.rate(from, to);
    at_least(
        &format!("T1 goodput / Ideal, {all:?}"),
        goodput / ideal_goodput(100e6, loss),
        gate,
    );
}

#[test]
fn t1_random_loss_costs_what_it_takes_and_no_more() {
    for delay in ["5ms", "50ms", "200ms"] {
        goodput(&[], delay, 0.0, 0.95);
        goodput(&[("loss", "1%")], delay, 0.01, 0.95);
        goodput(&[("loss", "2%")], delay, 0.02, 0.93);
    }
}

#[test]
fn t1_loss_in_bursts_and_jitter_leave_nine_tenths() {
    for delay in ["5ms", "50ms", "200ms"] {
        goodput(&[("loss", "ge:1%,burst=8")], delay, 0.01, 0.90);
        goodput(&[("jitter", "1ms,normal")], delay, 0.0, 0.90);
    }
    for delay in ["50ms", "200ms"] {
        goodput(
            &[("jitter", "5ms,normal"), ("order", "reordering")],
            delay,
            0.0,
            0.90,
        );
        goodput(
            &[("jitter", "5ms,normal"), ("order", "reordering"), ("loss", "2%")],
            delay,
            0.02,
            0.90,
        );
    }
}

#[test]
fn t2_on_a_lossy_path_cubic_and_reno_starve_and_bbr_version_1_is_matched() {
    let cubic = || -> Box<dyn Controller> { Box::new(rivals::Cubic::new(PACKET)) };
    let reno = || -> Box<dyn Controller> { Box::new(rivals::Reno::new(PACKET)) };
    let bbr1 = || -> Box<dyn Controller> { Box::new(rivals::Bbr1::new(PACKET)) };
    for (delay, loss, gate) in [("50ms", "1%", 50.0), ("200ms", "2%", 500.0)] {
        let forward = link(&[("rate", "200Mbps"), ("delay", delay), ("loss", loss)]);
        let rate = |controller| {
            let mut simulation = one_flow(controller, &forward, back(delay));
            let (from, to) = (Time::from_secs(10), Time::from_secs(20));
            simulation.run_until(to);
            simulation.report(0).goodput.rate(from, to)
        };
        let ours = rate(bbr(1));
        let case = format!("200 Mbit/s, {delay} each way, {loss}");
        at_least(&format!("T2 times CUBIC, {case}"), ours / rate(cubic()), gate);
        at_least(&format!("T2 times Reno, {case}"), ours / rate(reno()), gate);
        at_least(&format!("T2 times BBR v1, {case}"), ours / rate(bbr1()), 0.98);
    }
}

#[test]
fn t6_feedback_takes_a_thousandth_of_a_clean_path_and_a_two_hundredth_of_a_lossy_one() {
    for (rate, delay) in [("1Gbps", "5ms"), ("100Mbps", "50ms"), ("200Mbps", "200ms")] {
        for (loss, gate) in [("0%", 0.1), ("2%", 0.5)] {
            let forward = link(&[("rate", rate), ("delay", delay), ("loss", loss)]);
            let mut simulation = one_flow(bbr(1), &forward, back(delay));
            let to = Time::from_secs(if rate == "1Gbps" { 3 } else { 12 });
            simulation.run_until(to);
            let report = simulation.report(0);
            let percent =
                100.0 * report.receiver.feedback_bytes as f64 / report.arrived.bytes(Time::ZERO, to) as f64;
            at_most(
                &format!("T6 feedback in %, {rate}, {delay} each way, {loss}"),
                percent,
                gate,
            );
        }
    }
}
