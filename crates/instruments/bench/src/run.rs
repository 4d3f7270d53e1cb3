//! The state that all experiments of a run share: records, progress, the scratch directory, and the cores.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use thiserror::Error;

use crate::figure::Quantity;
use crate::hugepages::HugePages;
use crate::machine::Machine;
use crate::peer::{Peer, PeerError, Resources};
use crate::record::{Log, Record};
use millrace_process::ProcessError;

/// A reservation of this many MiB shows that huge pages are available.
const HUGE_PAGES_PROBE_MIB: u64 = 64;
/// The number of MiB reserved beyond the need of the largest system, because some pages are not contiguous or
/// other programs take them.
const HUGE_PAGES_SPARE_MIB: u64 = 256;

/// The number of rounds and the duration of each measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// The number of measurements for each median.
    pub rounds: usize,
    /// The duration of a measurement.
    pub window: Duration,
    /// True if the warm-up is limited to a few seconds.
    pub quick: bool,
}

impl RunLength {
    /// The acceptance run: five rounds.
    pub const FULL: RunLength = RunLength {
        rounds: 5,
        window: Duration::from_millis(1500),
        quick: false,
    };
    /// A run of a few minutes that shows the shape of the result.
    pub const QUICK: RunLength = RunLength {
        rounds: 2,
        window: Duration::from_secs(1),
        quick: true,
    };
}

/// The error that ends a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// SIGINT or SIGTERM was received.
    #[error("interrupted")]
    Interrupted,
    /// The machine has only one core.
    #[error("this machine has {cores} core(s): expected at least 2, one to forward and one for the rest")]
    TooFewCores {
        /// The number of cores.
        cores: usize,
    },
}

impl RunError {
    /// Returns a function for `map_err` that names the file `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> RunError + use<> {
        let path = path.to_owned();
        move |source| RunError::File { path, source }
    }
}

/// The error of a round: a failed system is recorded and the run continues; any other error ends the run.
#[derive(Debug)]
pub enum RoundError {
    /// A system failed.
    Peer(PeerError),
    /// The run cannot continue.
    Run(RunError),
}

impl From<PeerError> for RoundError {
    fn from(error: PeerError) -> RoundError {
        match error {
            PeerError::Process(ProcessError::Interrupted) => RoundError::Run(RunError::Interrupted),
            error => RoundError::Peer(error),
        }
    }
}

impl From<ProcessError> for RoundError {
    fn from(error: ProcessError) -> RoundError {
        PeerError::from(error).into()
    }
}

impl From<RunError> for RoundError {
    fn from(error: RunError) -> RoundError {
        RoundError::Run(error)
    }
}

