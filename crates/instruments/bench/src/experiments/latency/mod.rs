//! The experiment `latency`: how long packets are on their way through a switch (RFC 2544, section 26.2; RFC 8219,
//! section 7.2), 64-byte frames of one flow, at 10, 50 and 90 % of the highest rate without loss.
//!
//! A time stamp is taken right before the generator's burst goes to the memif, and when a burst has been taken
//! from the other one: both memifs, and the time until the generator looks, are in it. RFC 2544 asks for one
//! tagged packet; here every packet is one (RFC 8219 asks for 500 at least). Packets during whose journey
//! the generator lost its core are left out, and how many these are is in the record.

pub(crate) mod section;
use std::time::Duration;

use crate::experiments::rate;
use crate::figure::{self, LATENCY};
use crate::generate::search::Search;
use crate::generate::test_bed::{Offer, TestBed};
use crate::generate::{Latency, Share};
use crate::peer::Peer;
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Shape, Sizes};

/// Shares of the highest rate, percent.
const LOADS: [u32; 3] = [10, 50, 90];
/// How long each is offered, in windows of the run.
const WINDOWS: u32 = 2;

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(180);

/// Measures these systems. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.tell(&format!(
        "{LATENCY}: at 10, 50 and 90 % of the highest rate without loss"
    ));
    for peer in peers {
        match system(run, peer.as_ref()) {
            Ok(()) => {}
            Err(TurnError::Peer(error)) => run.failed(LATENCY, peer.name(), &error)?,
            Err(TurnError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

fn system(run: &mut Run<'_>, peer: &dyn Peer) -> Result<(), TurnError> {
    let offer = Offer::new(run, LATENCY, Shape::OneRule, &Sizes::SMALLEST)?;
    let mut test_bed = TestBed::start(run, LATENCY, peer, &offer, Share::Usual)?;
    let found = rate::limit(run, &mut test_bed, peer, (LATENCY, "search"), Search::ZERO_LOSS)?;
    run.tell(&format!(
        "  {:<15} {:>12.3} Mpps without loss",
        peer.name(),
        found.rate / 1e6
    ));
    let length: Duration = run.effort.window * WINDOWS;
    for round in 0..run.effort.rounds {
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

/// Returns the figures of a table, microseconds.
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
