//! The experiment `forward`: how many packets a second one core of each system forwards.
//!
//! Systems are measured in turn, in rounds: what changes on the machine over time hits them all. A system
//! that must warm up for a minute takes part in fewer rounds, in the middle of the others', and is measured
//! over more windows there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;

use crate::case::Case;
use crate::hugepages::HugePages;
use crate::machine::Machine;
use crate::peer::{Load, Peer, PeerError, Sample, Site, sample, settle};
use crate::process::ProcessError;
use crate::record::{Log, Record};
use crate::workload::{Sizes, Workload};

/// Huge pages for a system, MiB: what the largest of them takes, and room for what does not lie together.
const HUGE_PAGES_MIB: u64 = 1536;
/// The seed of all workloads: every run offers the same.
const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// A forwarding thread that had less of its core was disturbed, and is measured again.
const CORE_SHARE_MIN: f64 = 0.95;
/// How often a disturbed measurement is repeated before it is taken as it is.
const RETRIES: usize = 2;
/// How far the share of a sink may be from that of a correct switch: windows do not begin with the file.
const SHARE_TOLERANCE: f64 = 0.02;

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// How many times each system is started.
    pub rounds: usize,
    /// How long a measurement takes.
    pub window: Duration,
    /// Whether warm-up is cut to a few seconds.
    pub quick: bool,
}

impl Effort {
    /// The acceptance run: a median of five.
    pub const FULL: Effort = Effort {
        rounds: 5,
        window: Duration::from_secs(2),
        quick: false,
    };
    /// The shape in a minute or two.
    pub const QUICK: Effort = Effort {
        rounds: 2,
        window: Duration::from_secs(1),
        quick: true,
    };

    /// The longest warm-up that a quick run allows.
    const QUICK_WARM_UP: Duration = Duration::from_secs(5);
    /// A system that settles within this takes part in every round.
    const SOON: Duration = Duration::from_secs(10);

    fn warm_up(self, peer: &dyn Peer, load: &Load) -> Duration {
        let full = peer.warm_up(load);
        if self.quick {
            full.min(Effort::QUICK_WARM_UP)
        } else {
            full
        }
    }

    /// In which rounds a system takes part, and over how many windows it is measured in each.
    fn schedule(self, warm_up: Duration) -> (Vec<usize>, usize) {
        if warm_up <= Effort::SOON || self.rounds < 3 {
            ((0..self.rounds).collect(), 1)
        } else {
            (vec![self.rounds / 2], self.rounds)
        }
    }
}

/// Why a run ended before its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The person at the keyboard wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// There is no core to measure on.
    #[error("this machine has {cores} core(s): expected at least 2, one to forward and one for the rest")]
    TooFewCores {
        /// How many there are.
        cores: usize,
    },
}

/// What a run is made of.
pub struct Run<'a> {
    /// The cases, in order.
    pub cases: Vec<&'static Case>,
    /// The systems, in order.
    pub peers: Vec<Box<dyn Peer>>,
    /// How long and how often.
    pub effort: Effort,
    /// The daemon of Millrace.
    pub millraced: PathBuf,
    /// The nice level of every system.
    pub nice: i32,
    /// Where records go.
    pub log: &'a mut Log,
    /// Called with each step, for a person who waits.
    pub progress: &'a mut dyn FnMut(&str),
    /// The command that repeats the run.
    pub command: String,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ForwardError + use<> {
    let path = path.to_owned();
    move |source| ForwardError::File { path, source }
}

