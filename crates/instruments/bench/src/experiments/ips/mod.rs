//! The experiment `ips`: the rate of intrusion prevention on one core (E7), with one rule that alerts on every TCP packet, and
//! with 14,000 rules.
//!
//! ```text
//!  millrace nf rate ips ─▶ TCP connections in memory, new with each pass ─▶ function ─▶ packets a second
//!  millrace nf rate monitor, in the same round ─────────────────────────────────────▶ the ratio
//! ```
//!
//! `load` has the rows beside E7: HTTP connections (RFC 9411), latency, overload, reload under load, lanes; `attacks` the attacks
//! that are blocked under load. `engine` has those of the engine alone: four mixes of connections, with `millrace ips rate`.
//!
//! The published experiment (2011: Snort 2.9.1.2 inline on DPDK 1.0) offered two directions of 1 GbE. A share is the rate as a
//! part of what such links carry.

mod attacks;
pub mod cli;
mod engine;
mod error;
mod load;
mod record;
mod recorder;
pub(crate) mod section;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;

use crate::file_error::file;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};
use crate::machine::Machine;
use crate::record::Record;
pub use error::IpsBenchError;
pub use record::{IpsRecord, Rate};
pub use recorder::{Recorder, RunLength};

/// The sizes of frames of the published experiment, with check sequence.
const FRAMES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Bytes of preamble and gap between frames (IEEE 802.3).
const GAP: f64 = 20.0;
/// A rule that alerts on every TCP packet.
const ONE_RULE: &str = "alert tcp-pkt any any -> any any (msg:\"each TCP packet\"; ttl:>0; sid:1;)\n";
/// Rates of 64-byte frames at 2 x 10 Gbit/s that the design asks for, in Mpps: one rule, 14,000 rules.
const GATES: [f64; 2] = [8.0, 4.0];

/// Rows that the design asks for and that this experiment does not measure, with the reason.
const UNMEASURED: [(&str, &str); 2] = [
    (
        "RFC 9411 7.6 to 7.9: the same over TLS",
        "the function sees TLS from outside: sessions of other lengths would be the same packets as those of 7.2 to 7.5; the mix \
         `web` of `--engine` is nine tenths TLS 1.3",
    ),
    (
        "bypassed TLS: over a chain without functions",
        "the lane of a switch lets these packets pass without a call; `cargo run --release -p millrace-daq --example cost` measures it",
    ),
];

/// The arguments of the experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The command line program, whose `nf rate` measures a function.
    pub program: PathBuf,
    /// The core of the function.
    pub core: usize,
    /// The file of 14,000 rules, packed by xz or not.
    pub rules: PathBuf,
    /// The file of rules that are loaded again under load, packed by xz or not.
    pub all_rules: PathBuf,
    /// True if only the rows of the engine are measured.
    pub engine_only: bool,
    /// The command that repeats the run.
    pub command: String,
}

/// A measurement: name, function and settings.
struct System {
    name: &'static str,
    function: &'static str,
    settings: Vec<String>,
}

impl Experiment {
    /// Measures all rows.
    ///
    /// # Errors
    /// [`IpsBenchError`]: the records cannot be written, or SIGINT was received.
    pub fn run(&self, recorder: &mut Recorder<'_>) -> Result<(), IpsBenchError> {
        millrace_process::interrupt::install_handler();
        self.record_run(recorder)?;
        let folder = tempfile::tempdir().map_err(file(Path::new("/tmp")))?;
        let one = folder.path().join("one.rules");
        std::fs::write(&one, ONE_RULE).map_err(file(&one))?;
        let system = |name, function, rules: Option<&Path>| System {
            name,
            function,
            settings: rules
                .map(|path| format!("rules={}", path.display()))
                .into_iter()
                .chain(rules.map(|_| "events=alerts".to_owned()))
                .collect(),
        };
        let mut systems = vec![
            system("monitor", "monitor", None),
            system("one rule", "ips", Some(&one)),
        ];
        match unpacked(&self.rules, &folder.path().join("many.rules")) {
            Ok(many) => {
                self.engine(recorder, &many)?;
                systems.push(system("14,000 rules", "ips", Some(&many)));
            }
            Err(reason) => {
                recorder.missing("engine", "", &reason)?;
                recorder.missing("E7 14,000 rules", "", &reason)?;
            }
        }
        if self.engine_only {
            return Ok(());
        }
        for round in 0..recorder.length.rounds {
            for frame in FRAMES {
                self.frame(recorder, round, frame, &systems)?;
            }
            for system in &systems[1..] {
                self.http(recorder, round, system)?;
                self.under_load(recorder, round, system)?;
                self.attacks(recorder, round, system, folder.path())?;
                self.open_connections(recorder, round, system)?;
                self.lanes(recorder, round, system)?;
            }
        }
        match unpacked(&self.all_rules, &folder.path().join("all.rules")) {
            Ok(all) => self.reload(recorder, &system("all rules", "ips", Some(&all)))?,
            Err(reason) => recorder.missing("reload of all rules", "", &reason)?,
        }
        for (row, reason) in UNMEASURED {
            recorder.missing(row, "", reason)?;
        }
        for peer in ["suricata", "snort"] {
            let reason = match millrace_process::run_tool(Command::new(peer).arg("-V")) {
                Ok(_) => "it is there, but this experiment drives functions without a network",
                Err(_) => "not there: no such program on PATH",
            };
            recorder.missing(&format!("E7 {peer}"), "", reason)?;
        }
        Ok(())
    }

