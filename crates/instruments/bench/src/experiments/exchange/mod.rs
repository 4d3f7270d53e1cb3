//! The experiment `exchange` (E11): an exchange for a week, in an hour.
//!
//! ```text
//! soak_exchange.py: lab, traffic, orders, kills --> lines in exchange.log --> rows with gates, samples --> exchange.jsonl
//! ```
//! The script in `tests/interop` runs the engine and the switches, and counts frames; it also runs alone. Each line of its
//! output is a row, `NAME: VALUE UNIT`, `sample: ` with the counts of an interval as JSON, or `moment: ` with a moment of loss. The
//! gates of the rows are data (`rows.rs`); a row that the script did not print is recorded as missing.

pub mod cli;
mod record;
mod recorder;
mod rows;
pub(crate) mod section;

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_process::{ProcessError, Running, pause};

pub use record::{ExchangeRecord, Moment, Sample};
pub use recorder::{Recorder, RunLength};

use crate::gated::program::{ProgramError, script, value_of};

/// The interval at which new lines of the script are read.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// The script in `tests/interop` of the sources.
const SCRIPT: &str = "soak_exchange.py";

/// The soak, and where its programs are.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The folder with `millrace-ix` and `millraced`.
    pub programs: PathBuf,
    /// The folder of the project's sources, with the script.
    pub sources: PathBuf,
}

