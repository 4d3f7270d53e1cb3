//! The rows of `--engine`: the rate of the engine over four mixes of connections, with 14,000 rules on one
//! core, and the rate of Suricata if it is on PATH.

use std::path::Path;
use std::time::Duration;

use millrace_process::{pause, run_tool};
use serde_json::Value as Json;

use super::builds::{Build, over_earlier};
use super::rows::{engine_rates, engine_rows, mix_rows};
use super::{Experiment, IpsBenchError, Recorder, number, reason};

impl Experiment {
    /// Measures the engine over each mix, as often as the run has rounds, with all builds in turn.
    pub(super) fn engine(&self, recorder: &mut Recorder<'_>, rules: &Path) -> Result<(), IpsBenchError> {
        for round in 0..recorder.length.rounds {
            let mut asked = String::new();
            for build in self.builds() {
                let recorder = &mut build.rows(recorder);
                let measured = self.mixes(build, rules, recorder.length.seconds);
                let json = match measured.and_then(|json| Ok((number(&json, "/rules")?, json))) {
                    Ok((rules, json)) => {
                        asked = format!("{rules:.0} rules");
                        json
                    }
                    Err(error) => {
                        recorder.all_missing(engine_rows(), &reason(error)?)?;
                        continue;
                    }
                };
                engine_values(recorder, round, &asked, &json)?;
            }
            if self.before.is_some() {
                over_earlier(recorder, round, engine_rates(&asked))?;
            }
        }
        Ok(())
    }

    /// Runs `millrace ips rate` for one round, and returns its output.
    fn mixes(&self, build: Build<'_>, rules: &Path, seconds: f64) -> Result<Json, IpsBenchError> {
        pause(Duration::ZERO)?;
        let mut command = build.command(Some(self.core));
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

/// Records the rates of a round.
fn engine_values(
    recorder: &mut Recorder<'_>,
    round: usize,
    asked: &str,
    json: &Json,
) -> Result<(), IpsBenchError> {
    for mix in json["mixes"].as_array().into_iter().flatten() {
        let name = mix["mix"].as_str().unwrap_or_default();
        let [ours, theirs, ratio] = mix_rows(name, asked);
        let rate = match number(mix, "/megabits_per_second") {
            Ok(rate) => rate,
            Err(error) => {
                recorder.all_missing([ours, theirs, ratio], &error.to_string())?;
                continue;
            }
        };
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
    Ok(())
}
