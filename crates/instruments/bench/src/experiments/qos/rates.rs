//! Rates from 1 Mbit/s to 5 Gbit/s, three sizes of frames, one worker and two, a meter and a shaper.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Held, Mechanism};
use crate::experiments::forward::top_up;
use crate::figure::{self, QOS};
use crate::hugepages::HugePages;
use crate::peer::millrace::{BRIDGE, Forwarder, Millrace};
use crate::peer::{Load, Peer, PeerError, ofctl};
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Shape, Sink, Sizes, Workload};
use millrace_process::{ThreadTimes, pause, tool};

/// The seed of workloads: every run offers the same.
const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// Sizes of frames, with check sequence, bytes.
const SIZES: [u16; 3] = [64, 512, 1500];
/// Rates, bits a second.
const RATES: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 5_000_000_000];
/// What a rate is measured over, of the run's windows: five seconds in a full run.
const WINDOWS: f64 = 5.0 / 1.5;
/// How long a new rate is let to use up its burst: that of a meter is 20 ms.
const SETTLE: Duration = Duration::from_millis(250);

/// Huge pages, given back after the daemon is gone.
type Pages = (Option<HugePages>, Option<HugePages>);

/// What passed or was offered, bytes, and when that was read, by the daemon's clock.
#[derive(Debug, Clone, Copy)]
struct Reading {
    passed: u64,
    offered: u64,
    seconds: f64,
}

pub(super) fn run(run: &mut Run<'_>) -> Result<(), TurnError> {
    let mut worst = [0.0_f64; 2];
    for workers in [1, 2] {
        for size in SIZES {
            let (forwarder, _pages) = start(run, workers, size)?;
            for (mechanism, worst) in Mechanism::ALL.into_iter().zip(&mut worst) {
                let rates = RATES
                    .iter()
                    .filter(|rate| !run.effort.quick || **rate != 10_000_000);
                for rate in rates.copied().collect::<Vec<u64>>() {
                    let held = hold(run, &forwarder, mechanism, workers, size, rate)?;
                    *worst = held
                        .error()
                        .map_or(*worst, |error| worst.max(error.abs() * 100.0));
                    tell(run, &held);
                    run.add(Record::Held(Box::new(held)))?;
                }
                release(&forwarder, mechanism)?;
            }
        }
    }
    for (mechanism, worst) in Mechanism::ALL.into_iter().zip(worst) {
        if let Some(quantity) = figure::find(QOS, &format!("{}-error", mechanism.name())) {
            run.figure(Millrace::Usual.name(), 0, quantity, worst)?;
        }
    }
    Ok(())
}

fn tell(run: &mut Run<'_>, held: &Held) {
    let error = held.error().map_or_else(
        || format!("only {:.1} Mbit/s came", held.offered_bps / 1e6),
        |error| format!("{:+.2} %", error * 100.0),
    );
    run.tell(&format!(
        "  {:<7} {} worker(s) {:>5} bytes {:>6} Mbit/s: {:>10.3} Mbit/s, {error}",
        held.mechanism.name(),
        held.workers,
        held.frame_size,
        held.asked_bps / 1e6,
        held.measured_bps / 1e6,
    ));
}

/// A daemon with as many workers and ingress ports, everything of which goes to the first sink.
fn start(run: &mut Run<'_>, workers: usize, size: u16) -> Result<(Forwarder, Pages), TurnError> {
    let name = format!("{QOS}/{workers}.{size}");
    let dir = run.site(&name, workers, 0).dir;
    fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
    let flows = dir.join("flows");
    fs::write(&flows, "actions=output:2\n").map_err(RunError::file(&flows))?;
    let workload = Workload::new(Shape::OneRule, SEED);
    let mut load = Load {
        flows,
        flows_len: 1,
        ingress: Vec::new(),
        packets_len: 0,
        first_sink: None,
        memif: None,
    };
    for part in 0..workers {
        let packets = dir.join(format!("packets{part}.pcap"));
        load.packets_len += workload
            .write_part(&packets, &Sizes::Fixed(size), SEED, part, workers)
            .map_err(RunError::file(&packets))?;
        load.ingress.push(packets);
    }
    let pages = run.huge_pages(Millrace::Usual.memory_mib(&load));
    let mib = pages.as_ref().map_or(0, |(mib, _)| *mib);
    let site = run.site(&name, workers, mib);
    let more = top_up(&site)?;
    let forwarder = Millrace::Usual.launch(&site, &load)?;
    // A queue without limits, which counts.
    forwarder.set_port(Sink::First.port(), "queue", &json!([{"id": 0}]))?;
    run.add(Record::Start {
        case: QOS.to_owned(),
        system: Millrace::Usual.name().to_owned(),
        round: 0,
        commands: forwarder.commands.clone(),
        install_s: None,
        install_bytes: None,
        flows: 1,
        warm_up_s: SETTLE.as_secs_f64(),
    })?;
    Ok((forwarder, (pages.map(|(_, pages)| pages), more)))
}

