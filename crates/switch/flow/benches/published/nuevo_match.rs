//! NuevoMatch (Rashelbach, Rottenstreich and Silberstein, "A computational approach to packet classification",
//! SIGCOMM 2020).
//!
//! An *iSet* is a set of rules that do not overlap in one field, so that a learned index (`rq_rmi`) finds the one rule
//! that may match. The largest iSet is extracted from the rules, then the largest of the remaining rules, and
//! so on: at most four iSets, each with at least a twentieth of all rules (the paper's figure with
//! TupleMerge). The *remainder* goes to TupleMerge, which is searched last and stops at the result of an
//! iSet. Until the next training, new rules go to the remainder, and a rule that is removed leaves a hole in
//! its iSet.

use crate::rq_rmi::RqRmi;
use crate::rule::{FIELDS, Packet, PublishedClassifier, Range, Rule5, values};
use crate::tuple_merge::TupleMerge;

/// The maximum number of iSets.
const ISETS_MAX: usize = 4;

/// The minimum size of an iSet is the number of rules divided by this.
const SHARE_MIN: usize = 20;

struct ISet {
    field: usize,
    index: RqRmi,
    /// The beginning of each rule's range, for the binary search.
    starts: Vec<u32>,
    rules: Vec<Rule5>,
}

pub(crate) struct NuevoMatch {
    isets: Vec<ISet>,
    remainder: TupleMerge,
    /// The number of rules in the remainder after the training.
    left: usize,
}

impl ISet {
    fn new(field: usize, rules: &[(Rule5, Range)]) -> ISet {
        let ranges: Vec<Range> = rules.iter().map(|(_, range)| *range).collect();
        ISet {
            field,
            index: RqRmi::new(&ranges),
            starts: ranges.iter().map(|range| range.lo).collect(),
            rules: rules.iter().map(|(rule, _)| *rule).collect(),
        }
    }

    /// Returns the index of the rule whose range may contain a value.
    #[inline(always)]
    fn find(&self, value: u32) -> Option<usize> {
        let (from, to) = self.index.places(value);
        let behind = self.starts[from..to].partition_point(|start| *start <= value);
        (from + behind).checked_sub(1)
    }
}

/// Returns the largest set of rules that do not overlap in a field (interval scheduling), in order.
fn independent(rules: &[Rule5], field: usize) -> Vec<(Rule5, Range)> {
    let with_range = |rule: &Rule5| Some((*rule, rule.ranges()?[field]));
    let mut sorted: Vec<(Rule5, Range)> = rules.iter().filter_map(with_range).collect();
    sorted.sort_unstable_by_key(|(rule, range)| (range.hi, core::cmp::Reverse(range.lo), rule.rank));
    let mut free = 0;
    sorted.retain(|(_, range)| {
        let kept = u64::from(range.lo) >= free;
        if kept {
            free = u64::from(range.hi) + 1;
        }
        kept
    });
    sorted
}

impl NuevoMatch {
    pub(crate) fn new(rules: &[Rule5]) -> NuevoMatch {
        let mut left = rules.to_vec();
        let mut isets = Vec::new();
        while isets.len() < ISETS_MAX {
            let tried = (0..FIELDS).map(|field| (field, independent(&left, field)));
            let Some((field, members)) = tried.max_by_key(|(_, members)| members.len()) else {
                break;
            };
            if members.is_empty() || members.len() * SHARE_MIN < rules.len() {
                break;
            }
            isets.push(ISet::new(field, &members));
            let taken: std::collections::HashSet<u64> = members.iter().map(|(rule, _)| rule.rank).collect();
            left.retain(|rule| !taken.contains(&rule.rank));
        }
        NuevoMatch {
            isets,
            remainder: TupleMerge::new(&left),
            left: left.len(),
        }
    }
}

impl PublishedClassifier for NuevoMatch {
    #[inline(always)]
    fn lookup(&self, packet: Packet) -> u64 {
        let values = values(packet);
        let mut best = 0;
        for iset in &self.isets {
            if let Some(place) = iset.find(values[iset.field]) {
                let rule = &iset.rules[place];
                if rule.matches(packet) {
                    best = best.max(rule.rank);
                }
            }
        }
        self.remainder.lookup_from(packet, best)
    }

    fn heap_size(&self) -> usize {
        let iset = |iset: &ISet| {
            iset.index.heap_size()
                + iset.starts.capacity() * 4
                + iset.rules.capacity() * size_of::<Rule5>()
                + size_of::<ISet>()
        };
        self.isets.iter().map(iset).sum::<usize>() + self.remainder.heap_size()
    }

    fn structure(&self) -> String {
        let isets: Vec<String> = self
            .isets
            .iter()
            .map(|iset| iset.rules.len().to_string())
            .collect();
        let error = self
            .isets
            .iter()
            .map(|iset| iset.index.error_max())
            .max()
            .unwrap_or(0);
        format!(
            "iSets {} (error {error}), {} left: {}",
            isets.join("+"),
            self.left,
            self.remainder.structure()
        )
    }

    fn insert(&mut self, rule: &Rule5) -> bool {
        self.remainder.insert(rule)
    }

    fn remove(&mut self, rule: &Rule5) -> bool {
        for iset in &mut self.isets {
            let own = rule.ranges().and_then(|ranges| iset.find(ranges[iset.field].lo));
            if let Some(held) = own
                .map(|place| &mut iset.rules[place])
                .filter(|held| *held == rule)
            {
                // No packet has this key under this mask.
                (held.key, held.mask, held.rank) = ([1, 0], [0, 0], 0);
                return true;
            }
        }
        self.remainder.remove(rule)
    }
}
