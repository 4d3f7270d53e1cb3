//! The experiment `latency`: the latency of packets through a switch (RFC 2544, section 26.2; RFC 8219, section 7.2),
//! for 64-byte frames of one flow, at 10, 50 and 90 % of the highest rate without loss.
//!
//! The generator takes a time stamp before it gives a burst to the memif, and another one after it has received a
//! burst from the other memif: the latency includes both memifs and the poll interval of the generator. RFC 2544 asks
//! for one tagged packet and RFC 8219 for at least 500; here every packet has a time stamp. Packets that are in
//! transit while the generator loses its core are left out; the record has their number.

pub(crate) mod quantities;
pub(crate) mod section;

use std::time::Duration;

use crate::experiments::rate;
use crate::figure;
use crate::generate::search::Search;
use crate::generate::test_bed::{OfferedLoad, TestBed};
use crate::generate::{Latency, Scheduling};
use crate::peer::Peer;
use crate::record::Record;
use crate::run::{RoundError, Run, RunError};
use crate::workload::{Shape, Sizes};
use quantities::LATENCY;

/// The loads in percent of the highest rate.
const LOADS: [u32; 3] = [10, 50, 90];
/// The duration of a load, in windows of the run.
const WINDOWS: u32 = 2;

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(180);

/// Measures these systems. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.progress(&format!(
        "{LATENCY}: at 10, 50 and 90 % of the highest rate without loss"
    ));
    for peer in peers {
        match system(run, peer.as_ref()) {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => run.failed(LATENCY, peer.name(), &error)?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Searches for the highest rate of a system, then measures its latency at each load.
fn system(run: &mut Run<'_>, peer: &dyn Peer) -> Result<(), RoundError> {
    let offer = OfferedLoad::new(run, LATENCY, Shape::OneRule, &Sizes::SMALLEST)?;
    let mut test_bed = TestBed::start(run, LATENCY, peer, &offer, Scheduling::Normal)?;
    let found = rate::limit(run, &mut test_bed, peer, (LATENCY, "search"), Search::ZERO_LOSS)?;
    run.progress(&format!(
        "  {:<15} {:>12.3} Mpps without loss",
        peer.name(),
        found.rate / 1e6
    ));
    let length: Duration = run.length.window * WINDOWS;
    for round in 0..run.length.rounds {
        for load in LOADS {
            let outcome = test_bed.offer(Some(found.rate * f64::from(load) / 100.0), length)?;
            for (name, us) in percentiles(&outcome.end.latency_attended) {
                if let Some(quantity) = figure::find(LATENCY, &format!("{load}%-{name}")) {
                    run.figure(peer.name(), round, quantity, us)?;
                }
            }
            run.add(Record::Trial {
                case: LATENCY.to_owned(),
                system: peer.name().to_owned(),
                round,
                purpose: format!("{load} %"),
                core_share: outcome.core_share,
                end: Box::new(outcome.end),
            })?;
        }
    }
    Ok(())
}

/// Returns the percentiles of a table in microseconds, with their names.
fn percentiles(latency: &Latency) -> [(&'static str, f64); 6] {
    [
        ("p50", latency.p50_ns),
        ("p90", latency.p90_ns),
        ("p99", latency.p99_ns),
        ("p99.9", latency.p999_ns),
        ("p99.99", latency.p9999_ns),
        ("max", latency.max_ns),
    ]
    .map(|(name, ns)| (name, ns as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_and_percentile_is_a_quantity_of_the_table() {
        for load in LOADS {
            for (name, _) in percentiles(&Latency::default()) {
                assert!(
                    figure::find(LATENCY, &format!("{load}%-{name}")).is_some(),
                    "{load}%-{name}"
                );
            }
        }
    }
}
