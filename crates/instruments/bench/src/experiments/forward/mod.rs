//! The packets per second that each system forwards, case by case.
//!
//! Systems are measured in turn, in rounds, so that a change of the machine over time affects all of them.
//! Two types of systems are started only once, in the middle of the rounds, and are then measured over more
//! windows: systems with a long warm-up, and testpmd if no target of the case refers to it.

pub(crate) mod section;

use std::fs;
use std::time::Duration;

use crate::case::{Case, PacketSource};
use crate::generate::{self, feed::Feed};
use crate::peer::{Forwarding, Load, Peer, PeerError, Sample, WarmUp, sample, settle};
use crate::record::Record;
use crate::run::{RoundError, Run, RunError, RunLength, replenish_huge_pages};
use crate::workload::{Sizes, Workload};

/// The seed of all workloads, the same in every run.
pub(crate) const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// The smallest share of its core, 0 to 1, that a forwarding thread must have got; otherwise the measurement is
/// repeated.
const CORE_SHARE_MIN: f64 = 0.95;
/// The number of repetitions after which a disturbed measurement is kept.
const RETRIES: usize = 2;
/// The largest deviation of the share of a sink from that of a correct switch. A window does not start with the first
/// packet of the file, so that its shares vary.
const SHARE_TOLERANCE: f64 = 0.02;
/// The longest warm-up in a quick run.
const QUICK_WARM_UP: Duration = Duration::from_secs(5);
/// The longest warm-up of systems that take part in every round.
const SOON: Duration = Duration::from_secs(3);
/// The number of packets above which a system is started in three rounds only, because installation and loading take long.
const MANY: usize = 500_000;
/// The expected duration of the warm-up beyond its minimum.
const SETTLING: Duration = Duration::from_millis(1500);
/// The expected duration of start and end with few packets.
const START_AND_END: Duration = Duration::from_millis(1500);
/// The expected additional duration for each million packets and entries.
const START_A_MILLION: Duration = Duration::from_secs(15);

/// The rounds in which a system takes part in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Schedule {
    rounds: Vec<usize>,
    windows: usize,
    warm_up: WarmUp,
}

impl Schedule {
    /// Returns the rounds, windows and warm-up of a system in a case.
    fn new(run_length: RunLength, case: &Case, peer: &dyn Peer, load: &Load) -> Schedule {
        let mut warm_up = peer.warm_up(load);
        if run_length.quick {
            warm_up.min = warm_up.min.min(QUICK_WARM_UP);
            warm_up.max = warm_up.max.min(QUICK_WARM_UP);
        }
        let is_reference = !peer.applies_rules() && !case.is_against_testpmd();
        let rounds = run_length.rounds;
        let (rounds, windows) = if rounds < 3 {
            ((0..rounds).collect(), 1)
        } else if warm_up.min > SOON || is_reference {
            (vec![rounds / 2], rounds)
        } else if load.packets_len > MANY {
            (vec![0, rounds / 2, rounds - 1], rounds.div_ceil(3))
        } else {
            ((0..rounds).collect(), 1)
        };
        Schedule {
            rounds,
            windows,
            warm_up,
        }
    }

    /// Returns the expected duration of all rounds.
    fn estimate(&self, run_length: RunLength, load: &Load) -> Duration {
        let settling = self.warm_up.min + SETTLING;
        let start = START_AND_END + START_A_MILLION.mul_f64((load.flows_len + load.packets_len) as f64 / 2e6);
        (start + settling + run_length.window * self.windows as u32) * self.rounds.len() as u32
    }
}

/// Returns the expected duration of these cases.
pub fn estimate(run_length: RunLength, cases: &[(&Case, Vec<Box<dyn Peer>>)]) -> Duration {
    cases
        .iter()
        .flat_map(|(case, peers)| {
            let (flows_len, packets_len) = case.lens();
            let load = Load::outline(flows_len, packets_len);
            peers.iter().map(move |peer| {
                Schedule::new(run_length, case, peer.as_ref(), &load).estimate(run_length, &load)
            })
        })
        .sum()
}

struct Round<'a> {
    case: &'static Case,
    peer: &'a dyn Peer,
    round: usize,
    schedule: &'a Schedule,
    load: &'a Load,
    shares: [f64; 2],
}

