//! The experiment `rate`: the highest rate at which a switch loses nothing, by frame size (RFC 2544, sections 9
//! and 26.1), one rule and one flow, from a generator over memif.
//!
//! Packets are received from where they are sent, so this is one way through the switch as in RFC 2544. Every
//! system copies each packet out of and into a memif: rates are those of an interface to a process, not of
//! the bare switch, which `forward` measures.

pub(crate) mod section;
use std::time::Duration;

use crate::figure::{self, RATE};
use crate::generate::Share;
use crate::generate::search::{Found, Search, Trial};
use crate::generate::test_bed::{Offer, TestBed};
use crate::peer::Peer;
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Shape, Sizes};

/// The sizes of RFC 2544, section 9.1, with their names, bytes.
const SIZES: [(&str, u16); 7] = [
    ("64", 64),
    ("128", 128),
    ("256", 256),
    ("512", 512),
    ("1024", 1024),
    ("1280", 1280),
    ("1518", 1518),
];
/// The name of the mix.
const IMIX: &str = "imix";
/// How much more than what comes back flat out is tried first.
const HEADROOM: f64 = 1.05;
/// How long packets come flat out to see about where the limit is.
const GLANCE: Duration = Duration::from_millis(500);

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(420);

/// Measures these systems. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>], search: Search) -> Result<(), RunError> {
    run.tell(&format!(
        "{RATE}: the highest rate at which at most {} of all packets are lost",
        search.tolerance
    ));
    let mut sizes: Vec<(&str, Sizes)> = SIZES
        .iter()
        .map(|(name, size)| (*name, Sizes::Fixed(*size)))
        .collect();
    sizes.push((IMIX, Sizes::imix()));
    if run.effort.quick {
        sizes.retain(|(name, _)| ["64", "1518", IMIX].contains(name));
    }
    for peer in peers {
        match system(run, peer.as_ref(), &sizes, search) {
            Ok(()) => {}
            Err(TurnError::Peer(error)) => run.failed(RATE, peer.name(), &error)?,
            Err(TurnError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

fn system(
    run: &mut Run<'_>,
    peer: &dyn Peer,
    sizes: &[(&str, Sizes)],
    search: Search,
) -> Result<(), TurnError> {
    let mut offer = Offer::new(run, RATE, Shape::OneRule, &Sizes::SMALLEST)?;
    let mut test_bed = TestBed::start(run, RATE, peer, &offer, Share::Usual)?;
    for (name, sizes) in sizes {
        offer.resize(sizes)?;
        test_bed.reload(&offer)?;
        let found = limit(run, &mut test_bed, peer, (RATE, name), search)?;
        if let Some(quantity) = figure::find(RATE, name) {
            run.figure(peer.name(), 0, quantity, found.rate / 1e6)?;
        }
        if found.generator_limited {
            run.tell("    the generator was the limit");
        }
    }
    Ok(())
}

/// Searches for the limit, and writes down every trial under a case and purpose.
pub(crate) fn limit(
    run: &mut Run<'_>,
    test_bed: &mut TestBed<'_>,
    peer: &dyn Peer,
    (case, purpose): (&str, &str),
    search: Search,
) -> Result<Found, TurnError> {
    let glance = test_bed.offer(None, GLANCE)?;
    let length = run.effort.window;
    search.run(glance.end.rx_pps * HEADROOM, |rate| {
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