    /// Measures all systems with one size of frames, in turn.
    fn frame(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        frame: u16,
        systems: &[System],
    ) -> Result<(), IpsBenchError> {
        let mut beside = None;
        for (number, system) in systems.iter().enumerate() {
            millrace_process::pause(std::time::Duration::ZERO)?;
            let name = system.name;
            let rate = match self.rate(system, frame, recorder.length.seconds) {
                Ok(rate) => rate,
                Err(error) => {
                    recorder.missing(&format!("E7 {name}"), &format!("{frame} B"), &error.to_string())?;
                    continue;
                }
            };
            recorder.add(IpsRecord::Rate(Rate {
                system: name.to_owned(),
                round,
                frame,
                packets_per_second: rate.packets_per_second,
                load_s: rate.load_s,
            }))?;
            let Some(monitor) = beside else {
                beside = Some(rate.packets_per_second);
                continue;
            };
            let offered = |gbps: f64| 2.0 * gbps * 1e9 / ((f64::from(frame) + GAP) * 8.0);
            let share = (rate.packets_per_second / offered(1.0)).min(1.0) * 100.0;
            let row = |what: &str, gate, unit| -> Case {
                case(format!("E7 {name}: {what}"), format!("{frame} B"), gate, unit)
            };
            let named = |what: &str| format!("{frame} B, {what}");
            recorder.value(
                &row(&named("share of 2 x 1G"), Gate::AtLeast(100.0), "%"),
                round,
                share,
            )?;
            let gate = match (frame, GATES.get(number - 1)) {
                (64, Some(gate)) => Gate::AtLeast(*gate),
                _ => Gate::None,
            };
            let mpps = rate.packets_per_second / 1e6;
            recorder.value(&row(&named("one core"), gate, "Mpps"), round, mpps)?;
            let ratio = rate.packets_per_second / monitor;
            recorder.value(&row(&named("ratio to monitor"), Gate::None, ""), round, ratio)?;
        }
        Ok(())
    }

    /// Measures one system with frames of a size.
    fn rate(&self, system: &System, frame: u16, seconds: f64) -> Result<Measured, IpsBenchError> {
        let arguments = ["--frame".to_owned(), frame.to_string()];
        Measured::of(&self.measure(system, Some(self.core), seconds, &arguments)?)
    }

    /// Runs `millrace nf rate` on a core, or on any, and returns its output.
    fn measure(
        &self,
        system: &System,
        core: Option<usize>,
        seconds: f64,
        arguments: &[String],
    ) -> Result<Json, IpsBenchError> {
        let output = self.command(system, core, seconds, arguments).output();
        parsed(system, output)
    }

    /// Returns the command of a measurement.
    fn command(&self, system: &System, core: Option<usize>, seconds: f64, arguments: &[String]) -> Command {
        let mut command = match core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(["nf", "rate", system.function, "--json"])
            .args(["--seconds", &seconds.to_string()])
            .args(arguments);
        for setting in &system.settings {
            command.args(["--setting", setting]);
        }
        command
    }

    /// Writes the record of the run with its machine, which comes first in the file.
    fn record_run(&self, recorder: &mut Recorder<'_>) -> Result<(), IpsBenchError> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        recorder.log(Record::Run {
            experiment: "ips".to_owned(),
            started: started.map_or(0, |since| since.as_secs()),
            quick: recorder.length.quick,
            machine: Box::new(Machine::describe(0)),
            command: self.command.clone(),
        })
    }
}

/// Returns the path of a file of rules, unpacked to `to` if it is packed.
fn unpacked(rules: &Path, to: &Path) -> Result<PathBuf, String> {
    if !rules.exists() {
        return Err(format!(
            "{} is not there: name the rules with --rules and --all-rules",
            rules.display()
        ));
    }
    if rules.extension().is_none_or(|extension| extension != "xz") {
        return Ok(rules.to_owned());
    }
    let output = Command::new("xz").arg("-dc").arg(rules).output();
    let output = output.map_err(|error| format!("xz: {error}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{} cannot be unpacked: {reason}", rules.display()));
    }
    std::fs::write(to, output.stdout).map_err(|error| error.to_string())?;
    Ok(to.to_owned())
}

/// Returns the error of a measurement of a system.
fn failed(system: &System, reason: String) -> IpsBenchError {
    IpsBenchError::Rate {
        command: format!("millrace nf rate {}", system.function),
        reason,
    }
}

/// Returns the output of a measurement.
fn parsed(system: &System, output: std::io::Result<Output>) -> Result<Json, IpsBenchError> {
    let output = output.map_err(|error| failed(system, error.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(system, text));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(system, error.to_string()))
}

/// Returns a number of the output of a measurement, by its JSON pointer (RFC 6901).
fn number(json: &Json, pointer: &str) -> Result<f64, IpsBenchError> {
    let found = json.pointer(pointer).and_then(Json::as_f64);
    found.ok_or_else(|| IpsBenchError::Rate {
        command: "millrace nf rate".to_owned(),
        reason: format!("no {pointer} in {json}"),
    })
}

/// The result of `millrace nf rate`.
struct Measured {
    packets_per_second: f64,
    load_s: f64,
}

impl Measured {
    fn of(json: &Json) -> Result<Measured, IpsBenchError> {
        Ok(Measured {
            packets_per_second: number(json, "/packets_per_second")?,
            load_s: number(json, "/load_seconds")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_rules_are_an_error_and_not_an_empty_set() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, to) = (folder.path().join("a.rules.xz"), folder.path().join("a.rules"));
        std::fs::write(&packed, "no archive").unwrap();
        assert!(unpacked(&packed, &to).is_err());
        assert!(!to.exists());
    }
}
