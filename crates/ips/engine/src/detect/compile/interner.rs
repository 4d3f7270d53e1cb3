//! The numbers of names, and values that rules share.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_ips_pcre::Regex;
use millrace_ips_rules::countries::Countries;
use millrace_ips_rules::limits;
use millrace_ips_rules::options::dataset::SetType;
use millrace_ips_rules::reputation::Reputation;
use millrace_ips_rules::variables::Ranges;

use super::hook::Hook;
use crate::detect::dataset::{JsonSet, SavedSet, Values};

/// The rule file, the keyword and the name of a list of digests.
pub(super) type ListKey = (String, &'static str, String);

/// The numbers of names, and values that rules share.
#[derive(Debug, Default)]
pub(super) struct Interner {
    pub(super) bits: HashMap<String, u32>,
    pub(super) counters: HashMap<String, u32>,
    pub(super) hooks: HashMap<Hook, u16>,
    pub(super) regexes: HashMap<(String, String), Arc<Regex>>,
    pub(super) ranges: HashMap<String, Option<Arc<Ranges>>>,
    /// The types and first values of sets, by their names.
    pub(super) sets: HashMap<String, (SetType, Arc<Values>)>,
    /// The JSON values of sets, by their names.
    pub(super) json: HashMap<String, Arc<JsonSet>>,
    pub(super) digests: HashMap<ListKey, Arc<HashSet<Vec<u8>>>>,
    /// The reputation of addresses.
    pub(super) reputation: Arc<Reputation>,
    /// The countries of addresses.
    pub(super) countries: Countries,
    /// Sets that are written to files, by their names.
    pub(super) saved: BTreeMap<String, SavedSet>,
}

impl Interner {
    pub(super) fn bit(&mut self, name: &str) -> u32 {
        let next = self.bits.len() as u32;
        *self.bits.entry(name.to_owned()).or_insert(next)
    }

    pub(super) fn counter(&mut self, name: &str) -> u32 {
        let next = self.counters.len() as u32;
        *self.counters.entry(name.to_owned()).or_insert(next)
    }

    /// Returns the number of a hook; none if the rule set has too many.
    pub(super) fn hook(&mut self, hook: Hook) -> Option<u16> {
        if let Some(known) = self.hooks.get(&hook) {
            return Some(*known);
        }
        let next = u16::try_from(self.hooks.len()).ok();
        let next = next.filter(|next| usize::from(*next) < limits::HOOKS)?;
        self.hooks.insert(hook, next);
        Some(next)
    }
}
