//! The order in which rules are evaluated: by action, then by bits (rules that set a bit before rules that
//! test it), then by priority, then by the order in the files.

use std::collections::HashMap;

use millrace_ips_rules::header::Action;

use super::super::program::{BitTable, Effect, Rule, StateTest};

/// Largest number of rounds that sort rules which both test and set bits; longer chains keep the file order.
const ROUNDS: usize = 16;

/// Returns the position of an action in the order.
pub(crate) fn rank(action: Action) -> u8 {
    match action {
        Action::Pass => 0,
        Action::Drop | Action::Sdrop => 1,
        Action::Reject | Action::RejectDst | Action::RejectBoth => 2,
        Action::Alert | Action::Log | Action::Config => 3,
    }
}

/// The state that a rule reads or writes: a bit of a table, or a counter.
type Key = (Option<BitTable>, u32);

fn reads(rule: &Rule) -> Vec<Key> {
    let mut keys = Vec::new();
    for test in &rule.state {
        match test {
            StateTest::Bits { table, bits, .. } => keys.extend(bits.iter().map(|bit| (Some(*table), *bit))),
            StateTest::Counter { counter, .. } => keys.push((None, *counter)),
        }
    }
    keys
}

fn writes(rule: &Rule) -> Vec<Key> {
    let mut keys = Vec::new();
    for effect in &rule.effects {
        match effect {
            Effect::Bits { table, bits, .. } => keys.extend(bits.iter().map(|bit| (Some(*table), *bit))),
            Effect::Counter { counter, .. } => keys.push((None, *counter)),
        }
    }
    keys
}

/// Sorts the rules.
pub(super) fn sort(rules: &mut [Rule]) {
    let mut level_of: HashMap<u32, usize> = HashMap::new();
    // The levels of the rules that write a key.
    let mut written: HashMap<Key, Vec<(u32, usize)>> = HashMap::new();
    for _ in 0..ROUNDS {
        let mut has_changed = false;
        for rule in rules.iter() {
            // A rule that also sets the bit that it tests is before the others that test it.
            let keys = reads(rule);
            let writers = keys.iter().filter_map(|key| written.get(key)).flatten();
            let others = writers.filter(|(writer, _)| *writer != rule.source_index);
            let before = others.map(|(_, level)| *level).max();
            // Rules without bits come last, because rules that set bits come first.
            let level = match (before, writes(rule).is_empty()) {
                (Some(before), _) => before + 1,
                (None, true) if rule.state.is_empty() => ROUNDS + 1,
                (None, _) => 0,
            };
            let level = level.min(ROUNDS + 1);
            has_changed |= level_of.insert(rule.source_index, level) != Some(level);
            for key in writes(rule) {
                let level = level.min(ROUNDS);
                let writers = written.entry(key).or_default();
                match writers
                    .iter_mut()
                    .find(|(writer, _)| *writer == rule.source_index)
                {
                    Some((_, highest)) => *highest = (*highest).max(level),
                    None => writers.push((rule.source_index, level)),
                }
            }
        }
        if !has_changed {
            break;
        }
    }
    rules.sort_by_cached_key(|rule| {
        let level = level_of.get(&rule.source_index).copied().unwrap_or(0);
        // Of rules in a circle, those that only test a bit are last.
        let kind = match (rule.state.is_empty(), rule.effects.is_empty()) {
            _ if level < ROUNDS => 0,
            (true, false) => 1,
            (false, false) => 2,
            (false, true) => 3,
            (true, true) => 4,
        };
        (rank(rule.action), level, kind, rule.priority, rule.source_index)
    });
}
