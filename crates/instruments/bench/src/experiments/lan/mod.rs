//! The experiment `lan` (E1 of the published ones): one switch between two hosts, one TCP stream by iperf3,
//! second by second, in ten runs of a minute.
//!
//! Hosts are network namespaces, links are veth pairs; all systems get the same ones, built anew for each
//! run, in turn. Offloads of all links' ends are off for everybody: frames are of 1,514 bytes at most and
//! have their checksums, as on a wire. Without that, the kernel's bridge would pass on 64-KiB buffers that
//! no network card carries, and what is measured would not be a switch.

pub mod cli;
mod cpu;
pub mod iperf;
pub(crate) mod section;
mod site;
mod summary;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use millrace_lab::{RunError, UpError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::machine::Machine;
use crate::record::{Log, Record};
use millrace_process::ProcessError;
pub use site::Site;
pub use summary::{Row, rows, text};

/// A switch that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum System {
    /// Ours
    Millrace,
    /// The kernel's bridge
    LinuxBridge,
    /// Open vSwitch, its user-space datapath
    Ovs,
    /// Open vSwitch with DPDK
    OvsDpdk,
}

impl System {
    /// In the order in which they are measured.
    pub const ALL: [System; 4] = [
        System::Millrace,
        System::LinuxBridge,
        System::Ovs,
        System::OvsDpdk,
    ];

    /// Its name in records, and its kind in a lab file.
    pub fn name(self) -> &'static str {
        match self {
            System::Millrace => "millrace",
            System::LinuxBridge => "linux-bridge",
            System::Ovs => "ovs",
            System::OvsDpdk => "ovs-dpdk",
        }
    }

    /// What is configured other than as shipped, in one line.
    pub fn configuration(self) -> &'static str {
        match self {
            System::Millrace => "as shipped: learning switch, one worker that sleeps when idle",
            System::LinuxBridge => "as shipped; no packet filter, no spanning tree",
            System::Ovs => "as shipped: datapath_type=netdev, one flow entry actions=NORMAL",
            System::OvsDpdk => {
                "as shipped: datapath_type=netdev, ports by net_af_packet, one PMD thread, no huge pages, \
                 one flow entry actions=NORMAL"
            }
        }
    }
}

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Runs of each system.
    pub rounds: usize,
    /// The length of a run.
    pub run: Duration,
    /// True if that is less than published.
    pub quick: bool,
}

impl Effort {
    /// As published.
    pub const FULL: Effort = Effort {
        rounds: 10,
        run: Duration::from_secs(60),
        quick: false,
    };
    /// The shape in about two minutes.
    pub const QUICK: Effort = Effort {
        rounds: 3,
        run: Duration::from_secs(8),
        quick: true,
    };
}

/// A transfer through a switch, as it is written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// The system.
    pub system: String,
    /// Which run, from 0.
    pub round: usize,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Payload that arrived, bytes.
    pub bytes: f64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// Frames that left the sending host.
    pub frames_sent: u64,
    /// Frames that came to the receiving host.
    pub frames_received: u64,
    /// Processor time.
    pub cpu: Cpu,
    /// How the switch and the hosts were brought up, and what ran in them.
    pub commands: Vec<String>,
}

/// Processor time during a transfer, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of all cores, for everything: hosts, links and switch.
    pub machine_s: f64,
    /// Of the switch's programs; a switch in the kernel has none.
    pub switch_s: f64,
    /// Of the sending and of the receiving iperf3.
    pub hosts_s: [f64; 2],
    /// What the machine's own host took away: much of it means a disturbed run.
    pub steal_s: f64,
}

