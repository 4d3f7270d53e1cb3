//! Flows that are made from the options of a rule: the rule fires on its flow, and not where its pattern is broken.
//!
//! ```text
//!  rule ─ fill ─▶ bytes of payload and buffers ─ compose ─▶ conversation ─ frames ─▶ engine ─▶ alert?
//! ```
//!
//! The rules are 200 for Suricata and 120 for Snort 2.9 of Emerging Threats Open (BSD), and 40 of our own for Snort 3. With `MILLRACE_SYNTHESIS=all` they are those of `../shared/data/rules`,
//! and the reasons are printed for which rules have no flow.

#![allow(clippy::print_stdout, reason = "the figures are printed")]

mod compose;
mod conversation;
mod dns;
mod expression;
mod failure;
mod fill;
mod http;
mod parts;
mod random;
mod tls;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::{CompileSettings, Rule, Ruleset, compile};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

use compose::{Flow, synthesise};
use conversation::raises;
use failure::Failure;
use random::Random;

/// Least share of the rules for which a flow is made, in percent.
const SYNTHESISED: f64 = 90.0;
/// Flows that are made for a rule before it is given up.
const ATTEMPTS: u64 = 12;

/// Compiles rules; those that raise no alert by their own option do so here.
fn compiled(syntax: Syntax, text: &str) -> Ruleset {
    let text = text.replace("flowbits:noalert;", "").replace("noalert;", "");
    let mut set = RuleSet::default();
    set.add(
        "rules",
        files::parse(syntax, "rules", text.as_bytes()),
        &Variables::usual(),
    );
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    for refusal in set.refusals().iter().chain(&refusals) {
        println!("{refusal}");
    }
    rules
}

/// The outcome for a rule.
enum Outcome {
    Fires,
    /// The rule also fires on the broken flow.
    FiresBroken(Mode),
    /// No flow was made, or the rule did not fire on any.
    None(Failure),
}

fn outcome(all: &Ruleset, rule: &Rule) -> Outcome {
    let mut failure = Failure::Silent;
    for attempt in 0..ATTEMPTS {
        let mut random = Random(u64::from(rule.sid) << 8 | attempt);
        let Flow { whole, broken } = match synthesise(all, rule, &mut random, 0) {
            Ok(flow) => flow,
            Err(reason) => {
                failure = reason;
                continue;
            }
        };
        failure = Failure::Silent;
        let modes = [Mode::Ids, Mode::Ips];
        if !modes.iter().all(|mode| raises(all, rule.sid, &whole, *mode)) {
            continue;
        }
        let Some(broken) = broken else {
            failure = Failure::NotBroken;
            continue;
        };
        return match modes.iter().find(|mode| raises(all, rule.sid, &broken, **mode)) {
            Some(mode) => Outcome::FiresBroken(*mode),
            None => Outcome::Fires,
        };
    }
    Outcome::None(failure)
}

/// Returns the text of a file of `../shared/data/rules`, if all rules are asked for.
fn whole(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/rules");
    let path = folder.join(name);
    if std::env::var_os("MILLRACE_SYNTHESIS").is_none() || !path.is_file() {
        return None;
    }
    let output = Command::new("xz").arg("-dc").arg(path).output();
    let output = output.expect("xz unpacks the rules");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes a flow for each rule, and checks that so many percent fire on theirs, and none on its broken one.
fn check(syntax: Syntax, text: &str, least: f64) {
    let all = compiled(syntax, text);
    let (mut fired, mut wrong) = (0, Vec::new());
    let mut failures: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let step = std::env::var("MILLRACE_SYNTHESIS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let chosen: Vec<&Rule> = all.rules.iter().step_by(step).collect();
    for rule in &chosen {
        match outcome(&all, rule) {
            Outcome::Fires => fired += 1,
            Outcome::FiresBroken(mode) => {
                wrong.push(format!("sid {} fires on the broken flow, {mode:?}", rule.sid));
            }
            Outcome::None(failure) => failures.entry(failure.to_string()).or_default().push(rule.sid),
        }
    }
    let share = 100.0 * f64::from(fired) / chosen.len() as f64;
    println!("{syntax:?}: {fired} of {} rules, {share:.1} %", chosen.len());
    for (reason, sids) in &failures {
        println!("{:6} {reason}: {:?}", sids.len(), &sids[..sids.len().min(12)]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(share >= least, "{share:.1} %");
}

#[test]
fn rules_fire_on_flows_made_from_them_and_not_on_broken_ones() {
    let sample = include_str!("../../../../rules/tests/data/et-open-sample.rules");
    let text = whole("et-open-suricata5-2023-05-15.rules.xz");
    check(Syntax::Suricata, text.as_deref().unwrap_or(sample), SYNTHESISED);
}

#[test]
fn rules_of_snort_2_fire_on_flows_made_from_them_and_not_on_broken_ones() {
    let sample = include_str!("../../../../rules/tests/data/et-open-snort29-sample.rules");
    let text = whole("et-open-snort29-2021-03-03.rules.xz");
    check(Syntax::Snort2, text.as_deref().unwrap_or(sample), SYNTHESISED);
}

#[test]
fn rules_of_snort_3_fire_on_flows_made_from_them_and_not_on_broken_ones() {
    let text = include_str!("../../../../rules/tests/data/snort3.rules");
    check(Syntax::Snort3, text, 100.0);
}
