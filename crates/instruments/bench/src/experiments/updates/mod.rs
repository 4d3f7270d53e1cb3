//! The experiment `updates`: 10,000 flow_mods per second while packets of 100,000 flows pass. A generator counts every
//! packet and measures its latency, in turn without and with updates.
//!
//! Half of the flow_mods concern flows whose packets pass: a second entry of a higher priority is added, moves the
//! packets to the other port, and is deleted. The other half add and delete entries of other flows.
//!
//! Loss and latency are measured at a share of the rate of the switch. The throughput is measured at full rate, in
//! windows of its own.
//!
//! On two cores the generator, the control plane of the switch and the sender of the flow_mods share one core. In runs
//! at a limited rate the generator has real-time priority and sleeps for [`SLEEP_US`] of every [`EVERY_US`]
//! microseconds, with and without updates: its influence on latency is the same in both, and updates are processed
//! during these sleeps, while packets are in transit. All threads but the forwarding one are kept off its core. At
//! full rate the generator has no priority, and the records say how much it offered.

pub(crate) mod quantities;

use std::time::{Duration, Instant};

use crate::figure;
use crate::generate::test_bed::{OfferedLoad, Outcome, TestBed};
use crate::generate::{End, Scheduling};
use crate::peer::Peer;
use crate::peer::channel::Channel;
use crate::record::Record;
use crate::run::{RoundError, Run, RunError};
use crate::workload::{Header, Shape, Sizes, Workload};
use millrace_process::{ProcessError, pause, pin_current_thread};
use quantities::UPDATES;

const FLOWS: usize = 100_000;
/// Flow_mods per second.
const RATE: u32 = 10_000;
/// The seed of the entries of other flows, different from that of the traffic.
const OTHER_SEED: u64 = 9;
/// The period of the sleeps of the generator in microseconds.
const EVERY_US: u32 = 40;
/// The duration of a sleep in microseconds.
const SLEEP_US: u32 = 20;
/// The offered load of runs at a limited rate, as a share of the packets received per second at full rate.
const LOAD: f64 = 0.3;
/// The largest offered load in packets per second. A memif ring of 4,096 packets holds 4 ms of this load, and a
/// virtual machine sometimes loses a core for one or two milliseconds.
const OFFERED_MAX: f64 = 1e6;
/// The time before and after a measurement in which flow_mods are sent.
const MARGIN: Duration = Duration::from_millis(300);
/// The duration of a run at a limited rate, in windows.
const WINDOWS: u32 = 3;

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(150);

/// Measures these systems. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.progress(&format!(
        "{UPDATES}: 10,000 flow_mods a second while packets of 100,000 flows pass; every packet is counted"
    ));
    for peer in peers.iter().filter(|peer| peer.applies_rules()) {
        match system(run, peer.as_ref()) {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => run.failed(UPDATES, peer.name(), &error)?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Measures a system in all rounds, in turn without and with updates.
fn system(run: &mut Run<'_>, peer: &dyn Peer) -> Result<(), RoundError> {
    let offer = OfferedLoad::new(run, UPDATES, Shape::Exact(FLOWS), &Sizes::SMALLEST)?;
    let headers = updated_flows(&offer.workload);
    let scheduling = Scheduling::Fifo {
        every_us: EVERY_US,
        for_us: SLEEP_US,
    };
    let mut test_bed = TestBed::start(run, UPDATES, peer, &offer, scheduling)?;
    let Some(target) = test_bed.running.target() else {
        return Ok(());
    };
    // Caches know a flow after one or two of its packets.
    test_bed.offer(None, peer_warm_up(run))?;
    let core = test_bed.resources.control_core;
    let (window, length) = (run.length.window, run.length.window * WINDOWS);
    for round in 0..run.length.rounds {
        let quiet_flat = test_bed.offer(None, window)?;
        let (busy_flat, accepted_flat) =
            while_updating(&target, &headers, window, core, || test_bed.offer(None, window))?;
        let rate = (quiet_flat.end.rx_pps * LOAD).min(OFFERED_MAX);
        let quiet = test_bed.offer(Some(rate), length)?;
        let (busy, accepted) = while_updating(&target, &headers, length, core, || {
            test_bed.offer(Some(rate), length)
        })?;
        // Packets that were in transit while the generator lost its core are left out.
        let tail = |end: &End| end.latency_attended.p999_ns as f64 / 1e3;
        for (name, value) in [
            ("flow-mods", accepted),
            ("full-mods", accepted_flat),
            ("lost", busy.end.lost as f64),
            ("quiet-lost", quiet.end.lost as f64),
            ("throughput", busy_flat.end.rx_pps / quiet_flat.end.rx_pps),
            ("p99.9", tail(&busy.end) / tail(&quiet.end)),
            ("quiet-p99.9", tail(&quiet.end)),
            ("busy-p99.9", tail(&busy.end)),
        ] {
            if let Some(quantity) = figure::find(UPDATES, name) {
                run.figure(peer.name(), round, quantity, value)?;
            }
        }
        for (purpose, outcome) in [
            ("quiet, flat out", quiet_flat),
            ("busy, flat out", busy_flat),
            ("quiet", quiet),
            ("busy", busy),
        ] {
            run.add(Record::Trial {
                case: UPDATES.to_owned(),
                system: peer.name().to_owned(),
                round,
                purpose: purpose.to_owned(),
                core_share: outcome.core_share,
                end: Box::new(outcome.end),
            })?;
        }
    }
    Ok(())
}

fn peer_warm_up(run: &Run<'_>) -> Duration {
    Duration::from_secs(if run.length.quick { 1 } else { 3 })
}

/// Returns the flows that the flow_mods change: every second flow belongs to the traffic.
fn updated_flows(traffic: &Workload) -> Vec<Header> {
    let others = Workload::new(Shape::Exact(FLOWS), OTHER_SEED);
    let pairs = traffic.headers.iter().zip(&others.headers);
    pairs.flat_map(|(own, other)| [*own, *other]).collect()
}

/// Runs `measure`, which takes `length`, while flow_mods are sent, which begin [`MARGIN`] before the measurement and
/// end as much after it. Returns its result, and the flow_mods that were accepted per second meanwhile.
fn while_updating(
    target: &str,
    headers: &[Header],
    length: Duration,
    core: u32,
    measure: impl FnOnce() -> Result<Outcome, RoundError>,
) -> Result<(Outcome, f64), RoundError> {
    let (target, headers) = (target.to_owned(), headers.to_vec());
    let updates = std::thread::spawn(move || {
        pin_current_thread(core);
        Channel::connect(&target)?.flow_mods(&headers, RATE, length + 2 * MARGIN)
    });
    pause(MARGIN)?;
    let start = Instant::now();
    let outcome = measure();
    let taken = updates.join().unwrap_or_else(|_| {
        Err(ProcessError::Tool {
            command: "flow_mods".to_owned(),
            output: "the sender panicked".to_owned(),
        })
    });
    Ok((outcome?, taken?.rate(start, start + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_updated_flow_belongs_to_the_traffic() {
        let traffic = Workload::new(Shape::Exact(10), 1);
        let updated_flows = updated_flows(&traffic);
        assert_eq!(updated_flows.len(), 20);
        assert!(
            traffic
                .headers
                .iter()
                .zip(updated_flows.chunks(2))
                .all(|(own, pair)| pair[0] == *own)
        );
    }
}
