//! The rules of several files as one set: variables are replaced, and each sid occurs once.

use std::collections::HashMap;

use crate::address::Spec;
use crate::countries::Countries;
use crate::files::RuleFile;
use crate::refusal::{Position, Reason, Refusal};
use crate::reputation::Reputation;
use crate::rule::ParsedRule;
use crate::variables::Variables;

/// A rule of a set.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The name of the file.
    pub file: String,
    /// The rule.
    pub parsed: ParsedRule,
}

/// Rules that can be compiled, and all refusals.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Loaded>,
    by_sid: HashMap<(u32, u32), usize>,
    refusals: Vec<Refusal>,
    disabled: usize,
    disabled_refused: usize,
    skipped: usize,
    reputation: Reputation,
    countries: Countries,
}

impl RuleSet {
    /// Adds the rules of a file. If several rules have the same sid, the rule with the highest revision
    /// stays.
    pub fn add(&mut self, name: &str, file: RuleFile, variables: &Variables) {
        self.disabled += file.disabled.len();
        self.disabled_refused += file.disabled_refused;
        self.skipped += file.skipped;
        self.refusals.extend(file.refusals);
        self.reputation.append(file.reputation);
        if !file.countries.is_empty() {
            self.countries = file.countries;
        }
        // Rules with the same set share the result, because a set may have thousands of ranges, and a file
        // thousands of rules.
        let mut known = HashMap::new();
        for parsed in file.rules {
            if let Err((part, reason)) = resolve(&parsed, variables, &mut known) {
                self.refusals.push(refusal(name, &parsed, part, reason));
                continue;
            }
            self.insert(name, parsed);
        }
    }

    fn insert(&mut self, name: &str, parsed: ParsedRule) {
        let sid = parsed.rule.sid().unwrap_or_default();
        let gid = parsed.rule.gid();
        let loaded = Loaded {
            file: name.to_owned(),
            parsed,
        };
        let Some(&at) = self.by_sid.get(&(gid, sid)) else {
            self.by_sid.insert((gid, sid), self.rules.len());
            self.rules.push(loaded);
            return;
        };
        let Some(place) = self.rules.get_mut(at) else {
            return;
        };
        let is_newer = loaded.parsed.rule.rev() > place.parsed.rule.rev();
        let older = if is_newer {
            std::mem::replace(place, loaded)
        } else {
            loaded
        };
        let first = format!("{}:{}", place.file, place.parsed.line);
        let reason = Reason::Duplicate { gid, sid, first };
        self.refusals
            .push(refusal(&older.file, &older.parsed, "sid", reason));
    }

    /// Returns the rules in the order of their files.
    pub fn rules(&self) -> &[Loaded] {
        &self.rules
    }

    /// Returns the reputation of addresses.
    pub fn reputation(&self) -> &Reputation {
        &self.reputation
    }

    /// Returns the countries of addresses, of the last database that was added.
    pub fn countries(&self) -> &Countries {
        &self.countries
    }

    /// Returns the refusals.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// Returns the number of disabled rules that would be accepted, and the number that would be refused.
    pub fn disabled(&self) -> (usize, usize) {
        (self.disabled, self.disabled_refused)
    }

    /// Returns the number of rules whose `requires` does not hold.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the files that options of rules name, each with the name of the rule file and the name in the rule, and true if
    /// the file must exist.
    pub fn data_files(&self) -> Vec<(&str, &str, bool)> {
        let mut found: Vec<(&str, &str, bool)> = Vec::new();
        for loaded in &self.rules {
            for option in &loaded.parsed.rule.options {
                if let Some((name, must_exist)) = option.data_file() {
                    found.push((&loaded.file, name, must_exist));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the rule with a sid, whatever its generator.
    pub fn find(&self, sid: u32) -> Option<&Loaded> {
        self.rules
            .iter()
            .find(|loaded| loaded.parsed.rule.sid() == Some(sid))
    }
}

fn refusal(file: &str, parsed: &ParsedRule, option: &str, reason: Reason) -> Refusal {
    Refusal {
        file: file.to_owned(),
        position: Position {
            line: parsed.line,
            column: 1,
        },
        sid: parsed.rule.sid(),
        option: option.to_owned(),
        reason,
    }
}

/// The results for sets of addresses (true) and ports (false) as rules write them: the reason if a set has no
/// value.
type Known = HashMap<(bool, String), Option<Reason>>;

/// Checks that the address and port sets of the header have values.
fn resolve(
    parsed: &ParsedRule,
    variables: &Variables,
    known: &mut Known,
) -> Result<(), (&'static str, Reason)> {
    let Some(ends) = &parsed.rule.header.endpoints else {
        return Ok(());
    };
    let addresses = [
        (&ends.source, "source addresses"),
        (&ends.destination, "destination addresses"),
    ];
    for (spec, part) in addresses.into_iter().filter(|(spec, _)| **spec != Spec::Any) {
        let reason = known
            .entry((true, spec.to_string()))
            .or_insert_with(|| variables.resolve_addresses(spec).err());
        reason.clone().map_or(Ok(()), |reason| Err((part, reason)))?;
    }
    let ports = [
        (&ends.source_ports, "source ports"),
        (&ends.destination_ports, "destination ports"),
    ];
    for (spec, part) in ports.into_iter().filter(|(spec, _)| **spec != Spec::Any) {
        let reason = known
            .entry((false, spec.to_string()))
            .or_insert_with(|| variables.resolve_ports(spec).err());
        reason.clone().map_or(Ok(()), |reason| Err((part, reason)))?;
    }
    Ok(())
}
