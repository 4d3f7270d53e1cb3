//! The experiment `nic` (E10): what marks of a classifying NIC save, and the frame size from which a rate is reached.
//!
//! The measurement is the example `marks` of the crate `pipeline`, with an ideal device: marks computed beforehand, no input and
//! output. Each line `NAME: VALUE UNIT` of its output is a row. Rows for more workers than one are *modelled*: the measured rate
//! of one worker times their number.

pub mod cli;
mod device;
mod governed;
mod record;
mod recorder;
mod rows;
pub(crate) mod section;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use millrace_process::pause;

pub use record::NicRecord;
pub use recorder::{Recorder, RunLength};
use rows::{
    CASES, HANDOFF_NANOS, MODELLED, ROWS, UNMEASURED, all_rows, dispatch_gain, model_error, smallest_frame,
};

use crate::gated::Gate;
use crate::gated::program::{ProgramError, said, value_of};
use crate::gated::recorder::{case, part};

/// The program that the experiment runs.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The folder with the example `marks`.
    pub examples: PathBuf,
}

impl Experiment {
    /// Measures all rows.
    ///
    /// # Errors
    /// SIGINT, or a file that cannot be written. What fails besides is recorded as missing.
    pub fn run(&self, recorder: &mut Recorder<'_>) -> Result<(), ProgramError> {
        recorder.begin(recorder.length.rounds == 1)?;
        for round in 0..recorder.length.rounds {
            pause(Duration::ZERO)?;
            match said(&mut self.marks(recorder))? {
                Ok(text) => {
                    record(recorder, round, &text)?;
                    self.run_two(recorder, round, &text)?;
                }
                Err(reason) => {
                    let build = "cargo build --release -p millrace-pipeline --examples";
                    let reason = format!("{reason}. To fix it: {build}");
                    recorder.all_missing(all_rows(), &reason)?;
                }
            }
        }
        if recorder.length.governed_seconds != 0 {
            for round in 0..recorder.length.rounds {
                governed::measure(recorder, &self.examples, round)?;
            }
        }
        for (name, reason) in UNMEASURED {
            recorder.missing(&part(name, ""), reason)?;
        }
        Ok(())
    }

    fn marks(&self, recorder: &Recorder<'_>) -> Command {
        let mut command = Command::new(self.examples.join("marks"));
        command.args([recorder.length.windows, recorder.length.flows].map(|number| number.to_string()));
        command
    }