/// Asks for a rate, and measures.
fn hold(
    run: &Run<'_>,
    forwarder: &Forwarder,
    mechanism: Mechanism,
    workers: usize,
    frame_size: u16,
    rate: u64,
) -> Result<Held, PeerError> {
    ask(forwarder, mechanism, rate)?;
    pause(SETTLE)?;
    let threads = ThreadTimes::of(forwarder.daemon.pid());
    let before = read(forwarder, mechanism)?;
    pause(run.effort.window.mul_f64(WINDOWS))?;
    let after = read(forwarder, mechanism)?;
    let core_share = ThreadTimes::of(forwarder.daemon.pid()).core_share_since(&threads, workers);
    let seconds = (after.seconds - before.seconds).max(1e-9);
    let bps = |before: u64, after: u64| after.saturating_sub(before) as f64 * 8.0 / seconds;
    Ok(Held {
        mechanism,
        workers,
        frame_size,
        asked_bps: rate as f64,
        measured_bps: bps(before.passed, after.passed),
        offered_bps: bps(before.offered, after.offered),
        seconds,
        core_share,
    })
}

fn ofctl(forwarder: &Forwarder, verb: &str, text: &str) -> Result<(), PeerError> {
    tool(ofctl::command(verb, &forwarder.target).arg(text))?;
    Ok(())
}

fn ask(forwarder: &Forwarder, mechanism: Mechanism, rate: u64) -> Result<(), PeerError> {
    match mechanism {
        Mechanism::Meter => {
            let meter = format!("meter=1,kbps,band=type=drop,rate={}", rate / 1_000);
            // The one before, if there is one, goes with the entries that use it.
            ofctl(forwarder, "del-meters", "meter=1")?;
            ofctl(forwarder, "add-meter", &meter)?;
            ofctl(forwarder, "add-flow", "actions=meter:1,output:2")
        }
        Mechanism::Shaper => {
            ofctl(forwarder, "add-flow", "actions=output:2")?;
            forwarder.set_port(Sink::First.port(), "rate", &json!(format!("{rate}bps")))
        }
    }
}

/// Back to where packets pass freely.
fn release(forwarder: &Forwarder, mechanism: Mechanism) -> Result<(), PeerError> {
    ofctl(forwarder, "add-flow", "actions=output:2")?;
    match mechanism {
        Mechanism::Meter => ofctl(forwarder, "del-meters", "meter=1"),
        Mechanism::Shaper => forwarder.set_port(Sink::First.port(), "rate", &Value::Null),
    }
}

fn read(forwarder: &Forwarder, mechanism: Mechanism) -> Result<Reading, PeerError> {
    let unreadable = |text: String| PeerError::Unreadable {
        system: "millrace",
        what: "what was counted",
        text,
    };
    match mechanism {
        Mechanism::Meter => {
            let meters = forwarder.client.meters(BRIDGE)?;
            let meter = meters.first().ok_or_else(|| unreadable("no meter".to_owned()))?;
            // Not what came less what was dropped: the two are read one after the other, and differ by more in between
            // than a low rate lets through in a second.
            let queues = forwarder.client.queues(BRIDGE)?;
            let queue = queues.first().ok_or_else(|| unreadable("no queue".to_owned()))?;
            Ok(Reading {
                passed: queue.bytes,
                offered: meter.bytes,
                seconds: queue.duration_seconds,
            })
        }
        Mechanism::Shaper => {
            let queues = forwarder.client.queues(BRIDGE)?;
            let queue = queues.first().ok_or_else(|| unreadable("no queue".to_owned()))?;
            // With several workers the queue is not where all is dropped: what others have too much of never gets there.
            let ports = forwarder.client.ports(BRIDGE)?;
            let ingress = ports
                .iter()
                .filter(|port| Sink::ALL.iter().all(|sink| sink.port() != port.number));
            Ok(Reading {
                passed: queue.bytes,
                offered: ingress.map(|port| port.rx.bytes).sum(),
                seconds: queue.duration_seconds,
            })
        }
    }
}
