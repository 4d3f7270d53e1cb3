//! `millrace ips explain`: a rule in plain words, with its prefilter, and the other rules that set the bits
//! it tests.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, bail};
use millrace_ips_engine::detect::program::{Effect, StateTest, ThresholdTest};
use millrace_ips_engine::detect::{Rule, RuleType, Ruleset};
use millrace_ips_rules::RuleSet;
use millrace_ips_rules::explain::explain;
use millrace_ips_rules::options::content::encode_pattern;
use serde::Serialize;

use super::load::Loading;

/// The maximum number of rules that are listed for one bit.
const NAMED: usize = 8;

/// A rule in plain words.
#[derive(Debug, Serialize)]
pub(super) struct Explanation {
    sid: u32,
    place: String,
    rule: String,
    words: Vec<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    evaluated: &'static str,
    action_takes: &'static str,
    prefilter: String,
    bits: Vec<Bit>,
    /// Reasons why the rule can raise no alert with these files.
    never_fires: Vec<String>,
}

/// A flowbit, hostbit or xbit that the rule tests.
#[derive(Debug, Serialize)]
struct Bit {
    name: String,
    is_negated: bool,
    /// The rules that set the bit.
    set_by: Vec<u32>,
}

impl Explanation {
    pub(super) fn new(loaded: &Loading<'_>, sid: u32) -> Result<Explanation> {
        let (ruleset, refusals) = loaded.compile_plainly();
        let refused = loaded.set.refusals().iter().chain(&refusals);
        if let Some(refusal) = refused.into_iter().find(|refusal| refusal.sid == Some(sid)) {
            bail!("sid {sid} is refused: {refusal}");
        }
        let (Some(parsed), Some(rule)) = (loaded.set.find(sid), ruleset.find(sid)) else {
            bail!(
                "no enabled rule has sid {sid} in {}; expected the sid of a rule that is not commented out",
                files(&loaded.set)
            )
        };
        let (kind, evaluated, action_takes) = kind(rule.kind);
        let bits = bits(&ruleset, rule);
        Ok(Explanation {
            sid,
            place: format!("{}:{}", parsed.file, parsed.parsed.line),
            rule: parsed.parsed.rule.to_string(),
            words: explain(&parsed.parsed.rule),
            kind,
            evaluated,
            action_takes,
            prefilter: prefilter(rule),
            never_fires: never_fires(rule, &bits),
            bits,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.place, self.rule);
        for line in &self.words {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(
            text,
            "type: {}; evaluated {}; its action takes {}",
            self.kind, self.evaluated, self.action_takes
        );
        let _ = writeln!(text, "prefilter: {}", self.prefilter);
        for bit in &self.bits {
            let setters: Vec<String> = bit.set_by.iter().take(NAMED).map(u32::to_string).collect();
            let more = bit.set_by.len().saturating_sub(NAMED);
            let _ = writeln!(
                text,
                "asks that {} is {}; set by {}{}",
                bit.name,
                if bit.is_negated { "not set" } else { "set" },
                if setters.is_empty() {
                    "no rule".to_owned()
                } else {
                    setters.join(", ")
                },
                if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                }
            );
        }
        for reason in &self.never_fires {
            let _ = writeln!(text, "can raise no alert: {reason}");
        }
        text
    }
}

/// Returns the names of the files of a set.
fn files(set: &RuleSet) -> String {
    let mut names: Vec<&str> = set.rules().iter().map(|rule| rule.file.as_str()).collect();
    names.dedup();
    match names.is_empty() {
        true => "the files".to_owned(),
        false => names.join(", "),
    }
}

/// Returns the name of a rule type, the time of its evaluation, and the scope of its action (docs/ips.md,
/// "Detection").
fn kind(kind: RuleType) -> (&'static str, &'static str, &'static str) {
    match kind {
        RuleType::IpOnly => ("IP only", "at the first packet of each direction", "the flow"),
        RuleType::DecoderEvent => (
            "decoder event",
            "on each packet with an event of the decoder or the TCP engine",
            "the packet",
        ),
        RuleType::Packet => ("packet", "on each packet", "the packet"),
        RuleType::PacketStream => (
            "packet and stream",
            "on each packet, and over stream windows",
            "the flow",
        ),
        RuleType::Stream => ("stream", "over stream windows", "the flow"),
        RuleType::AppLayer => ("application layer", "once for each direction", "the flow"),
        RuleType::Transaction => ("transaction", "when a transaction has new bytes", "the flow"),
    }
}

/// Returns the pattern of the prefilter, and the buffer that is searched for the pattern.
fn prefilter(rule: &Rule) -> String {
    let Some(pattern) = &rule.fast_pattern else {
        return "no pattern: the rule is evaluated wherever its header holds".to_owned();
    };
    let place = pattern
        .test
        .and_then(|test| rule.buffers.get(usize::from(test)))
        .map_or("the payload", |test| test.buffer.names().words);
    let case = if pattern.nocase {
        ", in upper or lower case"
    } else {
        ""
    };
    format!("{} in {place}{case}", encode_pattern(&pattern.bytes))
}

/// Returns the bits that a rule tests, with the rules that set them.
fn bits(ruleset: &Ruleset, rule: &Rule) -> Vec<Bit> {
    let mut setters: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for other in &ruleset.rules {
        for effect in &other.effects {
            if let Effect::Bits { bits, value, .. } = effect
                && *value != Some(false)
            {
                for bit in bits {
                    setters.entry(*bit).or_default().push(other.sid);
                }
            }
        }
    }
    let mut found = Vec::new();
    for test in &rule.state {
        if let StateTest::Bits { bits, is_negated, .. } = test {
            found.extend(bits.iter().map(|bit| Bit {
                name: ruleset.names.bit(*bit).to_owned(),
                is_negated: *is_negated,
                set_by: setters.get(bit).cloned().unwrap_or_default(),
            }));
        }
    }
    found
}

/// Returns the reasons why a rule can raise no alert.
fn never_fires(rule: &Rule, bits: &[Bit]) -> Vec<String> {
    let mut reasons: Vec<String> = bits
        .iter()
        .filter(|bit| !bit.is_negated && bit.set_by.is_empty())
        .map(|bit| format!("no enabled rule sets {}", bit.name))
        .collect();
    if rule.is_silent {
        reasons.push("noalert: it only changes state for other rules".to_owned());
    }
    for (end, ends) in [("source", &rule.source), ("destination", &rule.destination)] {
        for (what, ranges) in [("addresses", &ends.addresses), ("ports", &ends.ports)] {
            if ranges.as_ref().is_some_and(|ranges| ranges.is_empty()) {
                reasons.push(format!(
                    "the set of {end} {what} is empty; check the variables with --set"
                ));
            }
        }
    }
    let is_suppressed = |test: &ThresholdTest| matches!(test, ThresholdTest::Suppress(None));
    if rule.thresholds.iter().any(is_suppressed) {
        reasons.push("the threshold file suppresses it for all addresses".to_owned());
    }
    reasons
}