/// A run: the experiments of one command, one after the other.
pub struct Run<'a> {
    /// The number of rounds and the duration of each measurement.
    pub length: RunLength,
    /// The path of the daemon of Millrace.
    pub millraced: PathBuf,
    /// The path of the daemon of an earlier build of Millrace; `None` if none takes part.
    pub before: Option<PathBuf>,
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
    /// Starts a run that writes its records to the folder `out`. After this call, SIGINT only sets a flag.
    ///
    /// # Errors
    /// The machine has only one core, or a folder cannot be created.
    pub fn new(
        run_length: RunLength,
        millraced: PathBuf,
        nice: i32,
        out: &Path,
        progress: &'a mut dyn FnMut(&str),
    ) -> Result<Run<'a>, RunError> {
        millrace_process::interrupt::install_handler();
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
            length: run_length,
            millraced,
            before: None,
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

    /// Starts an experiment: creates its file, and records the machine, the command and the systems.
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
        let huge_pages = HugePages::reserve(HUGE_PAGES_PROBE_MIB).is_some();
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.add(Record::Run {
            experiment: experiment.to_owned(),
            started,
            quick: self.length.quick,
            machine: Box::new(Machine::describe(if huge_pages { 1024 } else { 0 })),
            command: command.to_owned(),
        })?;
        let resources = self.resources("", 1, 0);
        for system in systems {
            self.add(Record::System {
                system: system.name().to_owned(),
                version: system.version(&resources),
                configuration: system.configuration().to_owned(),
            })?;
        }
        Ok(())
    }

    /// Writes a record.
    ///
    /// # Errors
    /// The file cannot be written.
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

    /// Prints and records a value of a quantity. A value that is not finite, such as the ratio to a latency that was not
    /// measured, is recorded as missing: JSON has no such numbers.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn figure(
        &mut self,
        system: &str,
        round: usize,
        quantity: &Quantity,
        value: f64,
    ) -> Result<(), RunError> {
        if !value.is_finite() {
            let reason = format!("the value is {value}: a part of it was not measured");
            return self.not_measured(system, quantity, &reason);
        }
        let unit = quantity.unit;
        self.progress(&format!(
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

    /// Returns the records of all experiments of this run.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Prints a line of progress with the time since the start of the run.
    pub fn progress(&mut self, text: &str) {
        let seconds = self.start.elapsed().as_secs();
        (self.progress)(&format!("{:>3}:{:02} {text}", seconds / 60, seconds % 60));
    }

    /// Prints and records that a system could not be measured.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn failed(&mut self, case: &str, system: &str, reason: &PeerError) -> Result<(), RunError> {
        self.progress(&format!("  {system}: {reason}"));
        self.add(Record::Failed {
            case: case.to_owned(),
            system: system.to_owned(),
            quantity: None,
            reason: reason.to_string(),
        })
    }

    /// Prints and records that a quantity of a system could not be measured.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn not_measured(&mut self, system: &str, quantity: &Quantity, reason: &str) -> Result<(), RunError> {
        self.progress(&format!("  {system:<15} {:<12} {reason}", quantity.name));
        self.add(Record::Failed {
            case: quantity.case.to_owned(),
            system: system.to_owned(),
            quantity: Some(quantity.name.to_owned()),
            reason: reason.to_owned(),
        })
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.cores as usize
    }

    /// Returns the resources of a system with `workers` forwarding threads: the last cores, and a directory
    /// called `name`. The directory does not exist yet.
    pub fn resources(&self, name: &str, workers: usize, huge_pages_mib: u64) -> Resources {
        let workers = (workers as u32).clamp(1, self.cores);
        Resources {
            dir: self.scratch.path().join(name),
            cores: (self.cores - workers..self.cores).collect(),
            control_core: 0,
            huge_pages_mib,
            nice: self.nice,
            millraced: self.millraced.clone(),
            before: self.before.clone(),
        }
    }

    /// Reserves huge pages for systems that need at most `mib` MiB. Returns the reserved MiB and the pages; `None` if
    /// there are not enough.
    pub(crate) fn huge_pages(&self, mib: u64) -> Option<(u64, HugePages)> {
        let mib = mib + HUGE_PAGES_SPARE_MIB;
        HugePages::reserve(mib).map(|pages| (mib, pages))
    }
}

/// Reserves the huge pages of the run again, because other programs may have taken some of them. Returns
/// `None` if the run needs no huge pages.
///
/// # Errors
/// [`PeerError::NoHugePages`].
pub(crate) fn replenish_huge_pages(resources: &Resources) -> Result<Option<HugePages>, PeerError> {
    if resources.huge_pages_mib == 0 {
        return Ok(None);
    }
    match HugePages::reserve(resources.huge_pages_mib) {
        Some(pages) => Ok(Some(pages)),
        None => Err(PeerError::NoHugePages {
            mib: resources.huge_pages_mib,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;

    #[test]
    fn a_value_that_is_no_number_is_missing_and_its_record_is_read_back() {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut progress = |_: &str| {};
        let daemon = folder.path().join("millraced");
        let mut run = Run::new(RunLength::QUICK, daemon, 0, folder.path(), &mut progress).unwrap();
        let path = folder.path().join("updates.jsonl");
        run.log = Some(Log::create(&path).unwrap());
        let ratio = figure::find("updates-100k", "p99.9").unwrap();
        run.figure("millrace", 0, ratio, 1.5).unwrap();
        run.figure("millrace", 1, ratio, f64::NAN).unwrap();
        assert_eq!(crate::record::read(&path).unwrap(), run.records());
        assert_eq!(ratio.verdict(run.records(), "millrace"), Some(false));
        let reason = ratio.failure(run.records(), "millrace").unwrap();
        assert!(reason.contains("NaN"), "{reason}");
    }
}
