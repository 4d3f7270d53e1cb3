//! Compilation: rules of the syntax tree to a [`Ruleset`], with a reason for each rule that is refused.
//!
//! ```text
//!  rules::RuleSet ─rule─▶ Rule (conditions, operations, effects)
//!                   └──▶ Refusal: file, position, option, reason
//!  [Rule] ─order─▶ sorted by action, bits, priority ─prefilter─▶ Ruleset
//! ```

mod bytes;
mod fast_pattern;
mod order;
mod protocols;
mod rule;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_ips_pcre::Regex;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::files::{Class, Threshold};
use millrace_ips_rules::options::dataset::SetType;
use millrace_ips_rules::reputation::Reputation;
use millrace_ips_rules::variables::Ranges;
use millrace_ips_rules::{Refusal, RuleSet, Variables, limits};
use millrace_ips_scan::Backend;

use super::dataset::{JsonSet, SavedSet, Values};
use super::prefilter::Prefilter;
use super::program::{AppTest, Disabled, Operation, Rule, Step};
use super::reload::Numbers;
use crate::app::{Asks, FrameSet};

pub(crate) use protocols::buffer_directions;

/// Settings of the compilation.
#[derive(Debug, Clone)]
pub struct CompileSettings {
    /// The variables of addresses and ports.
    pub variables: Variables,
    /// Classes by name, which give rules their priority.
    pub classes: BTreeMap<String, Class>,
    /// Rows of the threshold table.
    pub thresholds: Vec<Threshold>,
    /// The files that options of rules name ([`RuleSet::data_files`]): the contents by the name of the rule file and the name
    /// in the rule.
    pub data: BTreeMap<(String, String), Vec<u8>>,
    /// The numbers of the previous rule set. They are kept, so that the state of flows stays valid.
    pub previous: Option<Numbers>,
    /// The back end of the prefilter. Without one every rule is evaluated, which is slow and gives the same
    /// alerts.
    pub prefilter: Option<Backend>,
}

impl Default for CompileSettings {
    fn default() -> CompileSettings {
        CompileSettings {
            variables: Variables::usual(),
            classes: BTreeMap::new(),
            thresholds: Vec::new(),
            data: BTreeMap::new(),
            previous: None,
            prefilter: Some(Backend::default()),
        }
    }
}

/// A buffer with transforms: the unit that is fetched and scanned once for all rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hook {
    pub buffer: Buffer,
    /// The transforms that are applied before the inspection.
    pub transforms: Vec<Step>,
}

/// The names of the bits and counters of a rule set, by their numbers.
#[derive(Debug, Clone, Default)]
pub struct Names {
    bits: Vec<String>,
    counters: Vec<String>,
}

impl Names {
    fn sorted(names: HashMap<String, u32>) -> Vec<String> {
        let mut list: Vec<(u32, String)> = names.into_iter().map(|(name, at)| (at, name)).collect();
        list.sort_unstable();
        list.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the name of a bit; it begins with the kind of its table.
    pub fn bit(&self, bit: u32) -> &str {
        self.bits.get(bit as usize).map_or("", String::as_str)
    }

    /// Returns the name of a counter.
    pub fn counter(&self, counter: u32) -> &str {
        self.counters.get(counter as usize).map_or("", String::as_str)
    }
}

/// A compiled rule set.
#[derive(Debug, Default)]
pub struct Ruleset {
    /// The rules in the order of evaluation.
    pub rules: Vec<Rule>,
    /// The hooks that the rules use.
    pub hooks: Vec<Hook>,
    /// The names of bits and counters.
    pub names: Names,
    /// The numbers to which the state of flows refers.
    pub numbers: Numbers,
    /// The sets whose values are written to files, by their names.
    pub saved_sets: Vec<SavedSet>,
    /// True if a rule asks for the digest of a file.
    pub(crate) needs_digests: bool,
    /// True if a rule stores files.
    pub(crate) stores_files: bool,
    /// The frames that rules inspect.
    pub(crate) frames: FrameSet,
    /// The rules that disable the tracking of flows for the packets that match, by their index.
    pub(crate) untracked: Vec<u32>,
    /// The parts of messages that parsers look at only for rules.
    pub(crate) asks: Asks,
    /// The prefilter, which finds the rules that need an evaluation.
    pub(super) prefilter: Prefilter,
}

impl Ruleset {
    /// Returns true if there are rules about anomalies.
    pub(crate) fn has_event_rules(&self) -> bool {
        !self.prefilter.events.is_empty()
    }

    /// Returns true if there are rules over events of the packet decoder or of the TCP engine.
    pub(crate) fn has_packet_events(&self) -> bool {
        !self.prefilter.packet_events.is_empty()
    }

    /// Returns the rule with a number, of any generator.
    pub fn find(&self, sid: u32) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.sid == sid)
    }
}

