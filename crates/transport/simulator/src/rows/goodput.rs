//! T1, T2 and T6: the goodput of one flow, compared with the path's capacity and with rivals on the same
//! path, and the share of its feedback.

use super::path::{bbr, one_flow, one_way, return_path, run};
use super::{Gate, Measured, RowError, Size};
use crate::{LinkSpec, PACKET, ideal_goodput, rivals};
use millrace_transport::congestion::Controller;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_types::Time;

/// A column of the grid: its name, the settings besides rate and delay, the loss that Ideal allows for, and
/// the gate.
type Column = (&'static str, &'static [(&'static str, &'static str)], f64, f64);

const LOSS: [Column; 5] = [
    ("no loss", &[], 0.0, 0.95),
    ("loss 0.1 %", &[("loss", "0.1%")], 0.001, 0.95),
    ("loss 0.5 %", &[("loss", "0.5%")], 0.005, 0.95),
    ("loss 1 %", &[("loss", "1%")], 0.01, 0.95),
    ("loss 2 %", &[("loss", "2%")], 0.02, 0.93),
];
const BURSTS: Column = ("1 % in bursts of 8", &[("loss", "ge:1%,burst=8")], 0.01, 0.90);
/// The jitter at round-trip times from 5 ms to below 50 ms, where real paths have less than 5 ms.
const SHORT_JITTER: Column = ("jitter 1 ms, in order", &[("jitter", "1ms,normal")], 0.0, 0.90);
const JITTER: [Column; 2] = [
    (
        "jitter 5 ms, reordering",
        &[("jitter", "5ms,normal"), ("order", "reordering")],
        0.0,
        0.90,
    ),
    (
        "jitter 5 ms, reordering, loss 2 %",
        &[("jitter", "5ms,normal"), ("order", "reordering"), ("loss", "2%")],
        0.02,
        0.90,
    ),
];
/// The target of T1 for all cells.
const TARGET: f64 = 0.974;

/// Returns the columns of a round-trip time.
fn columns(rtt_ms: f64, size: Size) -> Vec<Column> {
    let mut columns: Vec<Column> = match size {
        Size::Full => LOSS.to_vec(),
        Size::Short => [LOSS[0], LOSS[3], LOSS[4]].to_vec(),
    };
    columns.push(BURSTS);
    if rtt_ms >= 50.0 {
        columns.extend(JITTER);
    } else if rtt_ms >= 5.0 {
        columns.push(SHORT_JITTER);
    }
    columns
}

/// Returns the goodput of one flow between two times, and the packets.
fn rate(
    controller: Box<dyn Controller>,
    forward: &LinkSpec,
    delay: &str,
    from: u64,
    to: u64,
) -> Result<(f64, u64), RowError> {
    let mut simulation = one_flow(controller, forward, return_path(delay)?)?;
    let (from, to) = (Time::from_secs(from), Time::from_secs(to));
    run(&mut simulation, to)?;
    Ok((simulation.report(0).goodput.rate(from, to), simulation.packets()))
}

/// Measures row T1 of docs/gates.md: goodput over paths with random loss, bursts and jitter.
pub(super) fn goodput(size: Size, report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let rtts: &[f64] = match size {
        Size::Full => &[0.2, 10.0, 50.0, 100.0, 200.0, 400.0],
        Size::Short => &[10.0, 100.0, 400.0],
    };
    let (from, to) = (8, if size == Size::Full { 30 } else { 20 });
    for &rtt_ms in rtts {
        let delay = one_way(rtt_ms);
        for (name, settings, loss, gate) in columns(rtt_ms, size) {
            let mut all = vec![("rate", "100Mbps"), ("delay", delay.as_str())];
            all.extend_from_slice(settings);
            let (goodput, packets) = rate(bbr(1), &LinkSpec::new(&all)?, &delay, from, to)?;
            report(Measured {
                case: format!("T1 goodput / Ideal, RTT {rtt_ms} ms, {name}"),
                conditions: format!("100 Mbit/s, {from} to {to} s"),
                gate: Gate::AtLeast(gate),
                target: Some(TARGET),
                reached: goodput / ideal_goodput(100e6, loss),
                unit: "",
                packets,
            });
        }
    }
    Ok(())
}

