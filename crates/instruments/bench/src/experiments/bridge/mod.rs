//! The experiment `bridge`: a switch as a learning bridge (the action NORMAL of OpenFlow) after RFC 2889. A generator
//! is connected to three of its ports over memif.
//!
//! * Address caching capacity (RFC 2889, section 5.7): addresses are learned on one port, and one frame is sent to
//!   each of them from another. All must leave by the port of the address, and none by a third port.
//! * Address learning rate (RFC 2889, section 5.8): the highest rate of new addresses at which all are learned.
//! * Broadcast frame forwarding (RFC 2889, section 5.10): the highest rate at which each frame leaves by both other
//!   ports.
//! * Errored frame filtering (RFC 2889, section 5.9), as far as a memif can carry errors: frames that are too short or
//!   too long. A memif has no check sequence and no alignment.
//!
//! Each trial starts with an empty table and new addresses. The bridge knows the address at the test port before a
//! trial starts, so that learning frames are not flooded; this address counts as one that is held.

mod frames;
mod judge;
pub(crate) mod quantities;
mod search;

use std::time::Duration;

use self::frames::{Addresses, BROADCAST, Pool};
use self::judge::Verdict;
use self::quantities::BRIDGE;
use crate::figure;
use crate::generate::search::{Search, Trial};
use crate::generate::test_bed::{OfferedLoad, Outcome, TestBed};
use crate::generate::{PacketRange, Scheduling};
use crate::peer::{Peer, PeerError};
use crate::record::Record;
use crate::run::{RoundError, Run, RunError};

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(210);

/// The largest number of rounds; a quick run has one. The size of a table does not vary.
const ROUNDS_MAX: usize = 3;
/// The largest number of addresses in a trial.
const CAPACITY_MAX: usize = 65_536;
/// Frames per second where the rate is not measured.
const MODERATE_RATE: f64 = 20_000.0;
/// The number of addresses in the measurement of the learning rate: more than queues hold, and little less
/// than tables hold by default. For a smaller table, its capacity is used instead.
const LEARNED: usize = 8_000;
/// The highest rate of new addresses that is tried, in addresses per second.
const LEARNING_MAX: f64 = 1e6;
/// The number of addresses that are sent while the table has its smallest size, so that they evict all others.
const EVICTING: usize = 64;
/// The number of retries of a failed trial of the capacity.
const RETRIES: usize = 1;
/// The duration of a trial with broadcast frames, and of one with errored frames.
const WINDOW: Duration = Duration::from_millis(500);
const ERRORED_WINDOW: Duration = Duration::from_millis(100);
/// The first rate that is tried, relative to the rate that returns at full load.
const HEADROOM: f64 = 1.05;

/// A resolution of 5 %: these figures are compared and have no targets.
const SEARCH: Search = Search {
    tolerance: 0.0,
    resolution: 0.05,
    retries: 1,
};

/// Measures these systems. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.progress(&format!(
        "{BRIDGE}: addresses that are held and how fast they are learned, broadcast and errored frames (RFC 2889)"
    ));
    let mut peers: Vec<&dyn Peer> = peers
        .iter()
        .map(AsRef::as_ref)
        .filter(|peer| peer.applies_rules())
        .collect();
    let mut offer = OfferedLoad::bridge(run, BRIDGE, frames::frames(), BROADCAST)?;
    let rounds_max = if run.length.quick { 1 } else { ROUNDS_MAX };
    for round in 0..run.length.rounds.min(rounds_max) {
        offer.round = round;
        let mut left = Vec::new();
        for peer in peers {
            match system(run, peer, &offer) {
                Ok(()) => left.push(peer),
                Err(RoundError::Peer(error)) => run.failed(BRIDGE, peer.name(), &error)?,
                Err(RoundError::Run(error)) => return Err(error),
            }
        }
        peers = left;
    }
    Ok(())
}

/// Starts a system and takes all measurements of one round.
fn system(run: &mut Run<'_>, peer: &dyn Peer, offer: &OfferedLoad) -> Result<(), RoundError> {
    let mut test_bed = TestBed::start(run, BRIDGE, peer, offer, Scheduling::Normal)?;
    let Some(size) = test_bed.running.mac_table_size()? else {
        return Err(RoundError::Peer(PeerError::Unsupported {
            system: peer.name(),
            reason: "it is not a learning bridge".to_owned(),
        }));
    };
    let mut bridge = Bridge {
        run,
        test_bed: &mut test_bed,
        peer,
        round: offer.round,
        pool: Pool::default(),
    };
    bridge.figure("table-size", size as f64)?;
    let capacity = bridge.capacity(size)?;
    bridge.figure("capacity", capacity as f64)?;
    let rate = bridge.learning_rate(LEARNED.min(capacity.saturating_sub(1)))?;
    bridge.figure("learning", rate)?;
    let rate = bridge.broadcast_rate()?;
    bridge.figure("broadcast", rate / 1e6)?;
    bridge.errored()
}

/// A running bridge with a generator at each port.
struct Bridge<'r, 'a, 'p> {
    run: &'r mut Run<'a>,
    test_bed: &'r mut TestBed<'p>,
    peer: &'p dyn Peer,
    round: usize,
    pool: Pool,
}

