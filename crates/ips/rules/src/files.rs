//! Rule files with their directives, the tables of classifications, references, thresholds and reputations, and databases of
//! countries.

use std::collections::BTreeMap;

use crate::Syntax;
use crate::address::AddressSpec;
use crate::countries::Countries;
use crate::header::Action;
use crate::lexer;
use crate::limits;
use crate::options::state::{Rate, RateKind, SuppressTrack, Track};
use crate::refusal::{Position, Reason, Refusal};
use crate::reputation::Reputation;
use crate::rule::{self, ParsedRule};
use crate::text::{number32, quote, unescape};

/// The contents of a rule file, or of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleFile {
    /// The rules that are not commented out.
    pub rules: Vec<ParsedRule>,
    /// The rules that are commented out, and would be accepted.
    pub disabled: Vec<ParsedRule>,
    /// The number of rules that are commented out and would be refused.
    pub disabled_refused: usize,
    /// The number of rules whose `requires` does not hold.
    pub skipped: usize,
    /// Variables that the file sets (`var`, `ipvar`, `portvar`).
    pub variables: Vec<(String, String)>,
    /// Names of files that the file includes.
    pub includes: Vec<String>,
    /// Classes by name.
    pub classes: BTreeMap<String, Class>,
    /// URL prefixes, by the name of the reference system.
    pub references: BTreeMap<String, String>,
    /// Thresholds, suppressions and rate filters.
    pub thresholds: Vec<Threshold>,
    /// Categories and scores of addresses.
    pub reputation: Reputation,
    /// The countries of addresses, if the file is a database of them.
    pub countries: Countries,
    /// Refusals of everything that was not read.
    pub refusals: Vec<Refusal>,
}

/// A row of `classification.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The description, which alerts show.
    pub description: String,
    /// The priority; 1 is the highest.
    pub priority: u32,
}

/// A row of `threshold.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threshold {
    /// The name of its file, as the caller gave it.
    pub file: String,
    pub position: Position,
    /// The generator; 0 means all.
    pub gid: u32,
    /// The rule; 0 means all.
    pub sid: u32,
    pub effect: ThresholdEffect,
}

/// The effect of a row of `threshold.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThresholdEffect {
    /// No alerts for any address, or for the given addresses.
    Suppress(Option<(SuppressTrack, AddressSpec)>),
    /// A limit on the number of alerts.
    Limit(Rate),
    /// Another action while the rate is exceeded, and for `timeout` seconds after.
    RateFilter {
        rate: Rate,
        /// The other action.
        new_action: Action,
        /// Time after which the rule's own action applies again, in seconds.
        timeout: u32,
    },
}

/// Reads a file of rules, directives and rows of tables.
pub fn parse(syntax: Syntax, name: &str, text: &[u8]) -> RuleFile {
    let mut file = RuleFile::default();
    let refuse = |position, option: &str, reason| Refusal {
        file: name.to_owned(),
        position,
        sid: None,
        option: option.to_owned(),
        reason,
    };
    if text.len() > limits::FILE_SIZE {
        let reason = Reason::Limit {
            unit: "bytes in a file",
            limit: limits::FILE_SIZE,
        };
        file.refusals
            .push(refuse(Position { line: 1, column: 1 }, "file", reason));
        return file;
    }
    if Countries::is_database(text) {
        match Countries::read(text) {
            Ok(countries) => file.countries = countries,
            Err(reason) => file
                .refusals
                .push(refuse(Position { line: 1, column: 1 }, "file", reason)),
        }
        return file;
    }
    lexer::statements(syntax, text, &mut |statement| {
        let position = statement.position(0);
        let end = [
            (
                file.rules.len() + file.disabled.len() >= limits::RULES,
                "rules in a file",
                limits::RULES,
            ),
            (
                file.refusals.len() + 1 >= limits::REFUSALS,
                "refusals in a file; the rest of the file is not read",
                limits::REFUSALS,
            ),
        ];
        if let Some((_, unit, limit)) = end.into_iter().find(|(is_over, ..)| *is_over) {
            file.refusals
                .push(refuse(position, "file", Reason::Limit { unit, limit }));
            return false;
        }
        if statement.is_enabled && Reputation::is_row(&statement.text) {
            if let Err(reason) = file.reputation.add(&statement.text) {
                file.refusals.push(refuse(position, "reputation", reason));
            }
            return true;
        }
        let (word, rest) = statement
            .text
            .split_once(char::is_whitespace)
            .unwrap_or((&statement.text, ""));
        match file.directive((name, position), word, rest.trim()) {
            None => match rule::parse(syntax, name, &statement) {
                Ok(parsed) if parsed.is_enabled => file.rules.push(parsed),
                Ok(parsed) => file.disabled.push(parsed),
                Err(refusal) if refusal.reason == Reason::Requirements => file.skipped += 1,
                Err(_) if !statement.is_enabled => file.disabled_refused += 1,
                Err(refusal) => file.refusals.push(*refusal),
            },
            Some(Ok(())) => {}
            Some(Err(reason)) => file.refusals.push(refuse(position, word, reason)),
        }
        true
    });
    file
}

