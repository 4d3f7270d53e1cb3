//! The experiment `ips`: the rate of intrusion prevention on one core (E7 in docs/gates.md), with one rule that alerts
//! on every TCP packet, and with 14,000 rules.
//!
//! ```text
//!  millrace nf rate ips ─▶ TCP connections in memory, new with each pass ─▶ function ─▶ packets a second
//!  millrace nf rate monitor, in the same round ─────────────────────────────────────▶ the ratio
//! ```
//!
//! The module `load` has the rows besides E7: HTTP connections (RFC 9411), latency, overload, reload under
//! load. `lanes` has the rows of several lanes. `attacks` has the rows of attacks that are blocked under load.
//! `engine` has the rows of the engine alone, which `millrace ips rate` measures over four mixes of connections. `captures` has
//! the rows of public captures, which `millrace ips read` reads. With an earlier build, `builds` measures both in turn.
//!
//! The published experiment (2011: Snort 2.9.1.2 inline on DPDK 1.0) offered both directions of 1 GbE. A
//! share is the ratio of the measured rate to the rate that both directions of such a link carry.

mod attacks;
mod builds;
mod captures;
pub mod cli;
mod concatenated;
mod engine;
mod error;
mod frames;
mod lanes;
mod load;
mod record;
mod recorder;
mod rows;
pub(crate) mod section;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;

use crate::file_error::file;
use crate::gated::recorder::part;
use millrace_process::{ProcessError, pause, run_tool};

use builds::{Build, builds, over_earlier};
pub use error::IpsBenchError;
pub use record::{IpsRecord, Rate};
pub use recorder::{Recorder, RunLength};
use rows::{FRAMES, MANY, OBJECTS, ONE, attack_rows, engine_rows, frame_rows, load_rows, rates, reload_rows};

/// Bytes of preamble and gap between frames (IEEE 802.3).
const GAP: f64 = 20.0;
/// A rule that alerts on every TCP packet.
const ONE_RULE: &str = "alert tcp-pkt any any -> any any (msg:\"each TCP packet\"; ttl:>0; sid:1;)\n";

/// Rows of docs/ips-requirements.md that this experiment does not measure, with the reason.
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

/// The parts of the experiment that a run measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    All,
    /// The engine over mixes of connections.
    Engine,
    /// Public captures.
    Captures,
}

/// The arguments of the experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The path of `millrace`; its command `nf rate` measures a function.
    pub program: PathBuf,
    /// The path of `millrace` of an earlier build, which is measured in turn with this one.
    pub before: Option<PathBuf>,
    /// The core of the function.
    pub core: usize,
    /// The file of 14,000 rules, packed by xz or not.
    pub rules: PathBuf,
    /// The file of rules that are loaded again under load, packed by xz or not.
    pub all_rules: PathBuf,
    /// The folder of public captures.
    pub captures: PathBuf,
    /// The number of times that these are read, each time with other addresses.
    pub repetitions: u8,
    pub parts: Parts,
}

/// A measurement: name, function and settings, and the build that runs it.
struct System<'a> {
    name: &'static str,
    function: &'static str,
    settings: Vec<String>,
    build: Build<'a>,
}

impl<'a> System<'a> {
    fn new(build: Build<'a>, name: &'static str, function: &'static str, rules: Option<&Path>) -> System<'a> {
        let settings = rules.map(|path| [format!("rules={}", path.display()), "events=alerts".to_owned()]);
        System {
            name,
            function,
            settings: settings.into_iter().flatten().collect(),
            build,
        }
    }

    /// Returns the command of a measurement.
    fn command(&self, core: Option<usize>, seconds: f64, arguments: &[String]) -> Command {
        let mut command = self.build.command(core);
        command
            .args(["nf", "rate", self.function, "--json"])
            .args(["--seconds", &seconds.to_string()])
            .args(arguments);
        for setting in &self.settings {
            command.args(["--setting", setting]);
        }
        command
    }

    /// Returns a recorder of the rows of the system's build.
    fn rows<'r>(&self, recorder: &'r mut Recorder<'_>) -> Recorder<'r> {
        self.build.rows(recorder)
    }
}

impl Experiment {
    /// Measures all rows.
    ///
    /// # Errors
    /// [`IpsBenchError`]: the records cannot be written, or SIGINT was received.
    pub fn run(&self, recorder: &mut Recorder<'_>) -> Result<(), IpsBenchError> {
        millrace_process::interrupt::install_handler();
        recorder.begin(recorder.length.quick)?;
        self.measure_all(recorder)
    }