impl Experiment {
    /// Runs the soak, and records its samples while it runs, and its rows at the end. `log` is the file for the output of
    /// the script.
    ///
    /// # Errors
    /// SIGINT, or a file that cannot be written. A soak that fails is recorded: its rows are missing.
    pub fn run(&self, recorder: &mut Recorder<'_>, log: &Path) -> Result<(), ProgramError> {
        recorder.begin(recorder.length.seconds < RunLength::FULL_S)?;
        match self.soak(recorder, log) {
            Ok(text) => {
                for (line, case) in rows::rows(&recorder.length) {
                    match value_of(&text, line) {
                        Some(value) => recorder.value(&case, 0, value)?,
                        None => recorder.missing(&case, &format!("{SCRIPT} did not print it"))?,
                    }
                }
                Ok(())
            }
            Err(ProgramError::Process(error)) if !matches!(error, ProcessError::Interrupted) => {
                let reason = format!(
                    "{error}. To fix it: run it as root in the folder of the sources, or give --sources; \
                     scripts/setup.sh installs what it needs"
                );
                let cases = rows::rows(&recorder.length).into_iter().map(|(_, case)| case);
                recorder.all_missing(cases, &reason)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the script, and returns its output.
    fn soak(&self, recorder: &mut Recorder<'_>, log: &Path) -> Result<String, ProgramError> {
        let RunLength {
            seconds,
            rate_mbps,
            changes,
            tenants,
        } = recorder.length;
        let mut command = script(&self.sources, SCRIPT);
        for (name, value) in [
            ("--seconds", seconds),
            ("--rate", rate_mbps),
            ("--changes", changes),
            ("--tenants", tenants),
        ] {
            command.arg(name).arg(value.to_string());
        }
        command.env("MILLRACE_TARGET", &self.programs);
        let mut running = Running::start(SCRIPT, &command, 0, log)?;
        let mut read = 0;
        loop {
            let has_ended = running.check().is_err();
            read = take(&running.log(), read, recorder)?;
            if has_ended {
                return Ok(running.finish()?);
            }
            pause(READ_INTERVAL)?;
        }
    }
}

/// Records the samples and moments among the complete lines behind the first `read` bytes, and prints the other lines; returns the
/// number of bytes that are read now.
fn take(text: &str, read: usize, recorder: &mut Recorder<'_>) -> Result<usize, ProgramError> {
    let fresh = text.get(read..).unwrap_or_default();
    let whole = fresh.rfind('\n').map_or(0, |end| end + 1);
    for line in fresh.get(..whole).unwrap_or_default().lines() {
        match record_of(line) {
            Some((record, words)) => {
                (recorder.progress)(&words);
                recorder.add(record)?;
            }
            None => (recorder.progress)(line),
        }
    }
    Ok(read + whole)
}

/// Returns the record of a line, with its words for people, if it has one.
fn record_of(line: &str) -> Option<(ExchangeRecord, String)> {
    match line.split_once(": ")? {
        ("sample", json) => {
            let sample: Sample = serde_json::from_str(json).ok()?;
            let words = sample.words();
            Some((ExchangeRecord::Sample(sample), words))
        }
        ("moment", json) => {
            let moment: Moment = serde_json::from_str(json).ok()?;
            let words = moment.words();
            Some((ExchangeRecord::Moment(moment), words))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::recorder::rows_of;
    use crate::gated::{Gate, Row};
    use crate::page::source::read_folder;
    use crate::record::Log;

    const SAMPLE: &str = r#"sample: {"at": 1.0, "load_mbps": 180.2, "changes_per_s": 9.9, "wrong": 0, "missing": 0, "order_ms": null, "engine_mb": 62.5, "switches_mb": [155.0, null]}"#;

    const MOMENT: &str = r#"moment: {"at": 1016.5, "ms": 3.1, "frames": 118, "asleep": 118, "beside": ["worker of two did not run: -60 to +4 ms"]}"#;

    fn length() -> RunLength {
        RunLength {
            seconds: 3600,
            rate_mbps: 1000,
            changes: 10,
            tenants: 200,
        }
    }

    /// Runs the experiment in a folder with a shell script in place of the soak.
    fn run_with(folder: &Path, script: &str) -> Vec<Row> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir(folder.join("scripts")).unwrap();
        let path = folder.join("scripts/apart.sh");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut log = Log::create(&folder.join("exchange.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let experiment = Experiment {
            programs: folder.to_owned(),
            sources: folder.to_owned(),
        };
        experiment
            .run(
                &mut Recorder::new(length(), &mut log, &mut progress),
                &folder.join("exchange.log"),
            )
            .unwrap();
        rows_of::<ExchangeRecord>(log.records())
    }

    /// Returns the verdicts of the rows with gates, of a soak that prints these values for them.
    fn verdicts(value: impl Fn(Gate) -> Option<f64>) -> Vec<Option<bool>> {
        let lines: Vec<String> = rows::rows(&length())
            .iter()
            .filter_map(|(line, case)| Some(format!("echo '{line}: {}'", value(case.gate)?)))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let rows = run_with(folder.path(), &lines.join("\n"));
        rows.iter()
            .filter(|row| !row.gate.is_empty())
            .map(|row| row.met)
            .collect()
    }

    #[test]
    fn each_gate_is_met_by_its_bound_and_missed_beyond_it() {
        let at_bound = verdicts(|gate| match gate {
            Gate::AtMost(bound) | Gate::AtLeast(bound) | Gate::Exactly(bound) => Some(bound),
            Gate::None => None,
        });
        assert!(
            at_bound.len() > 10 && at_bound.iter().all(|met| *met == Some(true)),
            "{at_bound:?}"
        );
        let beyond = verdicts(|gate| match gate {
            Gate::AtMost(most) => Some(most * 1.01),
            Gate::AtLeast(least) => Some(least * 0.99),
            Gate::Exactly(value) => Some(value + 1.0),
            Gate::None => None,
        });
        assert!(beyond.iter().all(|met| *met == Some(false)), "{beyond:?}");
    }

    #[test]
    fn the_script_prints_each_row() {
        let text = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../tests/interop/soak_exchange.py"
        ));
        for (line, _) in rows::rows(&length()) {
            assert!(text.contains(&format!("say(\"{line}\"")), "{line}");
        }
    }

    #[test]
    fn samples_become_plots_and_a_soak_that_fails_leaves_rows_with_the_reason_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let rows = run_with(
            folder.path(),
            &format!("echo '{SAMPLE}'\necho '{SAMPLE}'\necho '{MOMENT}'\necho 'no engine' >&2\nexit 3"),
        );
        for row in &rows {
            let reason = row.reason.as_deref().unwrap();
            assert!(
                row.reached.is_none() && reason.contains("no engine") && reason.contains("To fix it: "),
                "{reason}"
            );
        }
        let sources = read_folder(folder.path()).unwrap();
        let section = sources.iter().find_map(section::section).unwrap();
        assert_eq!(section.plots.len(), 5);
        for text in [
            "switch at site one",
            "Moments of loss",
            "worker of two did not run",
        ] {
            assert!(section.html.contains(text), "{text}: {}", section.html);
        }
    }
}