/// Why a system, or the experiment, has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LanError {
    /// The lab does not come up.
    #[error(transparent)]
    Up(#[from] UpError),
    /// A command does not run in a host.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The lab file is wrong: a mistake of this program.
    #[error("{0}")]
    File(String),
    /// iperf3 gives no result.
    #[error(transparent)]
    Iperf(#[from] iperf::IperfError),
    /// The hosts do not reach each other.
    #[error("h1 does not reach h2 over {system} within {} s", .within.as_secs())]
    Unreachable {
        /// The system.
        system: &'static str,
        /// How long was tried.
        within: Duration,
    },
    /// A counter of an interface cannot be read.
    #[error("{host}: {path} says {text:?}: expected a number")]
    Counter {
        /// The host.
        host: &'static str,
        /// The file.
        path: String,
        /// What it says.
        text: String,
    },
    /// A program is not installed, or the person at the keyboard wants to stop.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A result cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What a run is made of.
pub struct Run<'a> {
    /// The systems, in order.
    pub systems: Vec<System>,
    /// How long and how often.
    pub effort: Effort,
    /// The daemon of Millrace; the one that the lab finds, unless given.
    pub millraced: Option<PathBuf>,
    /// Where records go, and the name of that file for messages.
    pub log: &'a mut Log,
    /// The file of the log.
    pub path: PathBuf,
    /// Called with each step, for a person who waits.
    pub progress: &'a mut dyn FnMut(&str),
    /// The command that repeats the run.
    pub command: String,
}

impl Run<'_> {
    /// Measures everything. A system that fails is recorded as such, and the run goes on.
    ///
    /// # Errors
    /// [`LanError`]: the records cannot be written, iperf3 is not installed, or an interrupt.
    pub fn run(&mut self) -> Result<(), LanError> {
        millrace_process::interrupt::watch();
        site::check_programs()?;
        self.introduce()?;
        let mut broken = vec![false; self.systems.len()];
        for round in 0..self.effort.rounds {
            for (index, system) in self.systems.clone().into_iter().enumerate() {
                if broken[index] {
                    continue;
                }
                match self.turn(system, round) {
                    Ok(()) => {}
                    Err(error @ (LanError::Process(_) | LanError::Write { .. })) => return Err(error),
                    Err(error) => {
                        // An interrupt reaches iperf3, too, which then fails.
                        millrace_process::pause(Duration::ZERO)?;
                        broken[index] = true;
                        (self.progress)(&format!("  {}: {error}", system.name()));
                        self.add(Record::Failed {
                            case: "lan".to_owned(),
                            system: system.name().to_owned(),
                            reason: error.to_string(),
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, record: Record) -> Result<(), LanError> {
        let path = &self.path;
        self.log.add(record).map_err(|source| LanError::Write {
            path: path.clone(),
            source,
        })
    }

    fn introduce(&mut self) -> Result<(), LanError> {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.add(Record::Run {
            experiment: "lan".to_owned(),
            started,
            quick: self.effort.quick,
            machine: Box::new(Machine::describe(0)),
            command: self.command.clone(),
        })?;
        for system in self.systems.clone() {
            self.add(Record::System {
                system: system.name().to_owned(),
                version: site::version(system, self.millraced.as_deref()),
                configuration: system.configuration().to_owned(),
            })?;
        }
        Ok(())
    }

    /// One system, from start to end.
    fn turn(&mut self, system: System, round: usize) -> Result<(), LanError> {
        let site = Site::up(system, self.millraced.as_deref())?;
        let (report, transfer) = site.transfer(round, self.effort.run)?;
        drop(site);
        let gigabits = transfer.bytes * 8.0 / transfer.seconds.max(f64::MIN_POSITIVE) / 1e9;
        (self.progress)(&format!(
            "  round {:>2}: {:<13} {gigabits:>7.3} Gbit/s",
            round + 1,
            system.name()
        ));
        for (second, interval) in report.intervals.iter().enumerate() {
            self.add(Record::Second {
                system: system.name().to_owned(),
                round,
                second,
                bps: interval.bps,
                retransmits: interval.retransmits,
            })?;
        }
        self.add(Record::Transfer(Box::new(transfer)))
    }
}