impl Run<'_> {
    /// Measures everything. A system that fails is recorded as such, and the run goes on.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn run(&mut self) -> Result<(), ForwardError> {
        crate::interrupt::watch();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores < 2 {
            return Err(ForwardError::TooFewCores { cores });
        }
        let scratch = tempfile::Builder::new()
            .prefix("millrace-bench.")
            .tempdir()
            .map_err(failed(Path::new("/tmp")))?;
        let permitted = HugePages::reserve(HUGE_PAGES_MIB).is_some();
        let site = Site {
            dir: scratch.path().to_owned(),
            core: 1,
            control_core: 0,
            huge_pages_mib: if permitted { HUGE_PAGES_MIB } else { 0 },
            nice: self.nice,
            millraced: self.millraced.clone(),
        };
        self.introduce(&site)?;
        for case in self.cases.clone() {
            self.case(case, &site)?;
        }
        Ok(())
    }

    fn add(&mut self, record: Record) -> Result<(), ForwardError> {
        self.log.add(record).map_err(failed(Path::new("runs.jsonl")))
    }

    fn introduce(&mut self, site: &Site) -> Result<(), ForwardError> {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.add(Record::Run {
            experiment: "forward".to_owned(),
            started,
            quick: self.effort.quick,
            machine: Box::new(Machine::describe(site.huge_pages_mib)),
            command: self.command.clone(),
        })?;
        let systems: Vec<Record> = self
            .peers
            .iter()
            .map(|peer| Record::System {
                system: peer.name().to_owned(),
                version: peer.version(site),
                configuration: peer.configuration().to_owned(),
            })
            .collect();
        systems.into_iter().try_for_each(|record| self.add(record))
    }

    fn case(&mut self, case: &'static Case, site: &Site) -> Result<(), ForwardError> {
        (self.progress)(&format!("{}: {}", case.name, case.title));
        let workload = Workload::new(case.shape, SEED);
        let dir = site.dir.join(case.name);
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        let (flows, packets) = (dir.join("flows"), dir.join("packets.pcap"));
        fs::write(&flows, workload.lines()).map_err(failed(&flows))?;
        let packets_len = workload
            .write_packets(&packets, &Sizes::SMALLEST, SEED)
            .map_err(failed(&packets))?;
        let load = Load {
            flows,
            flows_len: workload.rules_len,
            packets,
            packets_len,
        };
        let peers = std::mem::take(&mut self.peers);
        let mut broken = vec![false; peers.len()];
        let outcome = (0..self.effort.rounds).try_for_each(|round| {
            for (peer, broken) in peers.iter().zip(&mut broken) {
                let (rounds, windows) = self.effort.schedule(self.effort.warm_up(peer.as_ref(), &load));
                if *broken || !rounds.contains(&round) {
                    continue;
                }
                let turn = Turn {
                    case,
                    peer: peer.as_ref(),
                    round,
                    windows,
                    shares: workload.shares,
                };
                match self.turn(&turn, &load, site) {
                    Ok(()) => {}
                    Err(TurnError::Peer(PeerError::Process(ProcessError::Interrupted))) => {
                        return Err(ForwardError::Interrupted);
                    }
                    Err(TurnError::Peer(error)) => {
                        *broken = true;
                        (self.progress)(&format!("  {}: {error}", peer.name()));
                        self.add(Record::Failed {
                            case: case.name.to_owned(),
                            system: peer.name().to_owned(),
                            reason: error.to_string(),
                        })?;
                    }
                    Err(TurnError::Run(error)) => return Err(error),
                }
            }
            Ok(())
        });
        self.peers = peers;
        // Files of a million packets are large: do not keep them for the next case.
        fs::remove_dir_all(&dir).map_err(failed(&dir))?;
        outcome
    }

    /// One system, from start to end.
    fn turn(&mut self, turn: &Turn<'_>, load: &Load, site: &Site) -> Result<(), TurnError> {
        let Turn {
            case, peer, round, ..
        } = *turn;
        let dir = site.dir.join(case.name).join(format!("{}.{round}", peer.name()));
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        let site = Site { dir, ..site.clone() };
        let pages = (site.huge_pages_mib > 0).then(|| HugePages::reserve(site.huge_pages_mib));
        if let Some(None) = pages {
            return Err(TurnError::Peer(PeerError::NoHugePages {
                mib: site.huge_pages_mib,
            }));
        }
        let mut running = peer.start(&site, load)?;
        let warm_up = self.effort.warm_up(peer, load);
        // What settles slowly may look steady on its way: it has half of its time in any case.
        let least = if warm_up > Effort::SOON {
            warm_up / 2
        } else {
            Duration::ZERO
        };
        let settled = settle(running.as_mut(), least, warm_up)?;
        let installation = running.installation();
        self.add(Record::Start {
            case: case.name.to_owned(),
            system: peer.name().to_owned(),
            round,
            commands: running.commands(),
            install_s: installation.map(|installation| installation.seconds),
            install_bytes: installation.map(|installation| installation.memory),
            flows: load.flows_len,
            warm_up_s: settled.as_secs_f64(),
        })?;
        for window in 0..turn.windows {
            let mut best: Option<Sample> = None;
            for _ in 0..=RETRIES {
                let sample = sample(running.as_mut(), self.effort.window)?;
                if best.is_none_or(|best| sample.core_share > best.core_share) {
                    best = Some(sample);
                }
                if sample.core_share >= CORE_SHARE_MIN {
                    break;
                }
            }
            let Some(best) = best else { continue };
            (self.progress)(&format!(
                "  round {}: {:<15} {:>8.3} Mpps",
                round + 1,
                peer.name(),
                best.total() / 1e6
            ));
            self.add(Record::Sample {
                case: case.name.to_owned(),
                system: peer.name().to_owned(),
                round,
                window,
                pps: best.rates,
                core_share: best.core_share,
                right: !peer.applies_rules() || is_right(&best, turn.shares),
            })?;
        }
        Ok(())
    }
}

struct Turn<'a> {
    case: &'static Case,
    peer: &'a dyn Peer,
    round: usize,
    windows: usize,
    shares: [f64; 2],
}

enum TurnError {
    Peer(PeerError),
    Run(ForwardError),
}

impl From<PeerError> for TurnError {
    fn from(error: PeerError) -> TurnError {
        TurnError::Peer(error)
    }
}

impl From<ForwardError> for TurnError {
    fn from(error: ForwardError) -> TurnError {
        TurnError::Run(error)
    }
}

/// Whether the packets left as a correct switch sends them.
fn is_right(sample: &Sample, shares: [f64; 2]) -> bool {
    let total = sample.total();
    total > 0.0
        && sample
            .rates
            .iter()
            .zip(shares)
            .all(|(rate, share)| (rate / total - share).abs() <= SHARE_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_settles_slowly_is_measured_once_and_for_as_many_windows() {
        assert_eq!(
            Effort::FULL.schedule(Duration::from_secs(3)),
            (vec![0, 1, 2, 3, 4], 1)
        );
        assert_eq!(Effort::FULL.schedule(Duration::from_secs(75)), (vec![2], 5));
        assert_eq!(Effort::QUICK.schedule(Duration::from_secs(5)), (vec![0, 1], 1));
    }

    #[test]
    fn packets_that_leave_by_the_wrong_port_are_noticed() {
        let sample = |first: f64, second: f64| Sample {
            rates: [first, second],
            core_share: 1.0,
        };
        assert!(is_right(&sample(51.0, 50.0), [0.5, 0.5]));
        assert!(!is_right(&sample(100.0, 0.0), [0.5, 0.5]));
        assert!(!is_right(&sample(0.0, 0.0), [1.0, 0.0]));
    }
}
