//! The experiment `wan`: the emulator of wide-area paths against gates W1 to W6 (docs/gates.md).
//!
//! ```text
//!  live            h1 ---veth--- millrace-wan ---veth--- h2     delay error, rates, changes, kill -9    (test_bed)
//!                  sender     capture                capture    packet sockets, stamps of the kernel    (packets)
//!  one core        model -> ring -> copy                        frames a second, resident memory        (capacity)
//!  virtual time    model                                        delays, rates, statistics, burst cuts   (statistics)
//!  guest           netem, or millrace-wan, on a kernel with netem         the same statistics of both   (guest)
//! ```
//!
//! Load and capture share no code with the emulator. The kernel's `tbf` shapes the same load in the same run, and its
//! netem delays it where this machine's kernel has netem.

mod capacity;
mod change;
pub mod cli;
mod delay;
mod error;
mod guest;
pub(crate) mod link;
mod packets;
mod rate;
mod record;
mod recorder;
pub(crate) mod section;
mod settings;
mod statistics;
mod test_bed;

use std::path::PathBuf;

use clap::ValueEnum;

use crate::gated::recorder::{Case, left_out, part as without_gate};
use crate::record::Record;
pub use error::WanBenchError;
pub use record::{DelayError, LossRuns, RealisedRate, WanRecord};
pub use recorder::{Recorder, RunLength};
use test_bed::{TestBed, obstacle};

/// A part of the experiment: a gate of docs/gates.md, or the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Part {
    /// The error of the delay
    W1,
    /// Frames a second on one core
    W2,
    /// Resident memory
    W3,
    /// Rates and queue depths
    W4,
    /// Distributions, losses, burst cuts
    W5,
    /// Changes under traffic, and kill -9
    W6,
    /// Statistics of netem and of the emulator, in a guest whose kernel has netem
    Guest,
}

impl Part {
    /// The parts, in the order of measurement. Memory is first, because memory that other parts have freed
    /// may stay resident.
    pub const ALL: [Part; 7] = [
        Part::W3,
        Part::W2,
        Part::W5,
        Part::W4,
        Part::W1,
        Part::W6,
        Part::Guest,
    ];

    /// Returns the name of the row that stands for the part if its live rows cannot be measured; `None` for a
    /// part without live rows.
    fn live(self) -> Option<&'static str> {
        match self {
            Part::W1 => Some("W1 millrace-wan"),
            Part::W4 => Some("W4 rate of millrace-wan"),
            Part::W6 => Some("W6 changes under traffic"),
            Part::W2 | Part::W3 | Part::W5 | Part::Guest => None,
        }
    }

    /// Returns the number of values in each of the part's rows that need no network interfaces of this machine.
    fn rounds_in_memory(self, length: RunLength) -> usize {
        match self {
            Part::W2 => length.rounds,
            Part::W1 | Part::W3 | Part::W4 | Part::W5 | Part::W6 | Part::Guest => 1,
        }
    }
}

/// The arguments of the experiment.
pub struct Experiment {
    /// The parts to measure.
    pub parts: Vec<Part>,
    /// The path of `millrace-wan`.
    pub program: PathBuf,
    /// The core of the emulator.
    pub core: usize,
}

impl Experiment {
    /// Measures all parts. The failure of a part is recorded, and the others continue.
    ///
    /// # Errors
    /// [`WanBenchError`]: the records cannot be written, or SIGINT was received.
    pub fn run(&self, recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
        millrace_process::interrupt::install_handler();
        self.record_run(recorder)?;
        let obstacle = obstacle(&self.program);
        for part in Part::ALL.into_iter().filter(|part| self.parts.contains(part)) {
            (recorder.progress)(&format!("{part:?}"));
            let failed = left_out(format!("{part:?} failed"), "");
            let rounds = part.rounds_in_memory(recorder.length);
            attempt(recorder, &failed, rounds, |recorder| {
                self.in_memory(recorder, part)
            })?;
            match (part.live(), &obstacle) {
                (None, _) => {}
                (Some(name), Some(reason)) => recorder.missing(&left_out(name, "live"), reason)?,
                (Some(name), None) => {
                    let failed = left_out(format!("{name} failed"), "");
                    let rounds = recorder.length.rounds;
                    attempt(recorder, &failed, rounds, |recorder| self.live(recorder, part))?;
                }
            }
            millrace_process::pause(std::time::Duration::ZERO)?;
        }
        Ok(())
    }

    /// Records the run and its systems.
    fn record_run(&self, recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
        recorder.begin(recorder.length.quick)?;
        let records = [
            Record::System {
                system: "millrace-wan".to_owned(),
                version: millrace_process::version(&self.program),
                configuration: format!(
                    "one thread on core {}, --poll unless a row says otherwise",
                    self.core
                ),
            },
            Record::System {
                system: "tbf".to_owned(),
                version: millrace_process::run_tool(std::process::Command::new("tc").arg("-V")).ok(),
                configuration: "the kernel's bridge, tbf where frames leave it".to_owned(),
            },
        ];
        for record in records {
            recorder.log(record)?;
        }
        Ok(())
    }

