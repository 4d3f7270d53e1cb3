//! The numbers of bits, counters and rules, which flows store.

use std::collections::{HashMap, HashSet};

use super::program::Rule;

/// Index of a previous rule that this set no longer has.
const NONE: u32 = u32::MAX;

/// The numbers that a rule set gives to bits, counters and rules. Flows store these numbers.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// Number of rule sets that were in use before this one.
    pub generation: u64,
    /// Numbers of bits by name.
    pub bits: HashMap<String, u32>,
    /// Numbers of counters by name.
    pub counters: HashMap<String, u32>,
    /// The pass rules, by [`Rule::pass_digest`].
    pub passes: HashSet<u64>,
    /// Indexes of the rules by generator, number and revision.
    rules: HashMap<(u32, u32, u32), u32>,
    /// Index in this set of each rule of the previous set; [`NONE`] for a rule that was removed.
    from_previous: Vec<u32>,
}

impl Numbers {
    /// Returns the numbers of a rule set that replaces the set with the numbers `previous`.
    pub(super) fn new(
        rules_of_set: &[Rule],
        bits: HashMap<String, u32>,
        counters: HashMap<String, u32>,
        previous: Option<&Numbers>,
    ) -> Numbers {
        let key = |rule: &Rule| (rule.gid, rule.sid, rule.rev);
        let rules: HashMap<_, u32> = rules_of_set.iter().map(key).zip(0..).collect();
        let mut from_previous = Vec::new();
        if let Some(previous) = previous {
            let len = previous.rules.values().max().map_or(0, |last| *last as usize + 1);
            from_previous.resize(len, NONE);
            for (key, old) in &previous.rules {
                if let Some(new) = rules.get(key) {
                    from_previous[*old as usize] = *new;
                }
            }
        }
        Numbers {
            generation: previous.map_or(0, |previous| previous.generation + 1),
            bits,
            counters,
            passes: rules_of_set.iter().filter_map(|rule| rule.pass_digest).collect(),
            rules,
            from_previous,
        }
    }

    /// Returns the new index of a rule from its index in the previous set; `None` if the rule was removed.
    pub(super) fn renumbered(&self, old: u32) -> Option<u32> {
        let new = *self.from_previous.get(old as usize)?;
        (new != NONE).then_some(new)
    }
}
