//! The accuracy of a meter and a shaper: rates from 1 Mbit/s to 5 Gbit/s, three frame sizes, one and two workers.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::quantities::QOS;
use super::record::{Mechanism, RateResult};
use crate::figure;
use crate::hugepages::HugePages;
use crate::peer::millrace::{BRIDGE, Forwarder, Millrace};
use crate::peer::{Load, Peer, PeerError, ofctl};
use crate::record::Record;
use crate::run::{RoundError, Run, RunError, replenish_huge_pages};
use crate::workload::{Shape, Sink, Sizes, Workload};
use millrace_process::{ThreadTimes, pause, run_tool};

/// The seed of the workload, the same in every run.
const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// Frame sizes with check sequence in bytes.
const SIZES: [u16; 3] = [64, 512, 1500];
/// Rates in bits per second.
const RATES: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 5_000_000_000];
/// The duration of a measurement, in windows of the run: five seconds in a full run.
const WINDOWS: f64 = 5.0 / 1.5;
/// The time for a new rate to use up its burst, which is 20 ms for a meter.
const SETTLE: Duration = Duration::from_millis(250);

/// Huge pages, released after the daemon has ended.
type Pages = (Option<HugePages>, Option<HugePages>);

/// Bytes that passed and that were offered, and the time of the reading in seconds by the clock of the daemon.
#[derive(Debug, Clone, Copy)]
struct Reading {
    passed: u64,
    offered: u64,
    seconds: f64,
}

/// Measures all rates, and records the largest deviation of each mechanism.
pub(super) fn run(run: &mut Run<'_>) -> Result<(), RoundError> {
    let mut worst = [None; 2];
    for workers in [1, 2] {
        for size in SIZES {
            let (forwarder, _pages) = start(run, workers, size)?;
            for (mechanism, worst) in Mechanism::ALL.into_iter().zip(&mut worst) {
                let rates = RATES
                    .iter()
                    .filter(|rate| !run.length.quick || **rate != 10_000_000);
                for rate in rates.copied().collect::<Vec<u64>>() {
                    let result = measure_rate(run, &forwarder, mechanism, workers, size, rate)?;
                    *worst = larger(*worst, result.error().map(|error| error.abs() * 100.0));
                    print(run, &result);
                    run.add(Record::RateResult(Box::new(result)))?;
                }
                remove_limit(&forwarder, mechanism)?;
            }
        }
    }
    for (mechanism, worst) in Mechanism::ALL.into_iter().zip(worst) {
        if let Some(quantity) = figure::find(QOS, &format!("{}-error", mechanism.name())) {
            let system = Millrace::Default.name();
            match worst {
                Some(worst) => run.figure(system, 0, quantity, worst)?,
                None => run.not_measured(system, quantity, "no rate was exceeded by the offered load")?,
            }
        }
    }
    Ok(())
}

/// Returns the larger of two deviations, as far as they were measured.
fn larger(worst: Option<f64>, error: Option<f64>) -> Option<f64> {
    worst.into_iter().chain(error).reduce(f64::max)
}

fn print(run: &mut Run<'_>, result: &RateResult) {
    let error = result.error().map_or_else(
        || format!("only {:.1} Mbit/s were offered", result.offered_bps / 1e6),
        |error| format!("{:+.2} %", error * 100.0),
    );
    run.progress(&format!(
        "  {:<7} {} worker(s) {:>5} bytes {:>6} Mbit/s: {:>10.3} Mbit/s, {error}",
        result.mechanism.name(),
        result.workers,
        result.frame_size,
        result.asked_bps / 1e6,
        result.measured_bps / 1e6,
    ));
}

