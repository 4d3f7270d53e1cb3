//! Flows that are made from the options of a rule: the rule fires on its flow, and not where one condition is broken.
//!
//! ```text
//!  rule ─ fill ─▶ bytes of payload and buffers ─ compose ─▶ conversation ─ frames ─▶ engine ─▶ alert
//!                              └─ breaks: one condition of each kind ─▶ conversation ─▶ engine ─▶ no alert
//! ```
//!
//! The rules are 200 for Suricata and 120 for Snort 2.9 of Emerging Threats Open (BSD), and 40 of our own for
//! Snort 3. With `MILLRACE_SYNTHESIS=all` they are those of `../shared/data/rules`. Other values select a
//! part of those: a number N one rule of N, and `sids:N,N` these rules. The reason is printed for each rule
//! without a flow.

#![allow(clippy::print_stdout, reason = "the figures are printed")]

mod break_bytes;
mod breaks;
mod compose;
mod conversation;
pub(crate) mod dns;
mod ends;
mod expression;
mod failure;
mod fill;
mod http;
mod messages;
mod packet;
mod parts;
pub(crate) mod random;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::{CompileSettings, Rule, Ruleset, compile};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

use breaks::{Kind, broken, sets};
use compose::{Made, synthesise};
use conversation::{Conversation, raised};
use failure::Failure;
use random::Random;

/// Least share of the rules for which a flow is made, in percent.
const SYNTHESISED: f64 = 95.0;
/// Flows that are made for a rule before it is given up.
const ATTEMPTS: u64 = 12;

/// The flows with a broken condition of a kind that are made before the kind is given up.
const BREAKS: u64 = 3;

/// Compiles rules; those that raise no alert by their own option do so here.
fn compiled(syntax: Syntax, text: &str) -> Ruleset {
    let text = text
        .replace("flowbits:noalert;", "")
        .replace("flowbits: noalert;", "")
        .replace("noalert;", "");
    // Both sides have addresses of their own, so that the sides of a header mean something.
    let mut variables = Variables::usual();
    let own = ["HTTP", "SMTP", "SQL", "DNS", "TELNET", "SSH", "FTP", "SIP"];
    let mut set = |name: &str, value| variables.set(name, value).expect("the value is valid");
    set("HOME_NET", "192.168.0.0/16");
    set("EXTERNAL_NET", "!$HOME_NET");
    for name in own {
        set(&format!("{name}_SERVERS"), "$HOME_NET");
    }
    let mut set = RuleSet::default();
    set.add(
        "rules",
        files::parse(syntax, "rules", text.as_bytes()),
        &variables,
    );
    let settings = CompileSettings {
        variables,
        ..CompileSettings::default()
    };
    let (rules, refusals) = compile(&set, &settings);
    for refusal in set.refusals().iter().chain(&refusals) {
        println!("{refusal}");
    }
    rules
}

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];

/// The outcome for a rule.
enum Outcome {
    /// The rule fires on its flow. For each kind of condition that it has: the flow with one broken.
    Fires(Vec<(Kind, OfBroken)>),
    /// No flow was made, or the rule did not fire on any.
    None(Failure),
}

/// The outcome for a flow with a broken condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OfBroken {
    /// The rule does not fire.
    Silent,
    /// No way was found to break a condition of the kind and leave the others.
    NotMade,
    /// The rule fires.
    Fires(bool),
}

fn outcome(all: &Ruleset, rule: &Rule) -> Outcome {
    let mut failure = Failure::Silent;
    for attempt in 0..ATTEMPTS {
        let mut random = Random(u64::from(rule.sid) << 8 | attempt);
        let made = synthesise(all, rule, &mut random);
        let (made, whole) = match made.and_then(|made| Ok((made.conversation()?, made)).map(|(a, b)| (b, a)))
        {
            Ok(both) => both,
            Err(reason) => {
                failure = reason;
                continue;
            }
        };
        failure = Failure::Silent;
        let frames = whole.frames();
        print(rule, "the flow", &whole);
        if !MODES
            .iter()
            .all(|mode| raised(all, &frames, *mode).contains(&rule.sid))
        {
            continue;
        }
        let kinds = Kind::ALL.into_iter().filter_map(|kind| {
            let outcome = of_broken(all, rule, &made, kind, &mut random)?;
            Some((kind, outcome))
        });
        let kinds: Vec<(Kind, OfBroken)> = kinds.collect();
        if kinds.iter().all(|(_, outcome)| *outcome == OfBroken::NotMade) {
            failure = Failure::NotBroken;
            continue;
        }
        return Outcome::Fires(kinds);
    }
    Outcome::None(failure)
}

/// Prints a conversation, if its rule was asked for by number.
fn print(rule: &Rule, title: &str, conversation: &Conversation) {
    let asked = std::env::var("MILLRACE_SYNTHESIS").unwrap_or_default();
    if !asked.starts_with("sids:") {
        return;
    }
    let Conversation {
        client,
        server,
        count,
        ..
    } = conversation;
    println!(
        "sid {}, {title}: {client:?} to {server:?}, {count} times",
        rule.sid
    );
    for (is_server, bytes) in &conversation.messages {
        println!(
            "  {} {}",
            if *is_server { '<' } else { '>' },
            bytes.escape_ascii()
        );
    }
}

