//! The experiment `bridge`: a switch as a learning bridge (the action NORMAL of OpenFlow) after RFC 2889, with a generator
//! at three of its ports over memif.
//!
//! * Address caching capacity (section 5.7): addresses are learned on one port, a frame is sent to each of them from
//!   another, and all have to come out of the port where they were learned: none of a third one.
//! * Address learning rate (section 5.8): how fast new addresses may come so that all of them are learned.
//! * Broadcast frame forwarding (section 5.10): the highest rate at which each frame comes out of both other ports.
//! * Errored frame filtering (section 5.9), of what a memif can carry: frames that are too short or too long. It has no
//!   check sequence that could be wrong, and no bits that could be misaligned.
//!
//! Each trial begins with an empty table, and new addresses. The station at the test port is known before it begins, so
//! that learning frames are not flooded; its address is one of those that are held.

mod frames;
mod judge;
mod search;

use std::time::Duration;

use self::frames::{Addresses, BROADCAST, Pool};
use self::judge::Verdict;
use crate::figure::{self, BRIDGE};
use crate::generate::search::{Search, Trial};
use crate::generate::test_bed::{Offer, Outcome, TestBed};
use crate::generate::{Portion, Share};
use crate::peer::{Peer, PeerError};
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(210);

/// Systems are started so often at most, and once in a quick run: tables are as large as they are.
const ROUNDS_MAX: usize = 3;
/// No more addresses than this are tried.
const CAPACITY_MAX: usize = 65_536;
/// How fast addresses are learned where that is not the question, and how fast frames are sent to them.
const CALM: f64 = 20_000.0;
/// How many addresses are learned where the question is how fast: more than queues hold, and hardly less than tables do as
/// shipped. A smaller table is filled.
const LEARNED: usize = 8_000;
/// The highest rate of new addresses that is tried.
const LEARNING_MAX: f64 = 1e6;
/// Addresses that come while a table is as small as it can be made: they take the place of all that it held.
const FEW: usize = 64;
/// How often a trial of the capacity is repeated when it fails.
const RETRIES: usize = 1;
/// How long broadcast frames, and errored ones, come in a trial.
const WINDOW: Duration = Duration::from_millis(500);
const ERRORED: Duration = Duration::from_millis(100);
/// How much more than what comes back flat out is tried first.
const HEADROOM: f64 = 1.05;

/// To 5 %, where figures are compared and no target is set.
const SEARCH: Search = Search {
    tolerance: 0.0,
    resolution: 0.05,
    retries: 1,
};

/// Measures these systems. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.tell(&format!(
        "{BRIDGE}: addresses that are held and how fast they are learned, broadcast and errored frames (RFC 2889)"
    ));
    let mut peers: Vec<&dyn Peer> = peers
        .iter()
        .map(AsRef::as_ref)
        .filter(|peer| peer.applies_rules())
        .collect();
    let mut offer = Offer::bridge(run, BRIDGE, frames::frames(), BROADCAST)?;
    let rounds_max = if run.effort.quick { 1 } else { ROUNDS_MAX };
    for round in 0..run.effort.rounds.min(rounds_max) {
        offer.round = round;
        let mut left = Vec::new();
        for peer in peers {
            match system(run, peer, &offer) {
                Ok(()) => left.push(peer),
                Err(TurnError::Peer(error)) => run.failed(BRIDGE, peer.name(), &error)?,
                Err(TurnError::Run(error)) => return Err(error),
            }
        }
        peers = left;
    }
    Ok(())
}