impl RuleFile {
    /// Applies a directive at a place (file and position); returns `None` if the word begins a rule.
    fn directive(&mut self, place: (&str, Position), word: &str, rest: &str) -> Option<Result<(), Reason>> {
        Some(match word {
            "var" | "ipvar" | "portvar" => match rest.split_once(char::is_whitespace) {
                Some((name, value)) => {
                    self.variables.push((name.to_owned(), value.trim().to_owned()));
                    Ok(())
                }
                None => Err(Reason::invalid("the value is missing", "NAME VALUE")),
            },
            "include" if !rest.is_empty() => {
                self.includes.push(rest.to_owned());
                Ok(())
            }
            "config" => match rest.split_once(':') {
                Some((name, rest)) if name.trim() == "classification" => self.class(rest),
                Some((name, rest)) if name.trim() == "reference" => self.reference(rest),
                // The action `config` of Suricata begins a rule.
                _ if rest.contains('(') => return None,
                _ => Err(Reason::Unsupported {
                    why: "of the directive config only classification and reference are read",
                }),
            },
            "suppress" | "threshold" | "event_filter" | "rate_filter" => {
                threshold(place, word, rest).map(|threshold| self.thresholds.push(threshold))
            }
            "preprocessor"
            | "output"
            | "dynamicpreprocessor"
            | "dynamicengine"
            | "dynamicdetection"
            | "ruletype"
            | "event_queue" => Err(Reason::Unsupported {
                why: "the directive configures Snort itself",
            }),
            _ => return None,
        })
    }

    fn class(&mut self, text: &str) -> Result<(), Reason> {
        const FORM: &str = "config classification: NAME,DESCRIPTION,PRIORITY";
        let missing = || Reason::invalid("a column is missing", FORM);
        let (name, rest) = text.split_once(',').ok_or_else(missing)?;
        let (description, priority) = rest.rsplit_once(',').ok_or_else(missing)?;
        let class = Class {
            description: unescape(description.trim()),
            priority: number32(priority, FORM)?,
        };
        self.classes.insert(name.trim().to_owned(), class);
        Ok(())
    }

    fn reference(&mut self, text: &str) -> Result<(), Reason> {
        let (system, prefix) = text
            .trim()
            .split_once(char::is_whitespace)
            .unwrap_or((text.trim(), ""));
        if system.is_empty() {
            return Err(Reason::invalid(
                "the system is missing",
                "config reference: SYSTEM PREFIX",
            ));
        }
        self.references
            .insert(system.to_owned(), prefix.trim().to_owned());
        Ok(())
    }
}

/// Splits a text at the commas outside brackets.
fn outside_brackets(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// Reads a row of `threshold.config`.
fn threshold((file, position): (&str, Position), word: &str, text: &str) -> Result<Threshold, Reason> {
    const FORM: &str = "gen_id N, sig_id N and: track by_src|by_dst|by_either, ip ADDRESSES (suppress); type, track, \
        count, seconds (threshold, event_filter); track, count, seconds, new_action, timeout (rate_filter)";
    let missing = |name: &str| Reason::invalid(format!("{name} is missing"), FORM);
    // A comment may follow the row.
    let text = text.split_once('#').map_or(text, |(row, _)| row.trim_end());
    let (mut gid, mut sid, mut kind, mut track, mut count, mut seconds) =
        (None, None, None, None, None, None);
    let (mut new_action, mut timeout, mut addresses) = (None, None, None);
    for part in outside_brackets(text) {
        let (name, value) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
        let value = value.trim();
        match name {
            "gen_id" => gid = Some(number32(value, FORM)?),
            "sig_id" => sid = Some(number32(value, FORM)?),
            "type" => kind = Some(RateKind::from_word(value)?),
            "track" => track = Some(value),
            "count" => count = Some(number32(value, FORM)?),
            "seconds" => seconds = Some(number32(value, FORM)?),
            "new_action" => new_action = Some(Action::from_word(value)?),
            "timeout" => timeout = Some(number32(value, FORM)?),
            "ip" => addresses = Some(AddressSpec::parse(value)?),
            _ => return Err(Reason::invalid(quote(part), FORM)),
        }
    }
    let rate = || -> Result<Rate, Reason> {
        if count == Some(0) || seconds == Some(0) {
            return Err(Reason::invalid("count or seconds is zero", FORM));
        }
        if kind == Some(RateKind::Backoff) {
            return Err(Reason::invalid("a backoff, which belongs to its rule", FORM));
        }
        Ok(Rate {
            kind,
            track: Track::from_word(track.ok_or_else(|| missing("track"))?)?,
            count: count.ok_or_else(|| missing("count"))?,
            seconds: seconds.ok_or_else(|| missing("seconds"))?,
            multiplier: 0,
        })
    };
    let effect = match word {
        "suppress" => match (track, addresses) {
            (None, None) => ThresholdEffect::Suppress(None),
            (Some(track), Some(addresses)) => {
                ThresholdEffect::Suppress(Some((SuppressTrack::from_word(track)?, addresses)))
            }
            _ => return Err(missing("track or ip")),
        },
        "rate_filter" => ThresholdEffect::RateFilter {
            rate: rate()?,
            new_action: new_action.ok_or_else(|| missing("new_action"))?,
            timeout: timeout.ok_or_else(|| missing("timeout"))?,
        },
        _ if kind.is_none() => return Err(missing("type")),
        _ => ThresholdEffect::Limit(rate()?),
    };
    Ok(Threshold {
        file: file.to_owned(),
        position,
        gid: gid.ok_or_else(|| missing("gen_id"))?,
        sid: sid.ok_or_else(|| missing("sig_id"))?,
        effect,
    })
}