    /// Returns the builds, in the order of measurement.
    fn builds(&self) -> Vec<Build<'_>> {
        builds(&self.program, self.before.as_deref())
    }

    fn measure_all(&self, recorder: &mut Recorder<'_>) -> Result<(), IpsBenchError> {
        let folder = tempfile::tempdir().map_err(file(Path::new("/tmp")))?;
        let many = unpacked(&self.rules, &folder.path().join("many.rules"));
        match &many {
            Ok(many) => {
                if self.parts != Parts::Captures {
                    self.engine(recorder, many)?;
                }
                if self.parts != Parts::Engine {
                    self.captures(recorder, many, folder.path())?;
                }
            }
            Err(reason) => self.rules_missing(recorder, reason)?,
        }
        if self.parts != Parts::All {
            return Ok(());
        }
        self.functions(recorder, many.ok().as_deref(), folder.path())?;
        match unpacked(&self.all_rules, &folder.path().join("all.rules")) {
            Ok(all) => {
                for build in self.builds() {
                    let system = System::new(build, "all rules", "ips", Some(&all));
                    self.reload(&mut system.rows(recorder), &system)?;
                }
            }
            Err(reason) => {
                pause(Duration::ZERO)?;
                recorder.all_missing(reload_rows(""), &reason)?;
            }
        }
        for (row, reason) in UNMEASURED {
            recorder.missing(&part(row, ""), reason)?;
        }
        for peer in ["suricata", "snort"] {
            let reason = match run_tool(Command::new(peer).arg("-V")) {
                Ok(_) => "it is there, but this experiment drives functions without a network",
                Err(_) => "not there: no such program on PATH",
            };
            recorder.missing(&part(format!("E7 {peer}"), ""), reason)?;
        }
        Ok(())
    }

    /// Records that the rows of 14,000 rules could not be measured.
    fn rules_missing(&self, recorder: &mut Recorder<'_>, reason: &str) -> Result<(), IpsBenchError> {
        pause(Duration::ZERO)?;
        if self.parts != Parts::Captures {
            recorder.all_missing(engine_rows(), reason)?;
        }
        if self.parts != Parts::Engine {
            self.captures_missing(recorder, reason)?;
        }
        if self.parts == Parts::All {
            let frames = FRAMES.into_iter().flat_map(|frame| frame_rows(MANY, frame));
            let others = load_rows(MANY).into_iter().chain(attack_rows(MANY));
            recorder.all_missing(frames.chain(others), reason)?;
        }
        Ok(())
    }

    /// Measures the functions, with one rule and with many, as often as the run has rounds: each measurement with all builds in
    /// turn.
    fn functions(
        &self,
        recorder: &mut Recorder<'_>,
        many: Option<&Path>,
        folder: &Path,
    ) -> Result<(), IpsBenchError> {
        let one = folder.join("one.rules");
        std::fs::write(&one, ONE_RULE).map_err(file(&one))?;
        let systems_of = |build| {
            let monitor = System::new(build, "monitor", "monitor", None);
            let one = System::new(build, ONE, "ips", Some(&one));
            let many = many.map(|many| System::new(build, MANY, "ips", Some(many)));
            [Some(monitor), Some(one), many].into_iter().flatten().collect()
        };
        let by_build: Vec<Vec<System<'_>>> = self.builds().into_iter().map(systems_of).collect();
        for round in 0..recorder.length.rounds {
            for frame in FRAMES {
                for (build, systems) in self.builds().into_iter().zip(&by_build) {
                    self.frame(&mut build.rows(recorder), round, frame, systems)?;
                }
            }
            for name in [ONE, MANY] {
                let in_turn = || {
                    by_build
                        .iter()
                        .flatten()
                        .filter(move |system| system.name == name)
                };
                for kib in OBJECTS {
                    for system in in_turn() {
                        self.http(&mut system.rows(recorder), round, system, kib)?;
                    }
                }
                for system in in_turn() {
                    self.under_load(&mut system.rows(recorder), round, system)?;
                }
                for system in in_turn() {
                    self.attacks(&mut system.rows(recorder), round, system, folder)?;
                }
                for system in in_turn() {
                    self.open_connections(&mut system.rows(recorder), round, system)?;
                }
                for system in in_turn() {
                    self.lanes(&mut system.rows(recorder), round, system)?;
                }
            }
            if self.before.is_some() {
                over_earlier(recorder, round, rates())?;
            }
        }
        Ok(())
    }

