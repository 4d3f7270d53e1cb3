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

/// A path that loses packets, and what the user tolerates.
#[derive(Clone, Copy, Debug)]
struct Tolerated {
    loss: f64,
    /// The loss of the way back, which takes feedback.
    loss_back: f64,
    rtt_ms: u32,
    tolerance: f64,
    /// The time at which the loss begins; before, the path loses nothing.
    begins: Time,
}

fn tolerated(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let usual = Tolerated {
        loss: 0.13,
        loss_back: 0.0,
        rtt_ms: 40,
        tolerance: LOSS_TOLERANCE_MAX,
        begins: Time::ZERO,
    };
    let cases = [
        usual,
        Tolerated { rtt_ms: 200, ..usual },
        Tolerated {
            loss: 0.10,
            rtt_ms: 100,
            ..usual
        },
        Tolerated {
            loss_back: 0.13,
            ..usual
        },
        Tolerated {
            begins: Time::from_secs(10),
            ..usual
        },
        Tolerated {
            tolerance: 0.14,
            ..usual
        },
    ];
    cases.iter().try_for_each(|case| tolerated_case(case, report))
}

/// Measures the goodput from 5 s after the loss has begun, for 30 s, and again for the last 5 s: it must not fall.
fn tolerated_case(given: &Tolerated, report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let Tolerated {
        loss,
        loss_back,
        rtt_ms,
        tolerance,
        begins,
    } = *given;
    let delay = format!("{}ms", rtt_ms / 2);
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let (lossy, lossy_back) = (percent(loss), percent(loss_back));
    let settings = vec![("rate", "50Mbps"), ("delay", &*delay)];
    let clean = LinkSpec::new(&settings)?;
    let forward = LinkSpec::new(&[settings, vec![("loss", &*lossy)]].concat())?;
    let mut way_back = vec![("delay", &*delay)];
    if loss_back > 0.0 {
        way_back.push(("loss", &*lossy_back));
    }
    let first = if begins > Time::ZERO { &clean } else { &forward };
    let way_back = LinkSpec::new(&way_back)?.path;
    let mut simulation = one_flow(controller(1, Some(tolerance)), first, way_back)?;
    if begins > Time::ZERO {
        simulation.reconfigure_at(begins, 0, forward.path);
    }
    let (from, to) = (begins + Duration::from_secs(5), begins + Duration::from_secs(35));
    run(&mut simulation, to)?;
    let goodput = &simulation.report(0).goodput;
    let best = ideal_goodput(RATE, loss);
    let mut case = format!("loss {lossy}, tolerance {}, RTT {rtt_ms} ms", percent(tolerance));
    if loss_back > 0.0 {
        case += ", feedback lost alike";
    }
    if begins > Time::ZERO {
        case += ", from 10 s on";
    }
    let last = to - Duration::from_secs(5);
    for (what, from, conditions) in [
        ("goodput", from, "50 Mbit/s, 30 s"),
        ("goodput at the end", last, "50 Mbit/s, the last 5 s of 35"),
    ] {
        report(Measured {
            case: format!("T9 {what} / Ideal, {case}"),
            conditions: conditions.to_owned(),
            gate: Gate::AtLeast(0.8),
            target: None,
            reached: goodput.rate(from, to) / best,
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
