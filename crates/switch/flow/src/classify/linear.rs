//! The oracle: a scan of every rule, in order of priority.

use super::{Classifier, Slot};
use crate::key::{FlowKey, Rule};

/// Rules in a list, highest priority first. The scan is obviously correct. It is slow for many rules, and the
/// fastest structure for a handful of rules.
#[derive(Clone, Debug, Default)]
pub struct LinearScan {
    rules: Vec<(Rule, Slot)>,
}

impl LinearScan {
    /// Returns a classifier without rules.
    pub fn new() -> LinearScan {
        LinearScan::default()
    }

    fn position(&self, rule: &Rule) -> Option<usize> {
        self.rules.iter().position(|(held, _)| held == rule)
    }

    /// Returns the rules with their slots, highest priority first.
    pub fn iter(&self) -> impl Iterator<Item = (&Rule, Slot)> {
        self.rules.iter().map(|(rule, slot)| (rule, *slot))
    }
}

impl Classifier for LinearScan {
    fn insert(&mut self, rule: &Rule, slot: Slot) -> Option<Slot> {
        if let Some(at) = self.position(rule) {
            return Some(core::mem::replace(&mut self.rules[at].1, slot));
        }
        let at = self
            .rules
            .partition_point(|(held, _)| held.priority >= rule.priority);
        self.rules.insert(at, (rule.clone(), slot));
        None
    }

    fn remove(&mut self, rule: &Rule) -> Option<Slot> {
        self.position(rule).map(|at| self.rules.remove(at).1)
    }

    fn lookup_burst(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]) {
        for (verdict, packet) in verdicts.iter_mut().zip(select) {
            let key = &keys[usize::from(*packet)];
            *verdict = self
                .rules
                .iter()
                .find(|(rule, _)| rule.matches(key))
                .map(|(_, slot)| *slot);
        }
    }

    fn len(&self) -> usize {
        self.rules.len()
    }
}
