//! The latency of urgent packets while others overload the port: without other packets, in a queue with strict
//! priority, and in the same queue as all others.

use std::fs;

use serde_json::json;

use super::quantities::QOS;
use crate::figure;
use crate::generate::{End, Generator, Latency, Scheduling, socket};
use crate::peer::millrace::{Forwarder, Millrace};
use crate::peer::{Load, Peer, PeerError, ofctl, replay};
use crate::record::Record;
use crate::run::{RoundError, Run, RunError, replenish_huge_pages};
use crate::workload::{Shape, Sink, Sizes, Workload};
use millrace_process::{ThreadTimes, pause, pin_process, run_tool};

/// The seed of the workload, the same in every run.
const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// The huge pages of a generator in MiB: its pool and EAL.
const GENERATOR_MIB: u64 = 160;
/// The rate of the port.
const RATE: &str = "1Gbps";
/// Urgent packets per second, of 64 bytes.
const URGENT_PPS: f64 = 10_000.0;
/// The size of the other packets in bytes. They are offered at full rate.
const BULK_SIZE: u16 = 1500;
/// The number of the port that receives the other packets.
const BULK_PORT: u32 = 5;
/// The duration of a phase, in windows of the run.
const WINDOWS: u32 = 3;

/// The phases: name, whether the port is overloaded, and the queue of the urgent packets.
const PHASES: [(&str, bool, u32); 3] = [("alone", false, 7), ("priority", true, 7), ("same", true, 0)];

/// Measures the latency of urgent packets in each phase.
pub(super) fn run(run: &mut Run<'_>) -> Result<(), RoundError> {
    let name = format!("{QOS}/wait");
    let dir = run.resources(&name, 1, 0).dir;
    fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
    let file = |name: &str, size: u16| -> Result<_, RunError> {
        let path = dir.join(name);
        Workload::new(Shape::OneRule, SEED)
            .write_packets(&path, &Sizes::Fixed(size), SEED)
            .map_err(RunError::file(&path))?;
        Ok(path)
    };
    let (urgent, bulk) = (file("urgent.pcap", 64)?, file("bulk.pcap", BULK_SIZE)?);
    let flows = dir.join("flows");
    fs::write(&flows, "actions=output:2\n").map_err(RunError::file(&flows))?;
    let load = Load {
        flows,
        flows_len: 1,
        ingress: vec![urgent],
        packets_len: 0,
        first_sink: None,
        memif: Some(socket(&dir)),
    };
    let pages = run.huge_pages(Millrace::Default.memory_mib(&load) + GENERATOR_MIB);
    let mib = pages.as_ref().map_or(0, |(mib, _)| *mib);
    let resources = run.resources(&name, 1, mib);
    let _more = replenish_huge_pages(&resources)?;
    let forwarder = Millrace::Default.launch(&resources, &load)?;
    pin_process(forwarder.daemon.pid(), resources.control_core);
    let sink = Sink::First.port();
    forwarder.set_port(sink, "rate", &json!(RATE))?;
    forwarder.set_port(sink, "queue", &json!([{"id": 7, "priority": 7}]))?;
    let mut generator = Generator::start(&resources, &load, &Millrace::Default, Scheduling::Normal)?;
    let length = run.length.window * WINDOWS;
    for (phase, is_overloaded, queue) in PHASES {
        urgent_through(&forwarder, queue)?;
        if is_overloaded && phase != "same" {
            let port = json!({
                "name": "bulk",
                "number": BULK_PORT,
                "device": replay("net_pcap5", &bulk),
            });
            forwarder.add_port(port)?;
        }
        let threads = ThreadTimes::of(forwarder.daemon.pid());
        generator.begin(Some(URGENT_PPS), Some(length))?;
        pause(length)?;
        let core_share = ThreadTimes::of(forwarder.daemon.pid()).core_share_since(&threads, 1);
        let end = generator.end(length)?;
        record(run, phase, &end)?;
        run.add(Record::Trial {
            case: QOS.to_owned(),
            system: Millrace::Default.name().to_owned(),
            round: 0,
            purpose: phase.to_owned(),
            core_share,
            end: Box::new(end),
        })?;
    }
    Ok(())
}

/// Records the latency and the loss of a phase.
fn record(run: &mut Run<'_>, phase: &str, end: &End) -> Result<(), RunError> {
    let system = Millrace::Default.name();
    for (name, us) in percentiles(&end.latency_attended) {
        if let Some(quantity) = figure::find(QOS, &format!("{phase}-{name}")) {
            match end.latency_attended.count {
                // While the queue is full, all packets may be lost.
                0 => run.not_measured(system, quantity, "no urgent packet returned")?,
                _ => run.figure(system, 0, quantity, us)?,
            }
        }
    }
    match figure::find(QOS, &format!("{phase}-lost")) {
        Some(quantity) => run.figure(system, 0, quantity, end.loss() * 100.0),
        None => Ok(()),
    }
}

/// Assigns the packets of the generator to a queue.
fn urgent_through(forwarder: &Forwarder, queue: u32) -> Result<(), PeerError> {
    let flow = format!("priority=40000,in_port=1,actions=set_queue:{queue},output:2");
    run_tool(ofctl::command("add-flow", &forwarder.target).arg(flow))?;
    Ok(())
}

/// Returns the percentiles of a table in microseconds, with their names.
fn percentiles(latency: &Latency) -> [(&'static str, f64); 3] {
    [
        ("p50", latency.p50_ns),
        ("p99", latency.p99_ns),
        ("max", latency.max_ns),
    ]
    .map(|(name, ns)| (name, ns as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunLength;

    #[test]
    fn every_phase_and_percentile_is_a_quantity_of_the_table() {
        for (phase, ..) in PHASES {
            for (name, _) in percentiles(&Latency::default()) {
                assert!(
                    figure::find(QOS, &format!("{phase}-{name}")).is_some(),
                    "{phase}-{name}"
                );
            }
        }
    }

    #[test]
    fn a_scheduler_that_drops_urgent_packets_does_not_meet_its_bounds() {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        let verdicts = |sent: u64, returned: u64| {
            let folder = tempfile::tempdir().unwrap();
            let mut progress = |_: &str| {};
            let daemon = folder.path().join("millraced");
            let mut run = Run::new(RunLength::QUICK, daemon, 0, folder.path(), &mut progress).unwrap();
            let mut end = End {
                lost: sent - returned,
                ..End::default()
            };
            end.counters.sent = sent;
            end.latency_attended.count = returned;
            end.latency_attended.p99_ns = 100_000;
            record(&mut run, "priority", &end).unwrap();
            ["priority-p99", "priority-lost"].map(|name| {
                let quantity = figure::find(QOS, name).unwrap();
                let system = Millrace::Default.name();
                (
                    quantity.verdict(run.records(), system),
                    quantity.failure(run.records(), system).is_some(),
                )
            })
        };
        assert_eq!(verdicts(10_000, 9995), [(Some(true), false), (Some(true), false)]);
        assert_eq!(verdicts(10_000, 500), [(Some(true), false), (Some(false), false)]);
        assert_eq!(verdicts(10_000, 0), [(None, true), (Some(false), false)]);
    }
}
