//! A compiled rule set.

use std::collections::HashMap;

use super::hook::Hook;
use crate::app::{Asks, FrameSet};
use crate::detect::dataset::SavedSet;
use crate::detect::numbers::Numbers;
use crate::detect::prefilter::Prefilter;
use crate::detect::program::Rule;

/// The names of the bits and counters of a rule set, by their numbers.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub(super) bits: Vec<String>,
    pub(super) counters: Vec<String>,
}

impl Names {
    pub(super) fn sorted(names: HashMap<String, u32>) -> Vec<String> {
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
    pub(in crate::detect) prefilter: Prefilter,
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