/// Starts a daemon with as many workers and ingress ports; all packets leave by the first sink.
fn start(run: &mut Run<'_>, workers: usize, size: u16) -> Result<(Forwarder, Pages), RoundError> {
    let name = format!("{QOS}/{workers}.{size}");
    let dir = run.resources(&name, workers, 0).dir;
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
    let pages = run.huge_pages(Millrace::Default.memory_mib(&load));
    let mib = pages.as_ref().map_or(0, |(mib, _)| *mib);
    let resources = run.resources(&name, workers, mib);
    let more = replenish_huge_pages(&resources)?;
    let forwarder = Millrace::Default.launch(&resources, &load)?;
    // The queue has no limits; it only counts.
    forwarder.set_port(Sink::First.port(), "queue", &json!([{"id": 0}]))?;
    run.add(Record::Start {
        case: QOS.to_owned(),
        system: Millrace::Default.name().to_owned(),
        round: 0,
        commands: forwarder.commands.clone(),
        install_s: None,
        install_bytes: None,
        flows: 1,
        warm_up_s: SETTLE.as_secs_f64(),
    })?;
    Ok((forwarder, (pages.map(|(_, pages)| pages), more)))
}

/// Configures a rate and measures it.
fn measure_rate(
    run: &Run<'_>,
    forwarder: &Forwarder,
    mechanism: Mechanism,
    workers: usize,
    frame_size: u16,
    rate: u64,
) -> Result<RateResult, PeerError> {
    configure_rate(forwarder, mechanism, rate)?;
    pause(SETTLE)?;
    let threads = ThreadTimes::of(forwarder.daemon.pid());
    let before = read(forwarder, mechanism)?;
    pause(run.length.window.mul_f64(WINDOWS))?;
    let after = read(forwarder, mechanism)?;
    let core_share = ThreadTimes::of(forwarder.daemon.pid()).core_share_since(&threads, workers);
    let seconds = (after.seconds - before.seconds).max(1e-9);
    let bps = |before: u64, after: u64| after.saturating_sub(before) as f64 * 8.0 / seconds;
    Ok(RateResult {
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
    run_tool(ofctl::command(verb, &forwarder.target).arg(text))?;
    Ok(())
}

/// Sets the rate of a mechanism in bits per second.
fn configure_rate(forwarder: &Forwarder, mechanism: Mechanism, rate: u64) -> Result<(), PeerError> {
    match mechanism {
        Mechanism::Meter => {
            let meter = format!("meter=1,kbps,band=type=drop,rate={}", rate / 1_000);
            // The meter of the previous rate is deleted together with the entries that use it.
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

/// Removes the limit of the rate.
fn remove_limit(forwarder: &Forwarder, mechanism: Mechanism) -> Result<(), PeerError> {
    ofctl(forwarder, "add-flow", "actions=output:2")?;
    match mechanism {
        Mechanism::Meter => ofctl(forwarder, "del-meters", "meter=1"),
        Mechanism::Shaper => forwarder.set_port(Sink::First.port(), "rate", &Value::Null),
    }
}

/// Reads the counters of a mechanism.
fn read(forwarder: &Forwarder, mechanism: Mechanism) -> Result<Reading, PeerError> {
    let unreadable = |text: String| PeerError::Unreadable {
        system: "millrace",
        what: "expected the counters of a meter and of a queue",
        text,
    };
    match mechanism {
        Mechanism::Meter => {
            let meters = forwarder.client.meters(BRIDGE)?;
            let meter = meters.first().ok_or_else(|| unreadable("no meter".to_owned()))?;
            // The passed bytes are read from the queue. The difference of the two counters of the meter would be
            // wrong: they are read one after the other, and a low rate passes less in a second than arrives in
            // between.
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
            // The offered bytes are read from the ingress ports, as with several workers packets are also dropped
            // before the queue.
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

#[cfg(test)]
mod tests {
    use super::larger;

    #[test]
    fn a_deviation_that_was_not_measured_is_not_zero() {
        assert_eq!(larger(None, None), None);
        assert_eq!(larger(None, Some(0.5)), Some(0.5));
        assert_eq!(larger(Some(0.5), None), Some(0.5));
        assert_eq!(larger(Some(0.5), Some(0.7)), Some(0.7));
    }
}