    /// Measures the rows of a part that do not need network interfaces of this machine.
    fn in_memory(&self, recorder: &mut Recorder<'_>, part: Part) -> Result<(), WanBenchError> {
        let core = self.core as u32;
        match part {
            Part::W1 => delay::in_virtual_time(recorder),
            Part::W2 => capacity::rates(recorder, core),
            Part::W3 => capacity::memory(recorder, core),
            Part::W4 => rate::in_virtual_time(recorder),
            Part::W5 => statistics::run(recorder),
            Part::W6 => Ok(()),
            Part::Guest => guest::run(recorder, &self.program),
        }
    }

    /// Measures the rows of a part over veth pairs.
    fn live(&self, recorder: &mut Recorder<'_>, part: Part) -> Result<(), WanBenchError> {
        let mut test_bed = TestBed::up()?;
        let (program, core, rounds) = (&self.program, self.core, recorder.length.rounds);
        match part {
            Part::W1 => {
                let failed = left_out("W1 millrace-wan failed", "");
                attempt(recorder, &failed, rounds, |recorder| {
                    delay::live(recorder, &mut test_bed, program, core)
                })?;
                // Rows of netem have no gates.
                let failed = without_gate("W1 netem failed", "");
                attempt(recorder, &failed, rounds, |recorder| {
                    delay::netem(recorder, &mut test_bed)
                })
            }
            Part::W4 => rate::live(recorder, &mut test_bed, program, core),
            Part::W6 => {
                let failed = left_out("W6 changes under traffic failed", "");
                attempt(recorder, &failed, 1, |recorder| {
                    change::under_traffic(recorder, &mut test_bed, program, core)
                })?;
                let failed = left_out("W6 kill -9 failed", "");
                attempt(recorder, &failed, rounds, |recorder| {
                    change::killed(recorder, &mut test_bed, program, core)
                })
            }
            Part::W2 | Part::W3 | Part::W5 | Part::Guest => Ok(()),
        }
    }
}

/// Measures rows of a part. Records a failure: rows with fewer values than `rounds` are incomplete, and `failed` stands for
/// further rows, which are left out.
fn attempt(
    recorder: &mut Recorder<'_>,
    failed: &Case,
    rounds: usize,
    measure: impl FnOnce(&mut Recorder<'_>) -> Result<(), WanBenchError>,
) -> Result<(), WanBenchError> {
    let first = recorder.recorded();
    match measure(recorder) {
        Ok(()) => Ok(()),
        Err(error @ (WanBenchError::File(_) | WanBenchError::Process(_)))
            if millrace_process::interrupt::requested() || matches!(error, WanBenchError::File(_)) =>
        {
            Err(error)
        }
        Err(error) => {
            let reason = error.to_string();
            recorder.incomplete_from(first, rounds, &reason)?;
            recorder.missing(failed, &reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::Gate;
    use crate::gated::recorder::{case, rows_of};
    use crate::record::Log;

    #[test]
    fn a_failure_makes_rows_incomplete_that_lack_a_round_and_rows_that_are_left_out_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(&dir.path().join("wan.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let mut recorder = Recorder::new(RunLength::QUICK, &mut log, &mut progress);
        let row = |name: &str| case(name, "10 ms", Gate::AtMost(20.0), "us");
        let failure = |reason: &str| WanBenchError::LabFile(reason.to_owned());
        attempt(&mut recorder, &left_out("W1 failed", ""), 1, |recorder| {
            recorder.value(&row("W1 virtual time: error"), 0, 1.0)
        })
        .unwrap();
        let failed = left_out("W1 millrace-wan failed", "");
        attempt(&mut recorder, &failed, 2, |recorder| {
            recorder.value(&row("W1 millrace-wan: error"), 0, 1.0)?;
            recorder.value(&row("W1 millrace-wan: early"), 0, 1.0)?;
            recorder.missing(&row("W1 millrace-wan: lost"), "no frame entered")?;
            recorder.value(&row("W1 millrace-wan: error"), 1, 1.0)?;
            Err(failure("the emulator has ended"))
        })
        .unwrap();
        let failed = without_gate("W1 netem failed", "");
        attempt(&mut recorder, &failed, 2, |_| Err(failure("tc has ended"))).unwrap();
        let rows = rows_of::<WanRecord>(log.records());
        let verdicts: Vec<_> = rows
            .iter()
            .map(|row| (row.case.as_str(), row.met, row.reason.as_deref()))
            .collect();
        let ended = failure("the emulator has ended").to_string();
        let netem = failure("tc has ended").to_string();
        assert_eq!(
            verdicts,
            [
                ("W1 virtual time: error", Some(true), None),
                ("W1 millrace-wan: error", Some(true), None),
                ("W1 millrace-wan: early", Some(false), Some(ended.as_str())),
                ("W1 millrace-wan: lost", None, Some("no frame entered")),
                ("W1 millrace-wan failed", None, Some(ended.as_str())),
                ("W1 netem failed", None, Some(netem.as_str())),
            ]
        );
        let lead = crate::gated::section::lead(&rows);
        assert_eq!(
            lead,
            "2 of 5 gates are met, 2 not measured. Rows without a gate that were not measured: 1."
        );
    }
}
