//! Compilation: rules of the syntax tree to a [`Ruleset`], with a reason for each rule that is refused.
//!
//! ```text
//!  rules::RuleSet ─rule─▶ Rule (conditions, operations, effects)
//!                   └──▶ Refusal: file, position, option, reason
//!  [Rule] ─order─▶ sorted by action, bits, priority ─prefilter─▶ Ruleset
//! ```

mod bytes;
mod fast_pattern;
mod hook;
mod interner;
mod order;
mod protocols;
mod rule;
mod ruleset;
mod settings;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_ips_rules::{Refusal, RuleSet};

use super::dataset::SavedSet;
use super::numbers::Numbers;
use super::prefilter::Prefilter;
use super::program::{AppTest, Disabled, Operation, Rule};
use crate::app::FrameSet;

use interner::Interner;

pub use hook::Hook;
pub(crate) use protocols::buffer_directions;
pub use ruleset::{Names, Ruleset};
pub use settings::CompileSettings;

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
        countries: set.countries().clone(),
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
