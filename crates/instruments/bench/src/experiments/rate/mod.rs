//! The experiment `rate`: the highest rate without loss by frame size (RFC 2544, sections 9 and 26.1), for one rule
//! and one flow, from a generator over memif.
//!
//! The generator sends and receives, so that each packet passes the switch once, in one direction, as in RFC 2544.
//! Every system copies each packet out of a memif and into another one: the rates are those of an interface to a
//! process, not of the bare switch, which `forward` measures.

pub(crate) mod quantities;
pub(crate) mod section;

use std::time::Duration;

use crate::figure;
use crate::generate::Scheduling;
use crate::generate::search::{Search, SearchResult, Trial};
use crate::generate::test_bed::{OfferedLoad, TestBed};
use crate::peer::Peer;
use crate::record::Record;
use crate::run::{RoundError, Run, RunError};
use crate::workload::{Shape, Sizes};
use quantities::RATE;

/// The frame sizes of RFC 2544, section 9.1, in bytes, with their names.
const SIZES: [(&str, u16); 7] = [
    ("64", 64),
    ("128", 128),
    ("256", 256),
    ("512", 512),
    ("1024", 1024),
    ("1280", 1280),
    ("1518", 1518),
];
/// The name of the mix of sizes.
const IMIX: &str = "imix";
/// The first rate that is tried, relative to the rate that returns at full load.
const HEADROOM: f64 = 1.05;
/// The duration of the estimate at full load.
const ESTIMATE_WINDOW: Duration = Duration::from_millis(500);

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(420);

/// Measures these systems. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>], search: Search) -> Result<(), RunError> {
    run.progress(&format!(
        "{RATE}: the highest rate at which at most {} of all packets are lost",
        search.tolerance
    ));
    let mut sizes: Vec<(&str, Sizes)> = SIZES
        .iter()
        .map(|(name, size)| (*name, Sizes::Fixed(*size)))
        .collect();
    sizes.push((IMIX, Sizes::imix()));
    if run.length.quick {
        sizes.retain(|(name, _)| ["64", "1518", IMIX].contains(name));
    }
    for peer in peers {
        match system(run, peer.as_ref(), &sizes, search) {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => run.failed(RATE, peer.name(), &error)?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Searches for the highest rate of a system at each frame size.
fn system(
    run: &mut Run<'_>,
    peer: &dyn Peer,
    sizes: &[(&str, Sizes)],
    search: Search,
) -> Result<(), RoundError> {
    let mut offer = OfferedLoad::new(run, RATE, Shape::OneRule, &Sizes::SMALLEST)?;
    let mut test_bed = TestBed::start(run, RATE, peer, &offer, Scheduling::Normal)?;
    for (name, sizes) in sizes {
        offer.resize(sizes)?;
        test_bed.reload(&offer)?;
        let found = limit(run, &mut test_bed, peer, (RATE, name), search)?;
        if let Some(quantity) = figure::find(RATE, name) {
            run.figure(peer.name(), 0, quantity, found.rate / 1e6)?;
        }
        if found.generator_limited {
            run.progress("    the generator limited the rate");
        }
    }
    Ok(())
}

/// Searches for the highest rate without loss, and records every trial under a case and a purpose.
pub(crate) fn limit(
    run: &mut Run<'_>,
    test_bed: &mut TestBed<'_>,
    peer: &dyn Peer,
    (case, purpose): (&str, &str),
    search: Search,
) -> Result<SearchResult, RoundError> {
    let estimate = test_bed.offer(None, ESTIMATE_WINDOW)?;
    let length = run.length.window;
    search.run_from(estimate.end.rx_pps * HEADROOM, |rate| {
        let outcome = test_bed.offer(Some(rate), length)?;
        let trial = Trial {
            offered: outcome.end.offered_pps(),
            loss: outcome.end.loss(),
            shortfall: outcome.end.shortfall(),
        };
        run.add(Record::Trial {
            case: case.to_owned(),
            system: peer.name().to_owned(),
            round: 0,
            purpose: purpose.to_owned(),
            core_share: outcome.core_share,
            end: Box::new(outcome.end),
        })?;
        Ok(trial)
    })
}
