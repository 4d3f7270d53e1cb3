//! Flows that are made from the options of a rule: the rule fires on its flow, and not where its pattern is broken.
//!
//! ```text
//!  rule ─ fill ─▶ bytes of payload and buffers ─ compose ─▶ conversation ─ frames ─▶ engine ─▶ alert?
//! ```
//!
//! The rules are 200 of Emerging Threats Open (BSD). With `MILLRACE_SYNTHESIS=all` they are those of `../shared/data/rules`,
//! and the reasons are printed for which rules have no flow.

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
fn compiled(text: &str) -> Ruleset {
    let text = text.replace("flowbits:noalert;", "").replace("noalert;", "");
    let mut set = RuleSet::default();
    set.add(
        "rules",
        files::parse(Syntax::Suricata, "rules", text.as_bytes()),
        &Variables::usual(),
    );
    compile(&set, &CompileSettings::default()).0
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

fn text() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/rules");
    let whole = folder.join("et-open-suricata5-2023-05-15.rules.xz");
    if std::env::var_os("MILLRACE_SYNTHESIS").is_some() && whole.is_file() {
        let output = Command::new("xz")
            .arg("-dc")
            .arg(whole)
            .output()
            .expect("xz unpacks the rules");
        return String::from_utf8_lossy(&output.stdout).into_owned();
    }
    include_str!("../../../../rules/tests/data/et-open-sample.rules").to_owned()
}

#[test]
fn rules_fire_on_flows_made_from_them_and_not_on_broken_ones() {
    let all = compiled(&text());
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
    println!("{fired} of {} rules, {share:.1} %", chosen.len());
    for (reason, sids) in &failures {
        println!("{:6} {reason}: {:?}", sids.len(), &sids[..sids.len().min(12)]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(share >= SYNTHESISED, "{share:.1} %");
}
