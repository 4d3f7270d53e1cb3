//! T8: shares among our flows, their queue, and their harm to CUBIC compared with the harm that other
//! controllers do.
//!
//! Harm is the share of its solo rate that a flow loses alongside another flow (Ware et al., HotNets 2019).

use super::path::{bbr, one_flow, return_path, run};
use super::{Gate, Measured, RowError};
use crate::measure::jain;
use crate::{FlowSpec, LinkSpec, PACKET, Simulation, rivals};
use millrace_transport::congestion::Controller;
use millrace_types::{Duration, Time};

/// The number of runs of our flow alongside CUBIC. The times of its probes are random, so the harm is averaged.
const SEEDS: u64 = 3;

/// A flow: its controller, the delay of its return path, and its start in milliseconds.
type Starter = (Box<dyn Controller>, String, u64);

/// Runs flows over one link. Returns their rates in bit/s between two seconds, and the number of packets.
fn rates(
    settings: &[(&str, &str)],
    flows: Vec<Starter>,
    from: u64,
    to: u64,
) -> Result<(Vec<f64>, u64), RowError> {
    let mut simulation = Simulation::new(11);
    let link = simulation.add_link(&LinkSpec::new(settings)?)?;
    let count = flows.len();
    for (controller, return_delay, start_ms) in flows {
        simulation.add_flow(FlowSpec {
            controller,
            start: Time::from_millis(start_ms),
            link,
            return_path: return_path(&return_delay)?,
            bytes: None,
        })?;
    }
    let (from, to) = (Time::from_secs(from), Time::from_secs(to));
    run(&mut simulation, to)?;
    let rates = (0..count)
        .map(|flow| simulation.report(flow).arrived.rate(from, to))
        .collect();
    Ok((rates, simulation.packets()))
}

/// Measures row T8 of docs/gates.md: equal flows, and flows with round-trip times 10:1.
pub(super) fn sharing(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for count in [2, 4, 8] {
        let flows = (0..count)
            .map(|index| (bbr(index), "20ms".to_owned(), index * 700))
            .collect();
        let settings = [("rate", "60Mbps"), ("delay", "20ms"), ("queue", "100ms")];
        let (rates, packets) = rates(&settings, flows, 30, 80)?;
        report(Measured {
            case: format!("T8 Jain's index of {count} flows"),
            conditions: "60 Mbit/s, RTT 40 ms, queue 100 ms".to_owned(),
            gate: Gate::AtLeast(0.95),
            target: None,
            reached: jain(&rates),
            unit: "",
            packets,
        });
    }
    for (queue, name) in [("50ms", "0.5 BDP"), ("200ms", "2 BDP")] {
        let flows = vec![(bbr(1), "5ms".to_owned(), 0), (bbr(2), "95ms".to_owned(), 0)];
        let settings = [("rate", "60Mbps"), ("delay", "5ms"), ("queue", queue)];
        let (rates, packets) = rates(&settings, flows, 30, 80)?;
        report(Measured {
            case: format!("T8 weaker share at RTT 10:1, queue {name} of the longer"),
            conditions: "60 Mbit/s, RTT 10 and 100 ms".to_owned(),
            gate: Gate::AtLeast(0.15),
            target: None,
            reached: rates[0].min(rates[1]) / (rates[0] + rates[1]),
            unit: "",
            packets,
        });
    }
    Ok(())
}

/// Measures row T8: the queue of one flow in four BDP of buffer.
pub(super) fn queue(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    for rtt_ms in [20, 100] {
        let (delay, queue) = (format!("{}ms", rtt_ms / 2), format!("{}ms", 4 * rtt_ms));
        let settings = [
            ("rate", "100Mbps"),
            ("delay", delay.as_str()),
            ("queue", queue.as_str()),
        ];
        let mut simulation = one_flow(bbr(1), &LinkSpec::new(&settings)?, return_path(&delay)?)?;
        simulation.measure_queues_from(Time::from_secs(5));
        run(&mut simulation, Time::from_secs(35))?;
        let p95 = simulation.report(0).queue.quantile(0.95);
        report(Measured {
            case: format!("T8 queue of one flow, p95, RTT {rtt_ms} ms"),
            conditions: "100 Mbit/s, buffer 4 BDP".to_owned(),
            gate: Gate::AtMost(0.5),
            target: None,
            reached: p95.as_secs_f64() / Duration::from_millis(rtt_ms).as_secs_f64(),
            unit: "BDP",
            packets: simulation.packets(),
        });
    }
    Ok(())
}

/// Measures row T8: harm to CUBIC. The gate is the harm that BBR version 1 does on the same path.
pub(super) fn harm(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let rtt_ms = 40;
    for (buffer, name) in [(0.1, "0.1 BDP"), (1.0, "1 BDP"), (4.0, "4 BDP")] {
        let queue = format!("{}us", (f64::from(rtt_ms) * 1_000.0 * buffer).round());
        let settings = [("rate", "60Mbps"), ("delay", "20ms"), ("queue", queue.as_str())];
        let cubic = || -> Box<dyn Controller> { Box::new(rivals::Cubic::new(PACKET)) };
        let mut moved = 0;
        let mut beside = |other: Option<Box<dyn Controller>>| -> Result<f64, RowError> {
            let mut flows = vec![(cubic(), "20ms".to_owned(), 0)];
            flows.extend(other.map(|other| (other, "20ms".to_owned(), 2_000)));
            let (rates, packets) = rates(&settings, flows, 20, 70)?;
            moved += packets;
            Ok(rates[0])
        };
        let alone = beside(None)?;
        let harm = |rate: f64| ((alone - rate) / alone).max(0.0);
        let mut of_ours = Vec::new();
        for seed in 1..=SEEDS {
            of_ours.push(harm(beside(Some(bbr(seed)))?));
        }
        let ours = of_ours.iter().sum::<f64>() / of_ours.len() as f64;
        let theirs = harm(beside(Some(Box::new(rivals::Bbr1::new(PACKET))))?);
        let its_own = harm(beside(Some(cubic()))?);
        report(Measured {
            case: format!("T8 harm to CUBIC, buffer {name}"),
            conditions: format!("BBR v1's {theirs:.3}; CUBIC's own {its_own:.3}"),
            gate: Gate::AtMost(theirs),
            target: None,
            reached: ours,
            unit: "",
            packets: moved,
        });
    }
    Ok(())
}
