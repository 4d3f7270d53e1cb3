//! Attacks that a function blocks: alone, alongside other traffic at 95 % of the function's highest rate, and
//! alongside other traffic at twice that rate. RFC 9411, appendix A, asks for background traffic at 95 % of the
//! maximum.
//!
//! An attack is an HTTP request with one of sixteen names in its path (plain or percent-encoded), User-Agent
//! or body. One rule for each name drops it. The four rules for plain paths differ in the buffer that they
//! search, or in how they search it.

use std::fmt::Write as _;
use std::path::Path;

use super::rows::{BELOW, LOADS, TWICE, attack_rows, attacks_under};
use super::{Experiment, IpsBenchError, Recorder, System, number, reason};
use crate::file_error::file;

/// The number of attacks, as in `millrace nf rate --attacks`. The four forms of attacks alternate.
const ATTACKS: u16 = 16;
/// The sid of the first rule, from a range of sids that is free for local rules.
const SID: u16 = 9000;
/// Alongside other traffic, one of this many connections is an attack.
const ONE_OF: u16 = 64;
/// The offered packets per second if all connections are attacks.
const ALONE: f64 = 20_000.0;

/// Returns the rules that drop the attacks.
fn rules() -> String {
    let mut text = String::new();
    for number in 0..ATTACKS {
        let name = format!("attack-{number:02}");
        let conditions = match (number % 4, number / 4) {
            // A plain path.
            (0, 0) => format!("http.uri; content:\"/{name}/\""),
            (0, 1) => format!("content:\"GET /{name}/\"; offset:0"),
            (0, 2) => format!("http.request_line; content:\"{name}/index\""),
            (0, _) => format!("http.uri; content:\"/attack-\"; pcre:\"/^\\/{name}\\//\""),
            // A percent-encoded path.
            (1, _) => format!("http.uri; content:\"/{name}/\""),
            (2, _) => format!("http.user_agent; content:\"{name}\""),
            _ => format!("http.request_body; content:\"query={name}\""),
        };
        let sid = SID + number;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "drop http any any -> any any (msg:\"attack {number}\"; flow:established,to_server; {conditions}; sid:{sid};)"
        );
    }
    text
}

impl Experiment {
    /// Measures how many attacks pass a function that has the system's rules and the rules against the
    /// attacks.
    pub(super) fn attacks(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System<'_>,
        folder: &Path,
    ) -> Result<(), IpsBenchError> {
        let path = folder.join("attacks.rules");
        std::fs::write(&path, rules()).map_err(file(&path))?;
        let mut settings = system.settings.clone();
        settings.push(format!("rules={}", path.display()));
        settings.push("profile=closed".to_owned());
        let system = System { settings, ..*system };
        let seconds = recorder.length.seconds;
        let measure = |every: u16, offered: Option<f64>| {
            let mut arguments = vec!["--http".to_owned(), "1".to_owned()];
            arguments.extend(["--attacks".to_owned(), every.to_string()]);
            arguments.extend(
                offered
                    .into_iter()
                    .flat_map(|rate| ["--offered".to_owned(), rate.to_string()]),
            );
            self.measure(&system, Some(self.core), seconds, &arguments)
        };
        let full = match measure(ONE_OF, None).and_then(|json| number(&json, "/packets_per_second")) {
            Ok(full) => full,
            Err(error) => return recorder.all_missing(attack_rows(system.name), &reason(error)?),
        };
        let loads = [(1, ALONE), (ONE_OF, full * BELOW), (ONE_OF, full * TWICE)];
        for (load, (every, offered)) in LOADS.into_iter().zip(loads) {
            let [missed, inspected] = attacks_under(system.name, load);
            let counted = measure(every, Some(offered)).and_then(|json| {
                Ok((
                    number(&json, "/attacks/requests")?,
                    number(&json, "/attacks/passed")?,
                ))
            });
            let (requests, passed) = match counted {
                Ok(counted) => counted,
                Err(error) => {
                    recorder.all_missing([missed, inspected], &reason(error)?)?;
                    continue;
                }
            };
            if requests == 0.0 {
                let reason = "no attack reached the function in this time";
                recorder.all_missing([missed, inspected], reason)?;
                continue;
            }
            recorder.value(&missed, round, passed)?;
            recorder.value(&inspected, round, requests)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attack_has_a_rule_of_its_own() {
        let text = rules();
        let rules: Vec<&str> = text.lines().collect();
        assert_eq!(rules.len(), usize::from(ATTACKS));
        for (number, rule) in rules.iter().enumerate() {
            assert!(rule.contains(&format!("attack-{number:02}")), "{rule}");
            assert!(rule.contains(&format!("sid:{};", SID + number as u16)), "{rule}");
        }
    }
}