impl Bridge<'_, '_, '_> {
    /// Returns the number of addresses that the bridge holds, with the address at the test port.
    fn capacity(&mut self, configured: usize) -> Result<usize, RoundError> {
        let start = configured.saturating_sub(1);
        let found = search::largest(start, CAPACITY_MAX, RETRIES, |len| {
            let (verdict, _) = self.trial(len, MODERATE_RATE, "capacity")?;
            Ok::<_, RoundError>(verdict.is_passed(len))
        })?;
        if found.is_bound {
            self.run
                .progress(&format!("    {CAPACITY_MAX} is the largest number that is tried"));
        }
        // Nothing shows that the address of the tester is held if no other address is.
        Ok(if found.largest == 0 { 0 } else { found.largest + 1 })
    }

    /// Returns the highest rate, in addresses per second, at which `len` new addresses are all learned.
    fn learning_rate(&mut self, len: usize) -> Result<f64, RoundError> {
        if len == 0 {
            return Ok(0.0);
        }
        let found = SEARCH.run(LEARNING_MAX, |rate| {
            let (verdict, learned) = self.trial(len, rate, "learning")?;
            Ok::<_, RoundError>(Trial {
                offered: learned.end.offered_pps(),
                loss: 1.0 - verdict.held as f64 / (len as f64).max(1.0),
                shortfall: learned.end.shortfall(),
            })
        })?;
        if found.generator_limited {
            self.run.progress("    the generator limited the rate");
        }
        Ok(found.rate)
    }

    /// Clears the table, teaches `len` addresses at a rate, and tests which of them are held. Returns the verdict and
    /// the result of the learning phase.
    fn trial(&mut self, len: usize, rate: f64, what: &str) -> Result<(Verdict, Outcome), RoundError> {
        let addresses = self.pool.take(len);
        self.forget(addresses)?;
        // This frame has an unknown destination, for which Open vSwitch has no cached flow: the bridge has to process
        // it.
        let nobody = self.pool.take(1);
        self.test_bed.send(Some(MODERATE_RATE), None, nobody.tested())?;
        let learned = self.test_bed.send(Some(rate), None, addresses.learned())?;
        let tested = self
            .test_bed
            .send(Some(MODERATE_RATE), None, addresses.tested())?;
        let verdict = Verdict::of(&tested.end, addresses.len);
        let Verdict {
            held,
            flooded,
            astray,
            lost,
        } = verdict;
        let name = self.peer.name();
        let note = if verdict.is_passed(addresses.len) {
            "all are held".to_owned()
        } else {
            format!("{held} are held; frames: {flooded} flooded, {astray} to a wrong port, {lost} lost")
        };
        self.run.progress(&format!(
            "    {name}: {} addresses at {rate:.0}/s: {note}",
            addresses.len
        ));
        self.record(
            format!("{what}, {} addresses, learned", addresses.len),
            learned.clone(),
        )?;
        self.record(format!("{what}, {} addresses, tested", addresses.len), tested)?;
        Ok((verdict, learned))
    }

    /// Clears the table, except for a few of these addresses.
    fn forget(&mut self, addresses: Addresses) -> Result<(), RoundError> {
        let generator = &mut self.test_bed.generator;
        let few = addresses.few(EVICTING).learned();
        let mut teach = || generator.send(Some(MODERATE_RATE), None, few).map(drop);
        Ok(self.test_bed.running.forget_macs(&mut teach)?)
    }

    /// Returns the highest rate, in frames per second, at which each broadcast frame leaves by both other ports.
    fn broadcast_rate(&mut self) -> Result<f64, RoundError> {
        let estimate = self.test_bed.send(None, Some(WINDOW), BROADCAST)?.end;
        let copies = estimate.counters.received + estimate.counters.duplicated;
        let most = copies as f64 / 2.0 / estimate.seconds.max(1e-9) * HEADROOM;
        let found = SEARCH.run_from(most, |rate| {
            let outcome = self.test_bed.send(Some(rate), Some(WINDOW), BROADCAST)?;
            let trial = Trial {
                offered: outcome.end.offered_pps(),
                loss: judge::broadcast_loss(&outcome.end),
                shortfall: outcome.end.shortfall(),
            };
            self.record("broadcast".to_owned(), outcome)?;
            Ok::<_, RoundError>(trial)
        })?;
        if found.generator_limited {
            self.run.progress("    the generator limited the rate");
        }
        Ok(found.rate)
    }

    /// Measures the share that the bridge forwards of right, too short and too long frames to a known address.
    fn errored(&mut self) -> Result<(), RoundError> {
        self.test_bed
            .send(Some(MODERATE_RATE), None, frames::NEIGHBOUR_SPEAKS)?;
        for (name, portion) in [
            ("right", frames::TO_NEIGHBOUR),
            ("runts", frames::RUNTS),
            ("oversized", frames::OVERSIZED_FRAMES),
        ] {
            let percent = self.errored_of(name, portion)?;
            self.figure(name, percent)?;
        }
        Ok(())
    }

    fn errored_of(&mut self, name: &str, portion: PacketRange) -> Result<f64, RoundError> {
        let outcome = self
            .test_bed
            .send(Some(MODERATE_RATE), Some(ERRORED_WINDOW), portion)?;
        let percent = judge::forwarded_percent(&outcome.end);
        self.record(name.to_owned(), outcome)?;
        Ok(percent)
    }

    fn figure(&mut self, name: &str, value: f64) -> Result<(), RoundError> {
        if let Some(quantity) = figure::find(BRIDGE, name) {
            self.run.figure(self.peer.name(), self.round, quantity, value)?;
        }
        Ok(())
    }

    fn record(&mut self, purpose: String, outcome: Outcome) -> Result<(), RoundError> {
        self.run.add(Record::Trial {
            case: BRIDGE.to_owned(),
            system: self.peer.name().to_owned(),
            round: self.round,
            purpose,
            core_share: outcome.core_share,
            end: Box::new(outcome.end),
        })?;
        Ok(())
    }
}
