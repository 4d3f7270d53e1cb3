//! The rows of `--engine`: the rate of the engine over four mixes of connections, with 14,000 rules on one
//! core, and the rate of Suricata if it is on PATH.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millrace_process::{pause, run_tool};
use serde_json::Value as Json;

use super::rows::{engine_rows, mix_rows};
use super::{Experiment, IpsBenchError, Recorder, number, reason};

impl Experiment {
    /// Measures the engine over each mix, as often as the run has rounds.
    pub(super) fn engine(&self, recorder: &mut Recorder<'_>, rules: &Path) -> Result<(), IpsBenchError> {
        for round in 0..recorder.length.rounds {
            let json = match self.mixes(rules, recorder.length.seconds) {
                Ok(json) => json,
                Err(error) => return recorder.all_missing(engine_rows(), &reason(error)?),
            };
            let rules = number(&json, "/rules")?;
            let asked = format!("{rules:.0} rules");
            for mix in json["mixes"].as_array().into_iter().flatten() {
                let name = mix["mix"].as_str().unwrap_or_default();
                let [ours, theirs, ratio] = mix_rows(name, &asked);
                let rate = number(mix, "/megabits_per_second")?;
                recorder.value(&ours, round, rate)?;
                match mix["suricata_megabits_per_second"].as_f64() {
                    Some(peer) => {
                        recorder.value(&theirs, round, peer)?;
                        recorder.value(&ratio, round, rate / peer)?;
                    }
                    None => {
                        let missing = json["suricata_missing"].as_str();
                        let missing = missing.unwrap_or("suricata was not measured");
                        recorder.all_missing([theirs, ratio], missing)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs `millrace ips rate` for one round, and returns its output.
    fn mixes(&self, rules: &Path, seconds: f64) -> Result<Json, IpsBenchError> {
        pause(Duration::ZERO)?;
        let mut command = Command::new("taskset");
        command.args(["-c", &self.core.to_string()]).arg(&self.program);
        command.args(["ips", "rate", "--json", "--rounds", "1"]);
        command
            .args(["--seconds", &seconds.to_string()])
            .arg("--rules")
            .arg(rules);
        serde_json::from_str(&run_tool(&mut command)?).map_err(|error| IpsBenchError::Rate {
            command: "millrace ips rate".to_owned(),
            reason: error.to_string(),
        })
    }
}