/// Breaks a condition of a kind; returns none if the rule has none.
fn of_broken(
    all: &Ruleset,
    rule: &Rule,
    made: &Made<'_>,
    kind: Kind,
    random: &mut Random,
) -> Option<OfBroken> {
    let mut outcome = OfBroken::NotMade;
    for _ in 0..BREAKS {
        let Some(broken) = broken(all, made, kind, random)? else {
            continue;
        };
        let frames = broken.conversation.frames();
        print(rule, &format!("without {kind}"), &broken.conversation);
        for mode in MODES {
            let before = broken.before.as_ref().map(Conversation::frames);
            if before.is_some_and(|frames| raised(all, &frames, mode).contains(&rule.sid)) {
                return Some(OfBroken::NotMade);
            }
            let sids = raised(all, &frames, mode);
            let others: Vec<u32> = sids.iter().copied().filter(|sid| *sid != rule.sid).collect();
            let is_missing = !broken.needs.is_empty() && !sets(all, &others, &broken.needs);
            if is_missing || sets(all, &others, &broken.excludes) {
                return Some(OfBroken::NotMade);
            }
            if sids.contains(&rule.sid) {
                return Some(OfBroken::Fires(mode == Mode::Ips));
            }
        }
        outcome = OfBroken::Silent;
        break;
    }
    Some(outcome)
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

/// Makes a flow for each rule. Checks that `least` percent of the rules fire on their flow, and that no rule
/// fires on a flow with a broken condition.
///
/// Returns the kinds of conditions that were broken.
fn check(syntax: Syntax, text: &str, least: f64) -> Vec<Kind> {
    let all = compiled(syntax, text);
    let (mut fired, mut without_state, mut wrong) = (0, 0, Vec::new());
    let mut failures: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut kinds: BTreeMap<Kind, [Vec<u32>; 2]> = BTreeMap::new();
    let asked = std::env::var("MILLRACE_SYNTHESIS").unwrap_or_default();
    let step = asked.parse().unwrap_or(1);
    let sids: Option<Vec<u32>> = asked
        .strip_prefix("sids:")
        .map(|list| list.split(',').filter_map(|sid| sid.parse().ok()).collect());
    let is_asked = |rule: &&Rule| sids.as_ref().is_none_or(|sids| sids.contains(&rule.sid));
    let chosen: Vec<&Rule> = all.rules.iter().filter(is_asked).step_by(step).collect();
    for rule in &chosen {
        let of_kinds = match outcome(&all, rule) {
            Outcome::Fires(of_kinds) => of_kinds,
            Outcome::None(Failure::State) => {
                without_state += 1;
                continue;
            }
            Outcome::None(failure) => {
                failures.entry(failure.to_string()).or_default().push(rule.sid);
                continue;
            }
        };
        fired += 1;
        for (kind, outcome) in of_kinds {
            let counts = kinds.entry(kind).or_default();
            match outcome {
                OfBroken::Silent => counts[0].push(rule.sid),
                OfBroken::NotMade => counts[1].push(rule.sid),
                OfBroken::Fires(is_ips) => wrong.push(format!(
                    "sid {} fires in mode {} without {kind}",
                    rule.sid,
                    if is_ips { "ips" } else { "ids" }
                )),
            }
        }
    }
    // A run on the whole files lists all failed rules; other runs list 12 for each reason.
    let named = if asked.is_empty() { 12 } else { usize::MAX };
    let possible = chosen.len() - without_state;
    let share = 100.0 * f64::from(fired) / possible.max(1) as f64;
    println!(
        "{syntax:?}: {fired} of {possible} rules fire on their flow, {share:.1} %; {without_state} more ask for a state that \
        no other rule makes"
    );
    for (reason, sids) in &failures {
        println!("{:6} {reason}: {:?}", sids.len(), &sids[..sids.len().min(named)]);
    }
    println!(
        "{syntax:?}: rules that do not fire with one condition broken, and rules for which no such flow was found"
    );
    for (kind, [silent, not_made]) in &kinds {
        println!(
            "{:6} {:6} {kind}: {:?}",
            silent.len(),
            not_made.len(),
            &not_made[..not_made.len().min(named)]
        );
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(share >= least, "{share:.1} %");
    let is_broken = |(kind, [silent, _]): (Kind, [Vec<u32>; 2])| (!silent.is_empty()).then_some(kind);
    kinds.into_iter().filter_map(is_broken).collect()
}

#[test]
fn each_kind_of_condition_is_broken_and_the_rule_does_not_fire() {
    let broken = check(Syntax::Suricata, include_str!("kinds.rules"), 100.0);
    assert_eq!(broken, Kind::ALL, "all kinds are broken");
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
