//! The rows of public captures (gate I16 in docs/gates.md): the user time of `millrace ips read` over all captures of a folder,
//! which are written as one capture with other addresses in each repetition (`concatenated`), with 14,000 rules in mode `ids`.
//!
//! `HOME_NET` and `EXTERNAL_NET` are `any`, as in the recorded answers of `../shared/data`, so that each rule applies whatever the
//! addresses are. The user time is that of the whole process, the loading of rules among it.

use std::path::Path;
use std::time::Duration;

use millrace_process::{pause, run_tool};

use super::builds::Build;
use super::concatenated::{Captures, Written};
use super::rows::{capture_rows, faster_row};
use super::{Experiment, IpsBenchError, Recorder, reason};
use crate::usage::children_user_s;

/// The reason why the ratio to an earlier build is missing without one.
const NO_EARLIER: &str = "no earlier build: name its program with --before";

/// A measurement of `millrace ips read`.
struct Read {
    user_s: f64,
    alerts: usize,
}

impl Experiment {
    /// Measures all builds in turn, as often as the run has rounds.
    pub(super) fn captures(
        &self,
        recorder: &mut Recorder<'_>,
        rules: &Path,
        folder: &Path,
    ) -> Result<(), IpsBenchError> {
        let path = folder.join("captures.pcap");
        let written = match self.concatenated(recorder, &path) {
            Ok(written) => written,
            Err(error) => return self.captures_missing(recorder, &reason(error)?),
        };
        if written.frames == 0 {
            let reason = format!("no capture beneath {} can be read", self.captures.display());
            return self.captures_missing(recorder, &reason);
        }
        let asked = format!("{} times, {} frames", self.repetitions, written.frames);
        for round in 0..recorder.length.rounds {
            let mut times = Vec::new();
            for build in self.builds() {
                let recorder = &mut build.rows(recorder);
                let rows = capture_rows(&asked);
                let read = match self.read(build, rules, &path) {
                    Ok(read) => read,
                    Err(error) => {
                        recorder.all_missing(rows, &reason(error)?)?;
                        continue;
                    }
                };
                let rate = written.bytes as f64 * 8e-6 / read.user_s;
                for (row, value) in rows.iter().zip([read.user_s, rate, read.alerts as f64]) {
                    recorder.value(row, round, value)?;
                }
                times.push(read.user_s);
            }
            let row = faster_row(&asked);
            match times[..] {
                [this, earlier] => recorder.value(&row, round, earlier / this)?,
                _ if self.before.is_none() => recorder.missing(&row, NO_EARLIER)?,
                _ => recorder.missing(&row, "one of the builds was not measured: its row has the reason")?,
            }
        }
        // The space is needed by nothing that follows.
        let _ = std::fs::remove_file(&path);
        Ok(())
    }

    /// Records that no row could be measured.
    pub(super) fn captures_missing(
        &self,
        recorder: &mut Recorder<'_>,
        reason: &str,
    ) -> Result<(), IpsBenchError> {
        for build in self.builds() {
            build.rows(recorder).all_missing(capture_rows(""), reason)?;
        }
        recorder.missing(&faster_row(""), reason)
    }

    /// Writes all captures as one.
    fn concatenated(&self, recorder: &mut Recorder<'_>, path: &Path) -> Result<Written, IpsBenchError> {
        let captures = Captures::read(&self.captures)?;
        let written = captures.write(path, self.repetitions)?;
        (recorder.progress)(&format!(
            "  {} captures {} times: {} frames, {:.0} MB{}",
            captures.files,
            self.repetitions,
            written.frames,
            written.bytes as f64 / 1e6,
            captures.not_taken()
        ));
        Ok(written)
    }

    /// Reads the capture with a build.
    fn read(&self, build: Build<'_>, rules: &Path, capture: &Path) -> Result<Read, IpsBenchError> {
        pause(Duration::ZERO)?;
        let mut command = build.command(Some(self.core));
        command.args(["ips", "read", "--mode", "ids"]);
        command.args(["--set", "HOME_NET=any", "--set", "EXTERNAL_NET=any"]);
        command.arg("--rules").arg(rules).arg(capture);
        let before = children_user_s();
        let output = run_tool(&mut command)?;
        Ok(Read {
            user_s: children_user_s() - before,
            // Without events as EVE, each alert is a line.
            alerts: output.lines().count(),
        })
    }
}
