//! The experiment `lan` (E1 in docs/gates.md): one switch between two hosts, one TCP stream by iperf3,
//! second by second, in ten runs of a minute.
//!
//! Hosts are network namespaces and links are veth pairs, the same for all systems and created again for each run, in
//! turn. Offloads are off at both ends of all links: frames are at most 1,514 bytes long, with complete checksums, as on a
//! wire. Otherwise the kernel's bridge would forward 64-KiB buffers that no network card carries.

pub mod cli;
mod cpu;
mod error;
pub mod iperf;
mod record;
pub(crate) mod section;
mod summary;
mod system;
mod test_bed;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::experiments::wan::link::WanLink;
use crate::machine::Machine;
use crate::record::{Log, Record};
pub use error::LanError;
pub use record::{Cpu, Transfer};
pub use summary::{Row, rows, text};
pub use system::System;
pub use test_bed::TestBed;

/// The number of rounds and the duration of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// The number of runs of each system.
    pub rounds: usize,
    /// The duration of a run.
    pub run: Duration,
    /// True if the run is shorter than the published one.
    pub quick: bool,
}

impl RunLength {
    /// The published run length.
    pub const FULL: RunLength = RunLength {
        rounds: 10,
        run: Duration::from_secs(60),
        quick: false,
    };
    /// A run of about two minutes that shows the shape of the result.
    pub const QUICK: RunLength = RunLength {
        rounds: 3,
        run: Duration::from_secs(8),
        quick: true,
    };
}

/// The arguments and the output of the experiment.
pub struct Run<'a> {
    /// The systems, in the order of measurement.
    pub systems: Vec<System>,
    /// The number of rounds and the duration of each run.
    pub length: RunLength,
    /// The path of the daemon of Millrace; `None` for the one that the lab finds.
    pub millraced: Option<PathBuf>,
    /// The path between two sites with a switch each; `None` for one switch (E1).
    pub wan: Option<WanLink>,
    /// The log for the records.
    pub log: &'a mut Log,
    /// The path of the log.
    pub path: PathBuf,
    /// The function that prints progress.
    pub progress: &'a mut dyn FnMut(&str),
    /// The command that repeats the run.
    pub command: String,
}

impl Run<'_> {
    /// Measures all systems. The failure of a system is recorded, and the others continue.
    ///
    /// # Errors
    /// [`LanError`]: the records cannot be written, iperf3 is not installed, or SIGINT was received.
    pub fn run(&mut self) -> Result<(), LanError> {
        millrace_process::interrupt::install_handler();
        test_bed::check_programs()?;
        self.record_run()?;
        let mut broken = vec![false; self.systems.len()];
        for round in 0..self.length.rounds {
            for (index, system) in self.systems.clone().into_iter().enumerate() {
                if broken[index] {
                    continue;
                }
                match self.measure(system, round) {
                    Ok(()) => {}
                    Err(error @ (LanError::Process(_) | LanError::Write { .. })) => return Err(error),
                    Err(error) => {
                        // An interrupt also ends iperf3, whose failure must not hide it.
                        millrace_process::pause(Duration::ZERO)?;
                        broken[index] = true;
                        (self.progress)(&format!("  {}: {error}", system.name()));
                        self.add(Record::Failed {
                            case: "lan".to_owned(),
                            system: system.name().to_owned(),
                            quantity: None,
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

    /// Records the run and its systems.
    fn record_run(&mut self) -> Result<(), LanError> {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.add(Record::Run {
            experiment: match self.wan {
                None => "lan",
                Some(_) => "lan-wan",
            }
            .to_owned(),
            started,
            quick: self.length.quick,
            machine: Box::new(Machine::describe(0)),
            command: self.command.clone(),
        })?;
        if let Some(wan) = &self.wan {
            let configuration = format!("between two sites with a switch each: {wan}");
            let program = millrace_process::program_path("millrace-wan", "MILLRACE_WAN_PROGRAM");
            self.add(Record::System {
                system: "millrace-wan".to_owned(),
                version: millrace_process::version(program),
                configuration,
            })?;
        }
        for system in self.systems.clone() {
            self.add(Record::System {
                system: system.name().to_owned(),
                version: test_bed::version(system, self.millraced.as_deref()),
                configuration: system.configuration().to_owned(),
            })?;
        }
        Ok(())
    }

    /// Starts, measures and ends a system.
    fn measure(&mut self, system: System, round: usize) -> Result<(), LanError> {
        let test_bed = TestBed::between(system, self.millraced.as_deref(), self.wan.as_ref())?;
        let (report, transfer) = test_bed.transfer(round, self.length.run)?;
        drop(test_bed);
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
