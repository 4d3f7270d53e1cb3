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
//! `engine` has the rows of the engine alone, which `millrace ips rate` measures over four mixes of connections.
//!
//! The published experiment (2011: Snort 2.9.1.2 inline on DPDK 1.0) offered both directions of 1 GbE. A
//! share is the ratio of the measured rate to the rate that both directions of such a link carry.

mod attacks;
pub mod cli;
mod engine;
mod error;
mod lanes;
mod load;
mod record;
mod recorder;
mod rows;
pub(crate) mod section;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;

use crate::file_error::file;
use crate::gated::recorder::part;
use millrace_process::{ProcessError, pause, run_tool};

pub use error::IpsBenchError;
pub use record::{IpsRecord, Rate};
pub use recorder::{Recorder, RunLength};
use rows::{MANY, ONE, attack_rows, engine_rows, frame_rows, load_rows, reload_rows};

/// The sizes of frames of the published experiment, with check sequence.
const FRAMES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
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

/// The arguments of the experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The path of `millrace`; its command `nf rate` measures a function.
    pub program: PathBuf,
    /// The core of the function.
    pub core: usize,
    /// The file of 14,000 rules, packed by xz or not.
    pub rules: PathBuf,
    /// The file of rules that are loaded again under load, packed by xz or not.
    pub all_rules: PathBuf,
    /// True if only the rows of the engine are measured.
    pub engine_only: bool,
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
        recorder.begin(recorder.length.quick)?;
        self.measure_all(recorder)
    }

    fn measure_all(&self, recorder: &mut Recorder<'_>) -> Result<(), IpsBenchError> {
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
        let mut systems = vec![system("monitor", "monitor", None), system(ONE, "ips", Some(&one))];
        match unpacked(&self.rules, &folder.path().join("many.rules")) {
            Ok(many) => {
                self.engine(recorder, &many)?;
                systems.push(system(MANY, "ips", Some(&many)));
            }
            Err(reason) => {
                pause(Duration::ZERO)?;
                recorder.all_missing(engine_rows(), &reason)?;
                if !self.engine_only {
                    let frames = FRAMES.into_iter().flat_map(|frame| frame_rows(MANY, frame));
                    let others = load_rows(MANY).into_iter().chain(attack_rows(MANY));
                    recorder.all_missing(frames.chain(others), &reason)?;
                }
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

    /// Measures all systems with one size of frames, in turn.
    fn frame(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        frame: u16,
        systems: &[System],
    ) -> Result<(), IpsBenchError> {
        let mut monitor = Err("monitor was not measured".to_owned());
        for (number, system) in systems.iter().enumerate() {
            let rate = self.rate(system, frame, recorder.length.seconds);
            if let Ok(rate) = &rate {
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
    fn rate(&self, system: &System, frame: u16, seconds: f64) -> Result<Measured, IpsBenchError> {
        let arguments = ["--frame".to_owned(), frame.to_string()];
        Measured::of(&self.measure(system, Some(self.core), seconds, &arguments)?)
    }

    /// Runs `millrace nf rate` on a core, or on any core with `None`, and returns its output.
    fn measure(
        &self,
        system: &System,
        core: Option<usize>,
        seconds: f64,
        arguments: &[String],
    ) -> Result<Json, IpsBenchError> {
        pause(Duration::ZERO)?;
        let output = run_tool(&mut self.command(system, core, seconds, arguments))?;
        parsed(system, &output)
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
fn parsed(system: &System, output: &str) -> Result<Json, IpsBenchError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an experiment with a program of these lines of shell.
    fn experiment(folder: &Path, script: &str) -> Experiment {
        use std::os::unix::fs::PermissionsExt;

        let program = folder.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let rules = folder.join("some.rules");
        std::fs::write(&rules, ONE_RULE).unwrap();
        Experiment {
            program,
            core: 0,
            rules: rules.clone(),
            all_rules: rules,
            engine_only: false,
        }
    }

    const QUICK: RunLength = RunLength {
        rounds: 1,
        seconds: 0.1,
        quick: true,
    };

    #[test]
    fn sigint_ends_a_run_in_whichever_measurement_it_comes() {
        // The text in the arguments of the measurement that SIGINT ends; all others succeed. A shell in the background starts
        // its jobs with SIGINT ignored.
        for measurement in [
            "ips rate",
            "--frame 1518",
            "--http 256",
            "--offered",
            "--attacks",
            "--reload",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let script = format!(
                r#"case "$*" in *"{measurement}"*) exec env --default-signal=INT sh -c 'kill -INT $$';; esac
                echo '{{"packets_per_second":1,"load_seconds":1,"connections_per_second":1,"packets":1,"rules":1,"mixes":[],
                    "under_load":{{"latency_us":{{"p50":1,"p999":1}}}},"attacks":{{"requests":1,"passed":0}},
                    "counters":[["frames",1],["uninspected",0],["tcp_sessions",1]]}}'"#
            );
            let experiment = experiment(folder.path(), &script);
            let mut log = crate::record::Log::create(&folder.path().join("ips.jsonl")).unwrap();
            let mut progress = |_: &str| {};
            let outcome = experiment.measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress));
            let interrupted = matches!(outcome, Err(IpsBenchError::Process(ProcessError::Interrupted)));
            assert!(interrupted, "{measurement}: {outcome:?}");
        }
    }

    #[test]
    fn a_measurement_that_fails_without_a_word_has_its_status_as_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = experiment(folder.path(), "kill -KILL $$");
        let mut log = crate::record::Log::create(&folder.path().join("ips.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        experiment
            .measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress))
            .unwrap();
        let rows = crate::gated::recorder::rows_of::<IpsRecord>(log.records());
        let row = rows
            .iter()
            .find(|row| row.case == "E7 one rule: 64 B, one core")
            .unwrap();
        let reason = row.reason.as_deref().unwrap();
        assert!(
            reason.contains("nf rate ips") && reason.contains("signal: 9"),
            "{reason}"
        );
    }

    #[test]
    fn lanes_start_when_all_of_them_have_loaded_their_rules() {
        let folder = tempfile::tempdir().unwrap();
        // A lane that may begin counts the lanes that are ready.
        let script = format!(
            r#"case "$*" in *--wait*)
                touch "{0}/ready.$$"; echo ready; read line || exit 1; set -- "{0}"/ready.*
                echo "{{\"packets_per_second\":$#}}";;
            *) echo '{{"packets_per_second":4}}';; esac"#,
            folder.path().display()
        );
        let experiment = experiment(folder.path(), &script);
        let system = System {
            name: ONE,
            function: "ips",
            settings: Vec::new(),
        };
        let ratio = experiment.lanes_over_one(&system, 4, 0.1).unwrap();
        assert_eq!(ratio, 4.0);
    }

    #[test]
    fn the_error_of_a_lane_that_cannot_load_its_rules_is_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        // Of two lanes, the second one to come fails; the other one ends when it may not begin.
        let script = format!(
            r#"case "$*" in *--wait*)
                mkdir "{0}/first" 2> /dev/null || {{ echo no memory >&2; exit 1; }}
                echo ready; read line || {{ echo no line >&2; exit 1; }};; esac
            echo '{{"packets_per_second":4}}'"#,
            folder.path().display()
        );
        let experiment = experiment(folder.path(), &script);
        let system = System {
            name: ONE,
            function: "ips",
            settings: Vec::new(),
        };
        let error = experiment
            .lanes_over_one(&system, 2, 0.1)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("fails: no memory"), "{error}");
    }

    #[test]
    fn what_cannot_be_measured_has_the_names_and_the_gates_of_its_values() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment {
            program: folder.path().join("no-program"),
            core: 0,
            rules: folder.path().join("no.rules"),
            all_rules: folder.path().join("no.rules"),
            engine_only: false,
        };
        let mut log = crate::record::Log::create(&folder.path().join("ips.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        experiment
            .measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress))
            .unwrap();
        let rows = crate::gated::recorder::rows_of::<IpsRecord>(log.records());
        let gate = |name: &str| {
            let row = rows.iter().find(|row| row.case == name);
            row.unwrap_or_else(|| panic!("no row {name}")).gate.clone()
        };
        for (name, wanted) in [
            ("E7 one rule: 64 B, one core", "at least 8 Mpps"),
            ("E7 14,000 rules: 64 B, one core", "at least 4 Mpps"),
            (
                "RFC 9411 one rule: 1 KiB, connections",
                "at least 100000 a second",
            ),
            ("RFC 9411 14,000 rules: 64 KiB, bodies", ""),
            ("load, one rule: half, p99.9", "at most 200 us"),
            ("load, one rule: twice, closed, not inspected", "0 packets"),
            ("attacks, 14,000 rules: alone, passed", "0"),
            ("RFC 9411 7.5, one rule: followed", "at least 100 %"),
            ("reload of all rules: time", "at most 30 s"),
            ("engine, web: ratio to suricata", "at least 1.50"),
        ] {
            assert_eq!(gate(name), wanted, "{name}");
        }
        assert!(rows.iter().all(|row| row.reached.is_none()));
    }

    #[test]
    fn damaged_rules_are_an_error_and_not_an_empty_set() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, to) = (folder.path().join("a.rules.xz"), folder.path().join("a.rules"));
        std::fs::write(&packed, "no archive").unwrap();
        assert!(unpacked(&packed, &to).is_err());
        assert!(!to.exists());
    }
}
