//! What all experiments of a run share: where records go, who is told of progress, where programs may run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use thiserror::Error;

use crate::figure::Quantity;
use crate::hugepages::HugePages;
use crate::machine::Machine;
use crate::peer::{Peer, PeerError, Site};
use crate::record::{Log, Record};
use millrace_process::ProcessError;

/// Huge pages that show that we may have some, MiB.
const HUGE_PAGES_LEAST_MIB: u64 = 64;
/// What does not lie together, or belongs to nobody: more than the largest system asks for, MiB.
const HUGE_PAGES_SPARE_MIB: u64 = 256;

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// How many measurements a median is of.
    pub rounds: usize,
    /// How long a measurement takes.
    pub window: Duration,
    /// True if warm-up is cut to a few seconds.
    pub quick: bool,
}

impl Effort {
    /// The acceptance run: a median of five.
    pub const FULL: Effort = Effort {
        rounds: 5,
        window: Duration::from_millis(1500),
        quick: false,
    };
    /// The shape in a minute or two.
    pub const QUICK: Effort = Effort {
        rounds: 2,
        window: Duration::from_secs(1),
        quick: true,
    };
}

/// Why a run ended before its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
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

impl RunError {
    /// For `map_err`: an error about `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> RunError + use<> {
        let path = path.to_owned();
        move |source| RunError::File { path, source }
    }
}

/// Why one system was not measured: a record where it is its own affair, the end where it is not.
#[derive(Debug)]
pub enum TurnError {
    /// Of the system.
    Peer(PeerError),
    /// Of the run.
    Run(RunError),
}

impl From<PeerError> for TurnError {
    fn from(error: PeerError) -> TurnError {
        match error {
            PeerError::Process(ProcessError::Interrupted) => TurnError::Run(RunError::Interrupted),
            error => TurnError::Peer(error),
        }
    }
}

impl From<ProcessError> for TurnError {
    fn from(error: ProcessError) -> TurnError {
        PeerError::from(error).into()
    }
}

impl From<RunError> for TurnError {
    fn from(error: RunError) -> TurnError {
        TurnError::Run(error)
    }
}

/// A run.
pub struct Run<'a> {
    /// How long and how often.
    pub effort: Effort,
    /// The daemon of Millrace.
    pub millraced: PathBuf,
    /// The nice level of every system.
    pub nice: i32,
    out: PathBuf,
    log: Option<Log>,
    records: Vec<Record>,
    progress: &'a mut dyn FnMut(&str),
    scratch: TempDir,
    start: Instant,
    cores: u32,
}

impl<'a> Run<'a> {
    /// Begins: from now on Ctrl-C only sets a flag. Records go to the folder `out`.
    ///
    /// # Errors
    /// There are too few cores, or a folder cannot be made.
    pub fn new(
        effort: Effort,
        millraced: PathBuf,
        nice: i32,
        out: &Path,
        progress: &'a mut dyn FnMut(&str),
    ) -> Result<Run<'a>, RunError> {
        millrace_process::interrupt::watch();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores < 2 {
            return Err(RunError::TooFewCores { cores });
        }
        let scratch = tempfile::Builder::new()
            .prefix("millrace-bench.")
            .tempdir()
            .map_err(RunError::file(Path::new("/tmp")))?;
        fs::create_dir_all(out).map_err(RunError::file(out))?;
        Ok(Run {
            effort,
            millraced,
            nice,
            out: out.to_owned(),
            log: None,
            records: Vec::new(),
            progress,
            scratch,
            start: Instant::now(),
            cores: cores as u32,
        })
    }

    /// Begins an experiment: a new file of its name, and in it which machine this is and what is about to be
    /// done.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        &mut self,
        experiment: &str,
        command: &str,
        systems: &[Box<dyn Peer>],
    ) -> Result<(), RunError> {
        let path = self.out.join(format!("{experiment}.jsonl"));
        self.log = Some(Log::create(&path).map_err(RunError::file(&path))?);
        let huge_pages = HugePages::reserve(HUGE_PAGES_LEAST_MIB).is_some();
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.add(Record::Run {
            experiment: experiment.to_owned(),
            started,
            quick: self.effort.quick,
            machine: Box::new(Machine::describe(if huge_pages { 1024 } else { 0 })),
            command: command.to_owned(),
        })?;
        let site = self.site("", 1, 0);
        for system in systems {
            self.add(Record::System {
                system: system.name().to_owned(),
                version: system.version(&site),
                configuration: system.configuration().to_owned(),
            })?;
        }
        Ok(())
    }

    /// Writes a record.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn add(&mut self, record: Record) -> Result<(), RunError> {
        self.records.push(record.clone());
        match &mut self.log {
            Some(log) => {
                let path = log.path().to_owned();
                log.add(record).map_err(RunError::file(&path))
            }
            None => Ok(()),
        }
    }

    /// Writes down a quantity.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn figure(
        &mut self,
        system: &str,
        round: usize,
        quantity: &Quantity,
        value: f64,
    ) -> Result<(), RunError> {
        let unit = quantity.unit;
        self.tell(&format!(
            "  {system:<15} {:<12} {value:>12.3} {unit}",
            quantity.name
        ));
        self.add(Record::Figure {
            case: quantity.case.to_owned(),
            system: system.to_owned(),
            round,
            quantity: quantity.name.to_owned(),
            unit: unit.to_owned(),
            value,
        })
    }

    /// All records of this run, of every experiment.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Tells a person who waits.
    pub fn tell(&mut self, text: &str) {
        let seconds = self.start.elapsed().as_secs();
        (self.progress)(&format!("{:>3}:{:02} {text}", seconds / 60, seconds % 60));
    }

    /// Writes down that a system could not be measured.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn failed(&mut self, case: &str, system: &str, reason: &PeerError) -> Result<(), RunError> {
        self.tell(&format!("  {system}: {reason}"));
        self.add(Record::Failed {
            case: case.to_owned(),
            system: system.to_owned(),
            reason: reason.to_string(),
        })
    }

    /// How many cores this machine has.
    pub fn cores(&self) -> usize {
        self.cores as usize
    }

    /// A place for a system with `workers` forwarding threads: a directory of that name (it is not made),
    /// and the last cores.
    pub fn site(&self, name: &str, workers: usize, huge_pages_mib: u64) -> Site {
        let workers = (workers as u32).clamp(1, self.cores);
        Site {
            dir: self.scratch.path().join(name),
            cores: (self.cores - workers..self.cores).collect(),
            control_core: 0,
            huge_pages_mib,
            nice: self.nice,
            millraced: self.millraced.clone(),
        }
    }

    /// Huge pages for systems that take at most `mib`; `None` if there are none to be had.
    pub(crate) fn huge_pages(&self, mib: u64) -> Option<(u64, HugePages)> {
        let mib = mib + HUGE_PAGES_SPARE_MIB;
        HugePages::reserve(mib).map(|pages| (mib, pages))
    }
}