    /// Measures all systems with one size of frames, in turn.
    fn frame(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        frame: u16,
        systems: &[System<'_>],
    ) -> Result<(), IpsBenchError> {
        let mut monitor = Err("monitor was not measured".to_owned());
        for (number, system) in systems.iter().enumerate() {
            let rate = self.rate(system, frame, recorder.length.seconds);
            if let Ok(rate) = &rate
                && !system.build.is_earlier
            {
                recorder.add(IpsRecord::Rate(Rate {
                    system: system.name.to_owned(),
                    round,
                    frame,
                    packets_per_second: rate.packets_per_second,
                    load_s: rate.load_s,
                }))?;
            }
            let rate = match rate {
                Ok(rate) => Ok(rate.packets_per_second),
                Err(error) => Err(reason(error)?),
            };
            if number == 0 {
                monitor = rate;
                continue;
            }
            let [share, one_core, ratio] = frame_rows(system.name, frame);
            match rate {
                Ok(rate) => {
                    let carried = (rate / offered(1.0, frame)).min(1.0) * 100.0;
                    recorder.value(&share, round, carried)?;
                    recorder.value(&one_core, round, rate / 1e6)?;
                    match &monitor {
                        Ok(monitor) => recorder.value(&ratio, round, rate / monitor)?,
                        Err(reason) => recorder.missing(&ratio, reason)?,
                    }
                }
                Err(reason) => recorder.all_missing([share, one_core, ratio], &reason)?,
            }
        }
        Ok(())
    }

    /// Measures one system with frames of a size.
    fn rate(&self, system: &System<'_>, frame: u16, seconds: f64) -> Result<Measured, IpsBenchError> {
        let arguments = ["--frame".to_owned(), frame.to_string()];
        Measured::of(&self.measure(system, Some(self.core), seconds, &arguments)?)
    }

    /// Runs `millrace nf rate` on a core, or on any core with `None`, and returns its output.
    fn measure(
        &self,
        system: &System<'_>,
        core: Option<usize>,
        seconds: f64,
        arguments: &[String],
    ) -> Result<Json, IpsBenchError> {
        pause(Duration::ZERO)?;
        let output = run_tool(&mut system.command(core, seconds, arguments))?;
        parsed(system, &output)
    }
}

/// Returns the frames a second that two directions of a link carry.
fn offered(gbps: f64, frame: u16) -> f64 {
    2.0 * gbps * 1e9 / ((f64::from(frame) + GAP) * 8.0)
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

/// Returns the output of a measurement.
fn parsed(system: &System<'_>, output: &str) -> Result<Json, IpsBenchError> {
    serde_json::from_str(output).map_err(|error| IpsBenchError::Rate {
        command: format!("millrace nf rate {}", system.function),
        reason: error.to_string(),
    })
}

/// Returns the error of a measurement as the reason for its missing rows.
///
/// # Errors
/// The error itself if SIGINT or SIGTERM was received: it ends the run.
fn reason(error: IpsBenchError) -> Result<String, IpsBenchError> {
    if let IpsBenchError::Process(ProcessError::Interrupted) = error {
        return Err(error);
    }
    pause(Duration::ZERO)?;
    Ok(error.to_string())
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