/// Measures these systems in a case. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn case(run: &mut Run<'_>, case: &'static Case, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.progress(&format!("{}: {}", case.name, case.title));
    let (workers, cores) = (case.workers, run.cores());
    if workers > cores {
        for peer in peers {
            run.failed(case.name, peer.name(), &PeerError::TooFewCores { workers, cores })?;
        }
        return Ok(());
    }
    let (load, shares) = prepare(run, case)?;
    let taken = |peer: &dyn Peer| match case.source {
        PacketSource::Replay => peer.memory_mib(&load),
        PacketSource::Generator => generate::memory_mib(peer, &load),
    };
    let most = peers.iter().map(|peer| taken(peer.as_ref())).max();
    let huge_pages = run.huge_pages(most.unwrap_or(0));
    let mib = huge_pages.as_ref().map_or(0, |(mib, _)| *mib);
    if mib == 0 {
        run.progress("  there are no huge pages: every system runs without");
    }
    let mut broken = vec![false; peers.len()];
    for round in 0..run.length.rounds {
        for (peer, broken) in peers.iter().zip(&mut broken) {
            let schedule = Schedule::new(run.length, case, peer.as_ref(), &load);
            if *broken || !schedule.rounds.contains(&round) {
                continue;
            }
            let round_of_system = Round {
                case,
                peer: peer.as_ref(),
                round,
                schedule: &schedule,
                load: &load,
                shares,
            };
            match round_of_system.measure(run, mib) {
                Ok(()) => {}
                Err(RoundError::Peer(error)) => {
                    *broken = true;
                    run.failed(case.name, peer.name(), &error)?;
                }
                Err(RoundError::Run(error)) => return Err(error),
            }
        }
    }
    // Files of a million packets are large and are not kept for the next case.
    let dir = run.resources(case.name, 1, 0).dir;
    fs::remove_dir_all(&dir).map_err(RunError::file(&dir))
}

/// Writes the flow entries and packets of a case into the directory of the case. Returns the load, and the share of
/// the packets that leaves by each sink.
pub(crate) fn prepare(run: &Run<'_>, case: &Case) -> Result<(Load, [f64; 2]), RunError> {
    let workload = Workload::new(case.shape, SEED).repeated(case.packets_min);
    let dir = run.resources(case.name, 1, 0).dir;
    fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
    let flows = dir.join("flows");
    fs::write(&flows, workload.lines()).map_err(RunError::file(&flows))?;
    let mut load = Load {
        flows,
        flows_len: workload.rules_len,
        ingress: Vec::new(),
        packets_len: 0,
        first_sink: None,
        memif: None,
    };
    for part in 0..case.workers {
        let packets = dir.join(format!("packets{part}.pcap"));
        load.packets_len += workload
            .write_part(&packets, &Sizes::SMALLEST, SEED, part, case.workers)
            .map_err(RunError::file(&packets))?;
        load.ingress.push(packets);
    }
    let shares = workload.shares;
    Ok((load, shares))
}

impl Round<'_> {
    /// Starts, measures and ends a system.
    fn measure(&self, run: &mut Run<'_>, huge_pages_mib: u64) -> Result<(), RoundError> {
        let (case, system) = (self.case.name, self.peer.name());
        let name = format!("{case}/{system}.{}", self.round);
        let resources = run.resources(&name, self.case.workers, huge_pages_mib);
        fs::create_dir_all(&resources.dir).map_err(RunError::file(&resources.dir))?;
        let _pages = replenish_huge_pages(&resources)?;
        let mut running = match self.case.source {
            PacketSource::Replay => self.peer.start(&resources, self.load)?,
            PacketSource::Generator => Box::new(Feed::start(self.peer, &resources, self.load)?),
        };
        let settling = settle(running.as_mut(), self.schedule.warm_up)?;
        let installation = running.installation();
        run.add(Record::Start {
            case: case.to_owned(),
            system: system.to_owned(),
            round: self.round,
            commands: running.commands(),
            install_s: installation.map(|installation| installation.seconds),
            install_bytes: installation.map(|installation| installation.memory),
            flows: self.load.flows_len,
            warm_up_s: settling.seconds(),
        })?;
        run.add(Record::Settling {
            case: case.to_owned(),
            system: system.to_owned(),
            round: self.round,
            slice_s: settling.slice.as_secs_f64(),
            pps: settling.rates,
        })?;
        for window in 0..self.schedule.windows {
            let best = undisturbed(running.as_mut(), run.length.window, self.case.workers)?;
            run.progress(&format!(
                "  round {}: {system:<15} {:>8.3} Mpps",
                self.round + 1,
                best.total() / 1e6
            ));
            run.add(Record::Sample {
                case: case.to_owned(),
                system: system.to_owned(),
                round: self.round,
                window,
                pps: best.rates,
                core_share: best.core_share,
                right: !self.peer.applies_rules() || is_right(&best, self.shares),
            })?;
        }
        if let Some(text) = running.lookups() {
            run.add(Record::Lookups {
                case: case.to_owned(),
                system: system.to_owned(),
                text,
            })?;
        }
        Ok(())
    }
}

