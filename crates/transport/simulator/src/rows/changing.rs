//! T9, continued: a path that becomes longer, and loss near and above what the user tolerates.

use super::path::{one_flow, return_path, run};
use super::{Gate, Measured, RowError};
use crate::{LinkSpec, PACKET, ideal_goodput, ideal_rate};
use millrace_transport::congestion::Controller;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig, LOSS_TOLERANCE_MAX};
use millrace_types::{Duration, Time};

/// The rate of all paths in this part, in bits a second.
const RATE: f64 = 50e6;

/// Measures paths that change, and paths that lose much.
pub(super) fn changing(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    longer(report)?;
    shorter(report)?;
    tolerated(report)?;
    half_lost(report)
}

fn controller(seed: u64, loss_tolerance: Option<f64>) -> Box<dyn Controller> {
    let mut config = BbrConfig::new(PACKET, seed);
    if let Some(tolerance) = loss_tolerance {
        config.loss_tolerance = tolerance;
    }
    Box::new(Bbr::new(config, Time::ZERO))
}

/// Measures the rate from a second after a change of the delay on, for four seconds.
fn change(
    before: &str,
    after: &str,
    seed: u64,
    (case, gate): (&str, f64),
    report: &mut dyn FnMut(Measured),
) -> Result<(), RowError> {
    let forward = |delay| LinkSpec::new(&[("rate", "50Mbps"), ("delay", delay), ("queue", "200ms")]);
    let mut simulation = one_flow(controller(seed, None), &forward(before)?, return_path("20ms")?)?;
    let at = Time::from_secs(10);
    simulation.reconfigure_at(at, 0, forward(after)?.path);
    let (from, to) = (at + Duration::from_secs(1), at + Duration::from_secs(5));
    run(&mut simulation, to)?;
    report(Measured {
        case: format!("T9 {case}: arrived / possible, seed {seed}"),
        conditions: "50 Mbit/s, from 1 s after the change on, for 4 s".to_owned(),
        gate: Gate::AtLeast(gate),
        target: None,
        reached: simulation.report(0).arrived.rate(from, to) / ideal_rate(RATE),
        unit: "",
        packets: simulation.packets(),
    });
    Ok(())
}

fn longer(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for seed in 1..=3 {
        change("20ms", "180ms", seed, ("path from 40 to 200 ms", 0.8), report)?;
    }
    Ok(())
}

fn shorter(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    change("180ms", "20ms", 1, ("path from 200 to 40 ms", 0.8), report)
}

fn tolerated(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for (loss, rtt_ms) in [(0.13, 40), (0.13, 200), (0.10, 100)] {
        let delay = format!("{}ms", rtt_ms / 2);
        let percent = format!("{}%", loss * 100.0);
        let forward = LinkSpec::new(&[("rate", "50Mbps"), ("delay", &delay), ("loss", &percent)])?;
        let controller = controller(1, Some(LOSS_TOLERANCE_MAX));
        let mut simulation = one_flow(controller, &forward, return_path(&delay)?)?;
        let (from, to) = (Time::from_secs(5), Time::from_secs(35));
        run(&mut simulation, to)?;
        report(Measured {
            case: format!("T9 goodput / Ideal, loss {percent}, tolerance 15 %, RTT {rtt_ms} ms"),
            conditions: "50 Mbit/s, 30 s".to_owned(),
            gate: Gate::AtLeast(0.8),
            target: None,
            reached: simulation.report(0).goodput.rate(from, to) / ideal_goodput(RATE, loss),
            unit: "",
            packets: simulation.packets(),
        });
    }
    Ok(())
}

/// Measures a path that loses half in one direction: more than any tolerance, and the circuit breaker's limit.
fn half_lost(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for (loss, gate) in [("40%", 1.0), ("50%", 0.5), ("60%", 0.1)] {
        let forward = LinkSpec::new(&[("rate", "50Mbps"), ("delay", "20ms"), ("loss", loss)])?;
        let mut simulation = one_flow(controller(1, None), &forward, return_path("20ms")?)?;
        let (from, to) = (Time::from_secs(5), Time::from_secs(35));
        run(&mut simulation, to)?;
        report(Measured {
            case: format!("T9 goodput, one-way loss {loss}"),
            conditions: "50 Mbit/s, RTT 40 ms, 30 s".to_owned(),
            gate: Gate::AtLeast(gate),
            target: None,
            reached: simulation.report(0).goodput.rate(from, to) / 1e6,
            unit: "Mbit/s",
            packets: simulation.packets(),
        });
    }
    Ok(())
}
