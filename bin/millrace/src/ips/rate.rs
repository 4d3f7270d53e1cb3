//! `millrace ips rate`: the rate of the engine over mixes of connections, and that of Suricata if it is on
//! PATH.

use std::fmt::Write;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millrace_ips_engine::Mode;
use millrace_ips_offline::mixes::{Mix, frames};
use millrace_ips_offline::{CONNECTIONS, RateSummary, rate};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use serde::Serialize;

use super::load::load;
use crate::cli::{RateArgs, ReadMode};
use crate::output::Session;

/// Passes in the longer of the two captures that Suricata reads.
const PEER_PASSES: u32 = 16;

/// The rates of a run.
#[derive(Debug, Serialize)]
struct Report {
    rules: usize,
    mode: &'static str,
    rounds: u32,
    mixes: Vec<Row>,
    /// The reason why Suricata was not measured; absent if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    suricata_missing: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    mix: &'static str,
    frames: u64,
    bytes: u64,
    alerts: u64,
    /// Median of the rounds.
    megabits_per_second: f64,
    frames_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    suricata_megabits_per_second: Option<f64>,
}

pub(super) fn run(session: &Session, args: &RateArgs) -> Result<()> {
    let (ruleset, _) = load(&args.rules, &args.files)?.compile()?;
    let mode: Mode = args.mode.into();
    let least = args.seconds;
    let mut report = Report {
        rules: ruleset.rules.len(),
        mode: match args.mode {
            ReadMode::Ids => "ids",
            ReadMode::Ips => "ips",
        },
        rounds: args.rounds,
        mixes: Vec::new(),
        suricata_missing: None,
    };
    for mix in Mix::ALL {
        let mut rounds: Vec<RateSummary> = (0..args.rounds)
            .map(|_| rate(mix, &ruleset, mode, least))
            .collect();
        rounds.sort_by(|a, b| a.megabits_per_second().total_cmp(&b.megabits_per_second()));
        let median = rounds[rounds.len() / 2];
        let peer = match &report.suricata_missing {
            Some(_) => None,
            None => suricata(mix, args)
                .map_err(|error| report.suricata_missing = Some(format!("{error:#}")))
                .ok(),
        };
        report.mixes.push(Row {
            mix: mix.name(),
            frames: median.frames,
            bytes: median.bytes,
            alerts: median.alerts,
            megabits_per_second: median.megabits_per_second(),
            frames_per_second: median.frames_per_second(),
            suricata_megabits_per_second: peer,
        });
    }
    session.print(&report, Report::text)
}

/// Returns the rate of Suricata over a mix. The difference between a long and a short capture excludes the
/// start of Suricata.
fn suricata(mix: Mix, args: &RateArgs) -> Result<f64> {
    let found = Command::new("suricata")
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        bail!("suricata is not on PATH");
    }
    let folder = tempfile::tempdir().context("cannot make a folder for captures")?;
    let rules = one_file(&args.files, folder.path())?;
    let mut times = Vec::new();
    for passes in [1, PEER_PASSES] {
        let capture = folder.path().join(format!("{passes}.pcap"));
        let bytes = write(mix, passes, &capture)?;
        let start = Instant::now();
        let mut command = command(&capture, &rules, args.mode);
        command.arg("-l").arg(folder.path());
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.context("cannot run suricata")?;
        if !status.success() {
            bail!("suricata ended with {status}; run it by hand over a capture to see why");
        }
        times.push((bytes, start.elapsed().as_secs_f64()));
    }
    let (bytes, seconds) = (times[1].0 - times[0].0, times[1].1 - times[0].1);
    Ok(bytes as f64 * 8e-6 / seconds.max(1e-9))
}

/// Returns the command that runs Suricata over a capture.
fn command(capture: &Path, rules: &Path, mode: ReadMode) -> Command {
    let mut command = Command::new("suricata");
    command.arg("-r").arg(capture).arg("-S").arg(rules);
    command.args(["--runmode", "single", "-k", "none"]);
    if mode == ReadMode::Ips {
        command.arg("--simulate-ips");
    }
    command
}

/// Returns one file with the rules of all files, because Suricata is given one rule file (`-S`).
fn one_file(files: &[PathBuf], folder: &Path) -> Result<PathBuf> {
    if let [file] = files {
        return Ok(file.clone());
    }
    let mut text = Vec::new();
    for file in files {
        text.extend(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
        text.push(b'\n');
    }
    let path = folder.join("all.rules");
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Writes passes of a mix as a capture, and returns the bytes of their frames.
fn write(mix: Mix, passes: u32, path: &Path) -> Result<u64> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut writer = PcapWriter::new(BufWriter::new(file)).context("cannot write a capture")?;
    let mut bytes = 0;
    for pass in 0..passes {
        for frame in frames(mix, pass, CONNECTIONS) {
            let time = Duration::from_nanos(frame.time.nanos());
            let size = frame.bytes.len() as u32;
            bytes += u64::from(size);
            writer.write_packet(&PcapPacket::new(time, size, &frame.bytes))?;
        }
    }
    Ok(bytes)
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{} rules, mode {}, one core, median of {} rounds\n{:>6} {:>12} {:>14} {:>10} {:>18}\n",
            self.rules, self.mode, self.rounds, "mix", "Mbit/s", "packets/s", "alerts", "suricata Mbit/s"
        );
        for row in &self.mixes {
            let peer = row
                .suricata_megabits_per_second
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{:>6} {:>12.0} {:>14.0} {:>10} {peer:>18}",
                row.mix, row.megabits_per_second, row.frames_per_second, row.alerts
            );
        }
        if let Some(reason) = &self.suricata_missing {
            let _ = writeln!(text, "no rates of Suricata: {reason}");
        }
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn suricata_gets_one_file_with_the_rules_of_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        std::fs::write(&files[0], "alert ip any any -> any any (sid:1;)").unwrap();
        std::fs::write(&files[1], "alert ip any any -> any any (sid:2;)\n").unwrap();
        let rules = one_file(&files, folder.path()).unwrap();
        let text = std::fs::read_to_string(&rules).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(
            matches!(lines[..], [a, b] if a.ends_with("(sid:1;)") && b.ends_with("(sid:2;)")),
            "{text}"
        );
        assert_eq!(one_file(&files[..1], folder.path()).unwrap(), files[0]);
        let command = command(Path::new("a.pcap"), &rules, ReadMode::Ids);
        let words: Vec<_> = command.get_args().collect();
        let at = words.iter().position(|word| *word == "-S").unwrap();
        assert_eq!(words[at + 1], rules);
        assert!(!words[at + 1..].contains(&std::ffi::OsStr::new("-S")));
    }
}