    /// Measures two programs at once, and compares the sum of their rates with the modelled one, twice the rate of `one`.
    fn run_two(&self, recorder: &mut Recorder<'_>, round: usize, one: &str) -> Result<(), ProgramError> {
        let asked = "measured: two processes at once; modelled: twice the rate of one, no I/O";
        let row = |name: &str| {
            case(
                format!("N20 {name}: two workers, modelled off measured by"),
                asked,
                Gate::AtMost(10.0),
                "%",
            )
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let texts = if cores < 2 {
            Err(format!("it needs two cores, and there is {cores}"))
        } else {
            let mut commands = [self.marks(recorder), self.marks(recorder)];
            let [first, second] = &mut commands;
            let both = std::thread::scope(|scope| {
                let other = scope.spawn(|| said(second));
                (said(first), other.join())
            });
            match both {
                (Ok(Ok(first)), Ok(Ok(Ok(second)))) => Ok([first, second]),
                (Err(error), _) | (_, Ok(Err(error))) => return Err(error.into()),
                _ => Err("one of two programs failed".to_owned()),
            }
        };
        for name in MODELLED {
            let nanos = |text: &str| value_of(text, name);
            match &texts {
                Err(reason) => recorder.missing(&row(name), reason)?,
                Ok([first, second]) => match (nanos(one), nanos(first), nanos(second)) {
                    (Some(one), Some(first), Some(second)) => {
                        recorder.value(&row(name), round, model_error(one, [first, second]))?;
                    }
                    _ => recorder.missing(&row(name), "marks did not print it")?,
                },
            }
        }
        Ok(())
    }
}

/// Records the rows of one output of the example.
fn record(recorder: &mut Recorder<'_>, round: usize, text: &str) -> Result<(), ProgramError> {
    for row in &ROWS {
        match value_of(text, row.line) {
            Some(value) => recorder.value(&row.case(), round, value)?,
            None => recorder.missing(&row.case(), "marks did not print it")?,
        }
    }
    for name in CASES {
        for level in ["off", "verify", "trust"] {
            let line = format!("{name}: {level}");
            let shown = case(
                shown_name(&line),
                "measured, one worker, no I/O",
                Gate::None,
                "ns",
            );
            let Some(nanos) = value_of(text, &line) else {
                recorder.missing(&shown, "marks did not print it")?;
                continue;
            };
            recorder.value(&shown, round, nanos)?;
            if matches!(name, "MPLS" | "QinQ") && level == "off" {
                let asked = format!(
                    "modelled; a hand-off takes {HANDOFF_NANOS} ns (assumed: docs/scaling.md has 60 to 80), no I/O"
                );
                let quantity = format!(
                    "N14 {name}, two workers: two queues by dispatch / one queue that hands off, modelled"
                );
                recorder.value(
                    &case(quantity, &asked, Gate::None, ""),
                    round,
                    dispatch_gain(nanos),
                )?;
            }
            if name != "E10, one flow" {
                continue;
            }
            for (workers, asked) in [
                (1, "from the measured time of one worker, no I/O"),
                (4, "modelled: four times the measured rate of one worker, no I/O"),
                (8, "modelled: eight times the measured rate of one worker, no I/O"),
            ] {
                for gigabits in [10, 40, 100] {
                    let name = shown_name(&line);
                    let quantity = format!("{name}: smallest frame at {gigabits} Gbit/s, workers: {workers}");
                    let size = smallest_frame(nanos, workers, gigabits);
                    recorder.value(&case(quantity, asked, Gate::None, "bytes"), round, size)?;
                }
            }
            if level == "trust" {
                modelled(recorder, round, nanos)?;
            }
        }
    }
    Ok(())
}

/// Records the rates behind a NIC of each configuration, by frame size. A packet takes `nanos` with trusted marks.
fn modelled(recorder: &mut Recorder<'_>, round: usize, nanos: f64) -> Result<(), ProgramError> {
    for core in &device::CORES {
        for workers in [1, 4] {
            for size in device::SIZES {
                let rate = device::rate(core, size, workers, nanos);
                let quantity = format!(
                    "E10, {} with trusted marks, {size} bytes, workers: {workers}, modelled",
                    core.name
                );
                let asked = format!(
                    "limited by: {}; wire and core by their cycles, PCI Express 3.0 with 8 lanes (assumed), workers as measured without I/O",
                    rate.limit
                );
                recorder.value(&case(quantity, asked, Gate::None, "Mpps"), round, rate.mpps)?;
            }
        }
    }
    Ok(())
}

/// Returns the name of a row of E10 for a line of the example.
fn shown_name(line: &str) -> String {
    match line.starts_with("E10") {
        true => line.to_owned(),
        false => format!("E10, {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::recorder::rows_of;
    use crate::record::Log;

    /// Runs the experiment with an example that is a shell script.
    fn rows_with(script: &str) -> Vec<crate::gated::Row> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marks");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut log = Log::create(&folder.path().join("nic.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let length = RunLength {
            rounds: 1,
            windows: 2,
            flows: 64,
            governed_seconds: 0,
        };
        let experiment = Experiment {
            examples: folder.path().to_owned(),
        };
        experiment
            .run(&mut Recorder::new(length, &mut log, &mut progress))
            .unwrap();
        rows_of::<NicRecord>(log.records())
    }

    #[test]
    fn lines_of_the_example_are_rows_with_their_gates_and_sizes_follow_from_times() {
        let script = "echo 'exact-10k: off / trust: 1.40'; echo 'exact-10k: off / verify: 0.7'; echo 'E10, one flow: trust: 80.0 ns'";
        let rows = rows_with(script);
        let find = |name: &str| rows.iter().find(|row| row.case == name).unwrap();
        assert_eq!(find("N11 exact-10k: off / trust").met, Some(true));
        assert_eq!(find("N11 exact-10k: off / verify").met, Some(false));
        assert_eq!(
            find("N12 mean of QinQ, MPLS, PBB, GRE, VXLAN: off / trust").reached,
            None
        );
        // 12.5 million packets a second: 380 bytes with 20 on the wire are 40 Gbit/s.
        let size = find("E10, one flow: trust: smallest frame at 40 Gbit/s, workers: 1").reached;
        assert_eq!(size, Some(380.0));
        let modelled = find("E10, one flow: trust: smallest frame at 40 Gbit/s, workers: 4");
        assert_eq!(
            (modelled.reached, modelled.asked.contains("modelled")),
            (Some(80.0), true)
        );
    }

    #[test]
    fn a_model_is_compared_with_two_programs_at_once_and_says_what_it_assumes() {
        let rows = rows_with("echo 'exact-10k: trust: 50.0 ns'; echo 'MPLS: off: 140.0 ns'");
        let find = |name: &str| rows.iter().find(|row| row.case.starts_with(name)).unwrap();
        let error = find("N20 exact-10k: trust");
        if std::thread::available_parallelism().unwrap().get() > 1 {
            assert_eq!((error.reached, error.met), (Some(0.0), Some(true)));
        }
        assert_eq!(find("N20 E10, one flow: off").reached, None);
        // Worker one hands off two thirds, which takes it 47 ns a packet, and processes one third.
        let gain = find("N14 MPLS, two workers");
        assert!(gain.asked.contains("assumed") && gain.met.is_none(), "{gain:?}");
        assert!((gain.reached.unwrap() - 4.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn an_example_that_fails_is_a_missing_row_with_the_next_step() {
        let rows = rows_with("exit 3");
        let reason = rows[0].reason.clone().unwrap();
        assert!(
            reason.contains("cargo build --release -p millrace-pipeline"),
            "{reason}"
        );
    }
}