/// Measures row T2: goodput compared with CUBIC, Reno and BBR version 1.
pub(super) fn rivals(size: Size, report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let cubic = || -> Box<dyn Controller> { Box::new(rivals::Cubic::new(PACKET)) };
    let reno = || -> Box<dyn Controller> { Box::new(rivals::Reno::new(PACKET)) };
    let bbr1 = || -> Box<dyn Controller> { Box::new(rivals::Bbr1::new(PACKET)) };
    let (from, to) = (10, 20);
    for (rtt_ms, loss, factor) in [(100.0, "1%", 50.0), (400.0, "2%", 500.0)] {
        let delay = one_way(rtt_ms);
        let forward = LinkSpec::new(&[("rate", "200Mbps"), ("delay", &delay), ("loss", loss)])?;
        let (ours, own) = rate(bbr(1), &forward, &delay, from, to)?;
        let rivals = [
            ("CUBIC", cubic(), factor, None),
            ("Reno", reno(), factor, None),
            ("BBR v1", bbr1(), 0.98, Some(1.02)),
        ];
        for (name, rival, gate, target) in rivals {
            let (theirs, packets) = rate(rival, &forward, &delay, from, to)?;
            report(Measured {
                case: format!("T2 goodput / {name}'s, RTT {rtt_ms} ms, loss {loss}"),
                conditions: format!("200 Mbit/s, {from} to {to} s"),
                gate: Gate::AtLeast(gate),
                target,
                reached: ours / theirs,
                unit: "",
                packets: own + packets,
            });
        }
    }
    if size == Size::Full {
        for rtt_ms in [10.0, 50.0, 100.0, 200.0, 400.0] {
            for (name, settings, ..) in LOSS {
                let delay = one_way(rtt_ms);
                let mut all = vec![("rate", "100Mbps"), ("delay", delay.as_str())];
                all.extend_from_slice(settings);
                let forward = LinkSpec::new(&all)?;
                let (ours, own) = rate(bbr(1), &forward, &delay, from, to)?;
                let (theirs, packets) = rate(bbr1(), &forward, &delay, from, to)?;
                report(Measured {
                    case: format!("T2 goodput / BBR v1's, RTT {rtt_ms} ms, {name}, 100 Mbit/s"),
                    conditions: format!("100 Mbit/s, {from} to {to} s"),
                    gate: Gate::AtLeast(0.98),
                    target: Some(1.02),
                    reached: ours / theirs,
                    unit: "",
                    packets: own + packets,
                });
            }
        }
    }
    let delay = one_way(200.0);
    let forward = LinkSpec::new(&[("rate", "100Mbps"), ("delay", &delay), ("loss", "10%")])?;
    let config = BbrConfig {
        loss_tolerance: 0.12,
        ..BbrConfig::new(PACKET, 1)
    };
    let tolerant = Box::new(Bbr::new(config, Time::ZERO));
    let (goodput, packets) = rate(tolerant, &forward, &delay, from, to)?;
    report(Measured {
        case: "T2 goodput / Ideal, RTT 200 ms, loss 10 %, --loss-tolerance 12".to_owned(),
        conditions: format!("100 Mbit/s, {from} to {to} s"),
        gate: Gate::AtLeast(0.85),
        target: None,
        reached: goodput / ideal_goodput(100e6, 0.1),
        unit: "",
        packets,
    });
    Ok(())
}

/// Measures a part of row T6: bytes of feedback over bytes of data.
pub(super) fn feedback(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for (link_rate, rtt_ms, seconds) in [("1Gbps", 10.0, 3), ("100Mbps", 100.0, 12), ("200Mbps", 400.0, 12)] {
        for (loss, gate) in [("0%", 0.1), ("2%", 0.5)] {
            let delay = one_way(rtt_ms);
            let forward = LinkSpec::new(&[("rate", link_rate), ("delay", &delay), ("loss", loss)])?;
            let mut simulation = one_flow(bbr(1), &forward, return_path(&delay)?)?;
            let to = Time::from_secs(seconds);
            run(&mut simulation, to)?;
            let flow = simulation.report(0);
            let arrived = flow.arrived.bytes(Time::ZERO, to) as f64;
            report(Measured {
                case: format!("T6 feedback / data, {link_rate}, RTT {rtt_ms} ms, loss {loss}"),
                conditions: format!("{seconds} s"),
                gate: Gate::AtMost(gate),
                target: None,
                reached: 100.0 * flow.receiver.feedback_bytes as f64 / arrived,
                unit: "%",
                packets: simulation.packets(),
            });
        }
    }
    Ok(())
}