fn system(run: &mut Run<'_>, peer: &dyn Peer, offer: &Offer) -> Result<(), TurnError> {
    let mut test_bed = TestBed::start(run, BRIDGE, peer, offer, Share::Usual)?;
    let Some(size) = test_bed.running.mac_table_size()? else {
        return Err(TurnError::Peer(PeerError::Unsuited {
            system: peer.name(),
            reason: "it is no learning bridge".to_owned(),
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

/// A bridge that is up, with a generator at each port.
struct Bridge<'r, 'a, 'p> {
    run: &'r mut Run<'a>,
    test_bed: &'r mut TestBed<'p>,
    peer: &'p dyn Peer,
    round: usize,
    pool: Pool,
}

impl Bridge<'_, '_, '_> {
    /// How many addresses are held, that of the test port included.
    fn capacity(&mut self, configured: usize) -> Result<usize, TurnError> {
        let start = configured.saturating_sub(1);
        let found = search::most(start, CAPACITY_MAX, RETRIES, |len| {
            let (verdict, _) = self.trial(len, CALM, "capacity")?;
            Ok::<_, TurnError>(verdict.is_passed(len))
        })?;
        if found.is_bound {
            self.run
                .tell(&format!("    no more than {CAPACITY_MAX} were tried"));
        }
        // Without a single address that is held, nothing says that the tester's is.
        Ok(if found.most == 0 { 0 } else { found.most + 1 })
    }

    /// The highest rate of new addresses of which so many are all learned, addresses a second.
    fn learning_rate(&mut self, len: usize) -> Result<f64, TurnError> {
        if len == 0 {
            return Ok(0.0);
        }
        let found = SEARCH.run(LEARNING_MAX, |rate| {
            let (verdict, learned) = self.trial(len, rate, "learning")?;
            Ok::<_, TurnError>(Trial {
                offered: learned.end.offered_pps(),
                loss: 1.0 - verdict.held as f64 / (len as f64).max(1.0),
                shortfall: learned.end.shortfall(),
            })
        })?;
        if found.generator_limited {
            self.run.tell("    the generator was the limit");
        }
        Ok(found.rate)
    }

    /// Learns some addresses at a rate, with nothing known before, and looks which of them are held. And how the learning
    /// went.
    fn trial(&mut self, len: usize, rate: f64, what: &str) -> Result<(Verdict, Outcome), TurnError> {
        let addresses = self.pool.take(len);
        self.forget(addresses)?;
        // To an address that nobody has, and that no flow is about yet: Open vSwitch has to look at this frame.
        let nobody = self.pool.take(1);
        self.test_bed.send(Some(CALM), None, nobody.tested())?;
        let learned = self.test_bed.send(Some(rate), None, addresses.learned())?;
        let tested = self.test_bed.send(Some(CALM), None, addresses.tested())?;
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
            format!("{held} are held; frames: {flooded} flooded, {astray} astray, {lost} lost")
        };
        self.run.tell(&format!(
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

    /// Empties the table but for a few of these addresses.
    fn forget(&mut self, addresses: Addresses) -> Result<(), TurnError> {
        let generator = &mut self.test_bed.generator;
        let few = addresses.few(FEW).learned();
        let mut teach = || generator.send(Some(CALM), None, few).map(drop);
        Ok(self.test_bed.running.forget_macs(&mut teach)?)
    }

    /// The highest rate at which each broadcast frame comes out of both other ports, frames a second.
    fn broadcast_rate(&mut self) -> Result<f64, TurnError> {
        let glance = self.test_bed.send(None, Some(WINDOW), BROADCAST)?.end;
        let copies = glance.counters.received + glance.counters.duplicated;
        let most = copies as f64 / 2.0 / glance.seconds.max(1e-9) * HEADROOM;
        let found = SEARCH.run(most, |rate| {
            let outcome = self.test_bed.send(Some(rate), Some(WINDOW), BROADCAST)?;
            let trial = Trial {
                offered: outcome.end.offered_pps(),
                loss: judge::broadcast_loss(&outcome.end),
                shortfall: outcome.end.shortfall(),
            };
            self.record("broadcast".to_owned(), outcome)?;
            Ok::<_, TurnError>(trial)
        })?;
        if found.generator_limited {
            self.run.tell("    the generator was the limit");
        }
        Ok(found.rate)
    }

    /// What becomes of frames that are too short and too long, to an address that is known.
    fn errored(&mut self) -> Result<(), TurnError> {
        self.test_bed.send(Some(CALM), None, frames::NEIGHBOUR_SPEAKS)?;
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

    fn errored_of(&mut self, name: &str, portion: Portion) -> Result<f64, TurnError> {
        let outcome = self.test_bed.send(Some(CALM), Some(ERRORED), portion)?;
        let percent = judge::forwarded_percent(&outcome.end);
        self.record(name.to_owned(), outcome)?;
        Ok(percent)
    }

    fn figure(&mut self, name: &str, value: f64) -> Result<(), TurnError> {
        if let Some(quantity) = figure::find(BRIDGE, name) {
            self.run.figure(self.peer.name(), self.round, quantity, value)?;
        }
        Ok(())
    }

    fn record(&mut self, purpose: String, outcome: Outcome) -> Result<(), TurnError> {
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
