//! Attacks that a function blocks: alone, beside other traffic at nearly its rate, and at twice its rate (RFC 9411, appendix A,
//! which asks for background traffic at 95 % of the maximum).
//!
//! Attacks are HTTP requests with one of sixteen names in their path (plain or percent-encoded), User-Agent or body; a rule drops
//! each. Rules for plain paths take turns in where they look for the path.

use std::fmt::Write as _;
use std::path::Path;

use super::{Experiment, IpsBenchError, Recorder, System, number};
use crate::file_error::file;
use crate::gated::Gate;
use crate::gated::recorder::case;

/// The number of attacks, as in `millrace nf rate --attacks`, which has four forms in turn.
const ATTACKS: u16 = 16;
/// The sid of the first rule, of those that are free for local rules.
const SID: u16 = 9000;
/// Of so many connections one is an attack, beside other traffic.
const ONE_OF: u16 = 64;
/// Packets a second without other traffic.
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
    /// Measures the attacks that pass a function with its own rules and those of the attacks.
    pub(super) fn attacks(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System,
        folder: &Path,
    ) -> Result<(), IpsBenchError> {
        let path = folder.join("attacks.rules");
        std::fs::write(&path, rules()).map_err(file(&path))?;
        let mut settings = system.settings.clone();
        settings.push(format!("rules={}", path.display()));
        settings.push("profile=closed".to_owned());
        let system = System { settings, ..*system };
        let name = |what: &str| format!("attacks, {}: {what}", system.name);
        let asked = "16 attacks, HTTP 1 KiB";
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
            Err(error) => return recorder.missing(&name("rate"), asked, &error.to_string()),
        };
        let loads = [
            ("alone", 1, ALONE),
            ("beside 95 % of its rate", ONE_OF, full * 0.95),
            ("beside twice its rate", ONE_OF, full * 2.0),
        ];
        for (what, every, offered) in loads {
            let json = match measure(every, Some(offered)) {
                Ok(json) => json,
                Err(error) => {
                    recorder.missing(&name(what), asked, &error.to_string())?;
                    continue;
                }
            };
            let (requests, passed) = (
                number(&json, "/attacks/requests")?,
                number(&json, "/attacks/passed")?,
            );
            if requests == 0.0 {
                recorder.missing(&name(what), asked, "no attack reached the function in this time")?;
                continue;
            }
            let row = case(
                name(&format!("{what}, passed")),
                asked.to_owned(),
                Gate::Exactly(0.0),
                "",
            );
            recorder.value(&row, round, passed)?;
            let row = case(
                name(&format!("{what}, inspected")),
                asked.to_owned(),
                Gate::None,
                "",
            );
            recorder.value(&row, round, requests)?;
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
