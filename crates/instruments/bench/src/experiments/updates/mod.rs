//! The experiment `updates`: 10,000 flow_mods a second while packets of 100,000 flows pass, seen from outside:
//! a generator counts every packet and measures its latency, in quiet and in busy runs in turn.
//!
//! Half of the flow_mods are about flows whose packets pass just then: a second entry of a higher priority
//! comes, takes the flow's packets to the other port, and goes again. The others come and go beside the traffic.
//!
//! Loss and latency are of packets offered at a share of what the switch can do. Flat out, in separate
//! windows, what comes back is the throughput.
//!
//! The generator, the switch's control plane and whoever sends the flow_mods share one core of two. In the
//! paced runs the generator is first in line and sleeps for [`SLEEP_US`] of every [`EVERY_US`] microseconds
//! whether there are updates or not: what it adds to latency is in quiet and in busy runs alike, and the
//! updates happen in these sleeps, while packets are on their way. Everything but the forwarding thread is kept off its
//! core. Flat out it competes like anybody, and how
//! much it could offer is in the records.

use std::time::Duration;

use crate::figure::{self, UPDATES};
use crate::generate::test_bed::{Offer, Outcome, TestBed};
use crate::generate::{End, Share};
use crate::peer::Peer;
use crate::peer::channel::{Channel, Taken};
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Header, Shape, Sizes, Workload};
use millrace_process::{ProcessError, confine_self, pause};

const FLOWS: usize = 100_000;
/// Flow_mods a second.
const RATE: u32 = 10_000;
/// Another seed than that of the traffic.
const OTHER_SEED: u64 = 9;
/// How often the generator sleeps, and for how long.
const EVERY_US: u32 = 40;
/// As above.
const SLEEP_US: u32 = 20;
/// What is offered in paced runs, as a share of what comes back flat out.
const LOAD: f64 = 0.3;
/// No more than this is offered, packets a second: a memif of 4,096 packets holds 4 ms of it, and a virtual
/// machine takes a core away for one or two now and then.
const OFFERED_MAX: f64 = 1e6;
/// How long before and after a measurement flow_mods are sent.
const MARGIN: Duration = Duration::from_millis(300);
/// How long a paced run is, in windows.
const WINDOWS: u32 = 3;

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(150);

/// Measures these systems. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.tell(&format!(
        "{UPDATES}: 10,000 flow_mods a second while packets of 100,000 flows pass, each packet followed"
    ));
    for peer in peers.iter().filter(|peer| peer.applies_rules()) {
        match system(run, peer.as_ref()) {
            Ok(()) => {}
            Err(TurnError::Peer(error)) => run.failed(UPDATES, peer.name(), &error)?,
            Err(TurnError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

fn system(run: &mut Run<'_>, peer: &dyn Peer) -> Result<(), TurnError> {
    let offer = Offer::new(run, UPDATES, Shape::Exact(FLOWS), &Sizes::SMALLEST)?;
    let headers = changing(&offer.workload);
    let share = Share::Ahead {
        every_us: EVERY_US,
        for_us: SLEEP_US,
    };
    let mut test_bed = TestBed::start(run, UPDATES, peer, &offer, share)?;
    let Some(target) = test_bed.running.target() else {
        return Ok(());
    };
    // Caches know every flow when it has passed once or twice.
    test_bed.offer(None, peer_warm_up(run))?;
    let core = test_bed.site.control_core;
    let (window, length) = (run.effort.window, run.effort.window * WINDOWS);
    for round in 0..run.effort.rounds {
        let quiet_flat = test_bed.offer(None, window)?;
        let (busy_flat, _) =
            while_changing(&target, &headers, window, core, || test_bed.offer(None, window))?;
        let rate = (quiet_flat.end.rx_pps * LOAD).min(OFFERED_MAX);
        let quiet = test_bed.offer(Some(rate), length)?;
        let (busy, taken) = while_changing(&target, &headers, length, core, || {
            test_bed.offer(Some(rate), length)
        })?;
        let accepted = taken.confirmed.saturating_sub(taken.errors) as f64 / taken.seconds;
        // Packets during whose journey the generator itself lost its core say nothing of the switch.
        let tail = |end: &End| end.latency_attended.p999_ns as f64 / 1e3;
        for (name, value) in [
            ("flow-mods", accepted),
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
    Duration::from_secs(if run.effort.quick { 1 } else { 3 })
}

/// The flows that flow_mods are about: every other one is of the traffic.
fn changing(traffic: &Workload) -> Vec<Header> {
    let others = Workload::new(Shape::Exact(FLOWS), OTHER_SEED);
    let pairs = traffic.headers.iter().zip(&others.headers);
    pairs.flat_map(|(own, other)| [*own, *other]).collect()
}

/// Measures while flow_mods come, from a little before to a little after.
fn while_changing(
    target: &str,
    headers: &[Header],
    length: Duration,
    core: u32,
    measure: impl FnOnce() -> Result<Outcome, TurnError>,
) -> Result<(Outcome, Taken), TurnError> {
    let (target, headers) = (target.to_owned(), headers.to_vec());
    let updates = std::thread::spawn(move || {
        confine_self(core);
        Channel::connect(&target)?.flow_mods(&headers, RATE, length + 2 * MARGIN)
    });
    pause(MARGIN)?;
    let outcome = measure();
    let taken = updates.join().unwrap_or_else(|_| {
        Err(ProcessError::Tool {
            command: "flow_mods".to_owned(),
            output: "the sender has died".to_owned(),
        })
    });
    Ok((outcome?, taken?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_flow_that_changes_is_of_the_traffic() {
        let traffic = Workload::new(Shape::Exact(10), 1);
        let changing = changing(&traffic);
        assert_eq!(changing.len(), 20);
        assert!(
            traffic
                .headers
                .iter()
                .zip(changing.chunks(2))
                .all(|(own, pair)| pair[0] == *own)
        );
    }
}
