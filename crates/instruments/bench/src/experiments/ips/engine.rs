//! The rows of `--engine`: the engine over four mixes of connections, with 14,000 rules on one core, beside Suricata where that
//! is on PATH.

use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

use super::{Experiment, IpsBenchError, Recorder, number};
use crate::gated::Gate;
use crate::gated::recorder::case;

/// The rate over that of Suricata that the design asks for.
const RATIO: f64 = 1.5;

impl Experiment {
    /// Measures the engine over each mix, as often as the run has rounds.
    pub(super) fn engine(&self, recorder: &mut Recorder<'_>, rules: &Path) -> Result<(), IpsBenchError> {
        for round in 0..recorder.length.rounds {
            millrace_process::pause(std::time::Duration::ZERO)?;
            let json = match self.mixes(rules, recorder.length.seconds) {
                Ok(json) => json,
                Err(error) => return recorder.missing("engine", "", &error.to_string()),
            };
            let rules = number(&json, "/rules")?;
            let asked = format!("{rules:.0} rules");
            for mix in json["mixes"].as_array().into_iter().flatten() {
                let name = mix["mix"].as_str().unwrap_or_default();
                let row = |what: &str, gate, unit| {
                    case(format!("engine, {name}: {what}"), asked.clone(), gate, unit)
                };
                let rate = number(mix, "/megabits_per_second")?;
                recorder.value(&row("one core", Gate::None, "Mbit/s"), round, rate)?;
                let ratio = row("ratio to suricata", Gate::AtLeast(RATIO), "");
                match mix["suricata_megabits_per_second"].as_f64() {
                    Some(peer) => {
                        recorder.value(&row("suricata, one core", Gate::None, "Mbit/s"), round, peer)?;
                        recorder.value(&ratio, round, rate / peer)?;
                    }
                    None => {
                        let reason = json["suricata_missing"].as_str();
                        recorder.missing(
                            &ratio.name,
                            &asked,
                            reason.unwrap_or("suricata was not measured"),
                        )?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs `millrace ips rate` for one round, and returns its output.
    fn mixes(&self, rules: &Path, seconds: f64) -> Result<Json, IpsBenchError> {
        let failed = |reason: String| IpsBenchError::Rate {
            command: "millrace ips rate".to_owned(),
            reason,
        };
        let mut command = Command::new("taskset");
        command.args(["-c", &self.core.to_string()]).arg(&self.program);
        command.args(["ips", "rate", "--json", "--rounds", "1"]);
        command
            .args(["--seconds", &seconds.to_string()])
            .arg("--rules")
            .arg(rules);
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
    }
}
