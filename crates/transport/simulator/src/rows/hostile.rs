//! T9: a policer, random loss, and a path with a rate that falls to a hundredth.

use super::path::{bbr, one_flow, return_path, run};
use super::{Gate, Measured, RowError};
use crate::{LinkSpec, PACKET, PolicerSpec, ideal_goodput, ideal_rate};
use millrace_types::{BitRate, Duration, Time};

/// Measures row T9 of docs/gates.md: policers, random loss, and a path with a falling rate.
pub(super) fn hostile(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    policer(report)?;
    random_loss(report)?;
    cut(report)
}

fn policer(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let mut forward = LinkSpec::new(&[("rate", "200Mbps"), ("delay", "25ms")])?;
    forward.policer = Some(PolicerSpec {
        rate: BitRate::from_kbps(100_000),
        bucket: 20 * PACKET,
    });
    let mut simulation = one_flow(bbr(1), &forward, return_path("25ms")?)?;
    let (from, to) = (Time::from_secs(5), Time::from_secs(45));
    run(&mut simulation, to)?;
    let flow = simulation.report(0);
    let (sent, arrived) = (flow.sent.rate(from, to), flow.arrived.rate(from, to));
    let measured = |quantity: &str, gate, reached, packets| Measured {
        case: format!("T9 policer at R/2: {quantity}"),
        conditions: "200 Mbit/s, RTT 50 ms".to_owned(),
        gate,
        target: None,
        reached,
        unit: "",
        packets,
    };
    report(measured(
        "share lost",
        Gate::AtMost(0.05),
        1.0 - arrived / sent,
        simulation.packets(),
    ));
    report(measured(
        "arrived / (R/2)",
        Gate::AtLeast(0.9),
        arrived / 100e6,
        0,
    ));
    Ok(())
}

fn random_loss(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for seed in 1..=3 {
        let forward = LinkSpec::new(&[("rate", "200Mbps"), ("delay", "50ms"), ("loss", "3%")])?;
        let mut simulation = one_flow(bbr(seed), &forward, return_path("50ms")?)?;
        let (from, to) = (Time::from_secs(5), Time::from_secs(25));
        run(&mut simulation, to)?;
        let goodput = simulation.report(0).goodput.rate(from, to);
        report(Measured {
            case: format!("T9 goodput / Ideal, loss 3 %, seed {seed}"),
            conditions: "200 Mbit/s, RTT 100 ms".to_owned(),
            gate: Gate::AtLeast(0.9),
            target: None,
            reached: goodput / ideal_goodput(200e6, 0.03),
            unit: "",
            packets: simulation.packets(),
        });
    }
    Ok(())
}

fn cut(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for (queue, rtt_ms) in [("250ms", 50), ("64KiB", 50), ("250ms", 200)] {
        let delay = format!("{}ms", rtt_ms / 2);
        let full = [("rate", "500Mbps"), ("delay", delay.as_str()), ("queue", "250ms")];
        let less = [("rate", "5Mbps"), ("delay", delay.as_str()), ("queue", queue)];
        let mut simulation = one_flow(bbr(1), &LinkSpec::new(&full)?, return_path(&delay)?)?;
        let at = Time::from_secs(6);
        simulation.reconfigure_at(at, 0, LinkSpec::new(&less)?.path);
        let from = at + 5 * Duration::from_millis(rtt_ms) + Duration::from_secs(1);
        let to = from + Duration::from_secs(10);
        run(&mut simulation, to)?;
        let flow = simulation.report(0);
        let (sent, arrived) = (flow.sent.rate(from, to), flow.arrived.rate(from, to));
        let measured = |quantity: &str, gate, reached, packets| Measured {
            case: format!("T9 cut to R/100, RTT {rtt_ms} ms, queue {queue}: {quantity}"),
            conditions: "500 Mbit/s, 10 s from 5 RTT and 1 s on".to_owned(),
            gate,
            target: None,
            reached,
            unit: "",
            packets,
        };
        report(measured(
            "sent / arrived",
            Gate::AtMost(2.0),
            sent / arrived,
            simulation.packets(),
        ));
        report(measured(
            "arrived / possible",
            Gate::AtLeast(0.7),
            arrived / ideal_rate(5e6),
            0,
        ));
    }
    Ok(())
}