/// The rule file, the keyword and the name of a list of digests.
type ListKey = (String, &'static str, String);

/// The numbers of names, and values that rules share.
#[derive(Debug, Default)]
struct Interner {
    bits: HashMap<String, u32>,
    counters: HashMap<String, u32>,
    hooks: HashMap<Hook, u16>,
    regexes: HashMap<(String, String), Arc<Regex>>,
    ranges: HashMap<String, Option<Arc<Ranges>>>,
    /// The types and first values of sets, by their names.
    sets: HashMap<String, (SetType, Arc<Values>)>,
    /// The JSON values of sets, by their names.
    json: HashMap<String, Arc<JsonSet>>,
    digests: HashMap<ListKey, Arc<HashSet<Vec<u8>>>>,
    /// The reputation of addresses.
    reputation: Arc<Reputation>,
    /// Sets that are written to files, by their names.
    saved: BTreeMap<String, SavedSet>,
}

impl Interner {
    fn bit(&mut self, name: &str) -> u32 {
        let next = self.bits.len() as u32;
        *self.bits.entry(name.to_owned()).or_insert(next)
    }

    fn counter(&mut self, name: &str) -> u32 {
        let next = self.counters.len() as u32;
        *self.counters.entry(name.to_owned()).or_insert(next)
    }

    /// Returns the number of a hook; none if the rule set has too many.
    fn hook(&mut self, hook: Hook) -> Option<u16> {
        if let Some(known) = self.hooks.get(&hook) {
            return Some(*known);
        }
        let next = u16::try_from(self.hooks.len()).ok();
        let next = next.filter(|next| usize::from(*next) < limits::HOOKS)?;
        self.hooks.insert(hook, next);
        Some(next)
    }
}

/// Marks the look-ups in sets that are written to files.
fn mark_saved(operation: &mut Operation, saved: &BTreeMap<String, SavedSet>) {
    match operation {
        Operation::Set(lookup) => lookup.is_saved = saved.contains_key(&*lookup.name),
        Operation::Base64 { then, .. } => then.iter_mut().for_each(|inner| mark_saved(inner, saved)),
        _ => {}
    }
}

/// Compiles the rules. Those that cannot be compiled are refused, each with the option and the reason, and so are rows of the
/// threshold table.
pub fn compile(set: &RuleSet, settings: &CompileSettings) -> (Ruleset, Vec<Refusal>) {
    let previous = settings.previous.as_ref();
    let mut interner = Interner {
        reputation: Arc::new(set.reputation().clone()),
        ..Interner::default()
    };
    if let Some(previous) = previous {
        interner.bits.clone_from(&previous.bits);
        interner.counters.clone_from(&previous.counters);
    }
    let mut rules = Vec::with_capacity(set.rules().len());
    let (rows, mut refusals) = rule::rows(settings);
    for (index, loaded) in set.rules().iter().enumerate() {
        match rule::compile(loaded, index as u32, settings, &rows, &mut interner) {
            Ok(rule) => rules.push(rule),
            Err(refusal) => refusals.push(*refusal),
        }
    }
    order::sort(&mut rules);
    // The rule that names the file of a set may be behind others with the set.
    for operation in rules.iter_mut().flat_map(Rule::operations_mut) {
        mark_saved(operation, &interner.saved);
    }
    let mut hooks: Vec<(u16, Hook)> = interner.hooks.into_iter().map(|(hook, at)| (at, hook)).collect();
    hooks.sort_by_key(|(at, _)| *at);
    let hooks: Vec<Hook> = hooks.into_iter().map(|(_, hook)| hook).collect();
    let prefilter = Prefilter::new(&rules, &hooks, settings.prefilter);
    let names = Names {
        bits: Names::sorted(interner.bits.clone()),
        counters: Names::sorted(interner.counters.clone()),
    };
    let numbers = Numbers::new(&rules, interner.bits, interner.counters, previous);
    let is_digest = |test: &AppTest| matches!(test, AppTest::Digest { .. });
    let needs_digests = rules.iter().any(|rule| rule.app.iter().any(is_digest));
    let mut frames = FrameSet::default();
    for test in rules.iter().flat_map(|rule| &rule.buffers) {
        frames.add(test.buffer);
    }
    let untracks = |rule: &Rule| rule.disables == Some(Disabled::Tracking);
    let untracked = (0..)
        .zip(&rules)
        .filter(|(_, rule)| untracks(rule))
        .map(|(at, _)| at)
        .collect();
    let stores_files = rules.iter().any(|rule| rule.store.is_some());
    let ruleset = Ruleset {
        saved_sets: interner.saved.into_values().collect(),
        // The names of stored files are their digests.
        needs_digests: needs_digests || stores_files,
        stores_files,
        frames,
        untracked,
        asks: protocols::asks(&rules),
        rules,
        hooks,
        names,
        numbers,
        prefilter,
    };
    (ruleset, refusals)
}