/// Returns a measurement in which the forwarding thread got at least [`CORE_SHARE_MIN`] of its core; after [`RETRIES`], the best
/// one. With several workers, the first measurement counts.
pub(crate) fn undisturbed(
    running: &mut dyn Forwarding,
    window: Duration,
    workers: usize,
) -> Result<Sample, PeerError> {
    let mut best = sample(running, window, workers)?;
    for _ in 0..RETRIES {
        if best.core_share >= CORE_SHARE_MIN || workers > 1 {
            break;
        }
        let again = sample(running, window, workers)?;
        if again.core_share > best.core_share {
            best = again;
        }
    }
    Ok(best)
}

/// Returns true if the packets left by the ports of a correct switch. `shares` are of the packets that arrive; those that
/// it drops are in neither.
fn is_right(sample: &Sample, shares: [f64; 2]) -> bool {
    let total = sample.total();
    let forwarded: f64 = shares.iter().sum();
    total > 0.0
        && sample
            .rates
            .iter()
            .zip(shares)
            .all(|(rate, share)| (rate / total - share / forwarded).abs() <= SHARE_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::find;
    use crate::peer::millrace::Millrace;
    use crate::peer::ovs::{OvsDpdk, Tuning};
    use crate::peer::testpmd::{Mode, Testpmd};

    fn schedule(run_length: RunLength, case: &str, peer: &dyn Peer) -> (Vec<usize>, usize) {
        let case = find(case).unwrap();
        let (flows_len, packets_len) = case.lens();
        let load = Load::outline(flows_len, packets_len);
        let schedule = Schedule::new(run_length, case, peer, &load);
        (schedule.rounds, schedule.windows)
    }

    #[test]
    fn a_system_that_settles_slowly_is_started_once_and_measured_over_as_many_windows() {
        let (every, once) = ((vec![0, 1, 2, 3, 4], 1), (vec![2], 5));
        let tuned = OvsDpdk(Tuning::Tuned);
        assert_eq!(schedule(RunLength::FULL, "exact-100k", &Millrace::Default), every);
        assert_eq!(schedule(RunLength::FULL, "exact-100k", &tuned), once);
        assert_eq!(schedule(RunLength::FULL, "one-rule", &tuned), every);
        assert_eq!(schedule(RunLength::QUICK, "exact-100k", &tuned), (vec![0, 1], 1));
        assert_eq!(
            schedule(RunLength::FULL, "exact-1m", &Millrace::Default),
            (vec![0, 2, 4], 2)
        );
    }

    #[test]
    fn testpmd_takes_part_in_every_round_where_something_is_compared_with_it() {
        let io = Testpmd(Mode::Io);
        assert_eq!(schedule(RunLength::FULL, "one-rule", &io).0.len(), 5);
        assert_eq!(schedule(RunLength::FULL, "acl-10k", &io), (vec![2], 5));
    }

    #[test]
    fn packets_that_leave_by_the_wrong_port_are_detected() {
        let sample = |first: f64, second: f64| Sample {
            rates: [first, second],
            core_share: 1.0,
        };
        assert!(is_right(&sample(51.0, 50.0), [0.5, 0.5]));
        assert!(is_right(&sample(51.0, 50.0), [0.25, 0.25]));
        assert!(!is_right(&sample(70.0, 30.0), [0.25, 0.25]));
        assert!(!is_right(&sample(100.0, 0.0), [0.5, 0.5]));
        assert!(!is_right(&sample(0.0, 0.0), [1.0, 0.0]));
    }
}
