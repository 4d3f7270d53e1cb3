//! PartitionSort (Yingchareonthawornchai, Daly, Liu and Torng, "A sorted-partitioning approach to fast and scalable
//! dynamic packet classification", ICNP 2016, ToN 2018).
//!
//! A set of rules is *sortable* in an order of the fields if, at the first field where two rules differ, their ranges
//! do not overlap. One binary search in each field then finds the one rule that may match. Rules are partitioned into
//! few sortable sets, which are searched in the order of their highest priorities.
//!
//! * The initial partition is the paper's greedy one. It orders the fields step by step. Each step finds, for
//!   every class of rules that are equal in the fields so far, the heaviest set of ranges without overlaps in
//!   each field, and takes the field with the heaviest sets. The remaining rules are partitioned in the same
//!   way.
//! * Later rules go to the first set that can take them, otherwise to a new one, whose fields are reordered while it
//!   has less than ten rules.
//! * The multi-dimensional interval tree consists of sorted arrays of ranges instead of red-black trees:
//!   twelve bytes a range, and a binary search without branches. A rule that is alone in its branch is
//!   directly below that branch (path compression). Updates cost more, as they move the rest of one array.

use crate::rule::{FIELDS, NonPrefixRules, Packet, Priorities, PublishedClassifier, Range, Rule5, values};
use crate::sortable::{field_order, partition};

/// The number of rules from which on a set keeps its order of fields.
const MATURE: usize = 10;

/// The bit of [`Branch::next`] that is set for a rule and clear for a level.
const RULE: u32 = 1 << 31;

/// A range, and the rule or level below it.
#[derive(Clone, Copy)]
struct Branch {
    range: Range,
    next: u32,
}

/// A sortable set.
struct Set {
    /// The [`limit`](crate::rule::limit) of the highest priority.
    limit: u64,
    order: [usize; FIELDS],
    /// Sorted ranges that do not overlap; the first level is the root.
    levels: Vec<Vec<Branch>>,
    free_levels: Vec<u32>,
    rules: Vec<Rule5>,
    free_rules: Vec<u32>,
    priorities: Priorities,
}

impl Set {
    fn new(order: [usize; FIELDS]) -> Set {
        Set {
            limit: 0,
            order,
            levels: vec![Vec::new()],
            free_levels: Vec::new(),
            rules: Vec::new(),
            free_rules: Vec::new(),
            priorities: Priorities::default(),
        }
    }

    #[inline(always)]
    fn lookup(&self, packet: Packet, values: &[u32; FIELDS], best: u64) -> u64 {
        let mut level = 0;
        for field in self.order {
            let branches = &self.levels[level];
            let value = values[field];
            let behind = branches.partition_point(|branch| branch.range.lo <= value);
            let Some(branch) = branches.get(behind.wrapping_sub(1)) else {
                return best;
            };
            if branch.range.hi < value {
                return best;
            }
            if branch.next & RULE != 0 {
                let rule = &self.rules[(branch.next & !RULE) as usize];
                return if rule.matches(packet) {
                    best.max(rule.rank)
                } else {
                    best
                };
            }
            level = branch.next as usize;
        }
        best
    }

    /// Adds a rule if the set stays sortable.
    fn insert(&mut self, rule: &Rule5, ranges: &[Range; FIELDS]) -> bool {
        let mut level = 0;
        for depth in 0..FIELDS {
            let range = ranges[self.order[depth]];
            let branches = &self.levels[level];
            let at = branches.partition_point(|branch| branch.range.hi < range.lo);
            match branches.get(at).copied() {
                Some(branch) if branch.range == range && branch.next & RULE == 0 => {
                    level = branch.next as usize;
                }
                Some(branch) if branch.range == range => {
                    return self.insert_beside(rule, ranges, (level, at, depth));
                }
                Some(branch) if branch.range.overlaps(range) => return false,
                _ => {
                    let next = self.hold(rule);
                    self.levels[level].insert(at, Branch { range, next });
                    return true;
                }
            }
        }
        false
    }

    /// Adds a rule to a branch that has the same range and one rule. Creates levels down to the first field
    /// in which both rules differ.
    fn insert_beside(
        &mut self,
        rule: &Rule5,
        ranges: &[Range; FIELDS],
        place: (usize, usize, usize),
    ) -> bool {
        let (mut level, mut at, depth) = place;
        let next = self.levels[level][at].next;
        let Some(other) = self.rules[(next & !RULE) as usize].ranges() else {
            return false;
        };
        let apart = self.order.iter().skip(depth + 1);
        let Some(field) = apart.copied().find(|field| other[*field] != ranges[*field]) else {
            return false;
        };
        if other[field].overlaps(ranges[field]) {
            return false;
        }
        for depth in depth + 1..FIELDS {
            let here = self.order[depth];
            let mut branches = vec![Branch {
                range: other[here],
                next,
            }];
            if here == field {
                let (range, next) = (ranges[here], self.hold(rule));
                branches.insert(usize::from(range > other[here]), Branch { range, next });
            }
            let below = self.hold_level(branches);
            self.levels[level][at].next = below;
            if here == field {
                break;
            }
            (level, at) = (below as usize, 0);
        }
        true
    }

    fn hold(&mut self, rule: &Rule5) -> u32 {
        self.priorities.add(rule);
        self.limit = self.priorities.limit().unwrap_or(0);
        if let Some(free) = self.free_rules.pop() {
            self.rules[free as usize] = *rule;
            return free | RULE;
        }
        self.rules.push(*rule);
        (self.rules.len() as u32 - 1) | RULE
    }

    fn hold_level(&mut self, branches: Vec<Branch>) -> u32 {
        if let Some(free) = self.free_levels.pop() {
            self.levels[free as usize] = branches;
            return free;
        }
        self.levels.push(branches);
        self.levels.len() as u32 - 1
    }

    fn remove(&mut self, rule: &Rule5, ranges: &[Range; FIELDS]) -> bool {
        let mut path: Vec<(usize, usize)> = Vec::new();
        let mut level = 0;
        for field in self.order {
            let at = self.levels[level].partition_point(|branch| branch.range.hi < ranges[field].lo);
            let Some(branch) = self.levels[level].get(at) else {
                return false;
            };
            path.push((level, at));
            if branch.next & RULE != 0 {
                break;
            }
            level = branch.next as usize;
        }
        let Some((level, at)) = path.pop() else {
            return false;
        };
        let held = (self.levels[level][at].next & !RULE) as usize;
        if self.rules[held] != *rule {
            return false;
        }
        self.free_rules.push(held as u32);
        self.priorities.remove(rule);
        self.limit = self.priorities.limit().unwrap_or(0);
        self.levels[level].remove(at);
        let mut below = level;
        while let Some((level, at)) = path.pop() {
            if !self.levels[below].is_empty() {
                break;
            }
            self.free_levels.push(below as u32);
            self.levels[level].remove(at);
            below = level;
        }
        true
    }

    fn len(&self) -> usize {
        self.rules.len() - self.free_rules.len()
    }

    /// Reorders the fields of a small set, if the set can keep all its rules.
    fn reorder(&mut self) {
        if !self.free_rules.is_empty() {
            return;
        }
        let ranges: Option<Vec<[Range; FIELDS]>> = self.rules.iter().map(Rule5::ranges).collect();
        let Some(ranges) = ranges else { return };
        let all: Vec<u32> = (0..ranges.len() as u32).collect();
        let (order, kept) = field_order(&ranges, all);
        if kept.len() == ranges.len() && order != self.order {
            let mut made = Set::new(order);
            let rules = self.rules.iter().zip(&ranges);
            if rules.fold(true, |good, (rule, ranges)| good & made.insert(rule, ranges)) {
                *self = made;
            }
        }
    }

    fn heap_size(&self) -> usize {
        let level = |level: &Vec<Branch>| level.capacity() * size_of::<Branch>();
        self.levels.iter().map(level).sum::<usize>()
            + self.levels.capacity() * size_of::<Vec<Branch>>()
            + self.rules.capacity() * size_of::<Rule5>()
            + (self.free_rules.capacity() + self.free_levels.capacity()) * 4
            + self.priorities.heap_size()
    }
}

pub(crate) struct PartitionSort {
    /// The sets, highest limit first.
    sets: Vec<Set>,
    irregular: NonPrefixRules,
}

impl PartitionSort {
    pub(crate) fn new(rules: &[Rule5]) -> PartitionSort {
        let mut made = PartitionSort {
            sets: Vec::new(),
            irregular: NonPrefixRules::default(),
        };
        let (mut plain, mut ranges) = (Vec::new(), Vec::new());
        for rule in rules {
            match rule.ranges() {
                Some(own) => {
                    plain.push(*rule);
                    ranges.push(own);
                }
                None => made.irregular.insert(rule),
            }
        }
        for (order, mut members) in partition(&ranges) {
            // The rules are sorted, so that each new range is the last one in its level.
            members.sort_by_key(|rule| order.map(|field| ranges[*rule as usize][field]));
            let mut set = Set::new(order);
            for rule in members {
                let rule = rule as usize;
                assert!(set.insert(&plain[rule], &ranges[rule]), "the set is not sortable");
            }
            made.sets.push(set);
        }
        made.sort();
        made
    }

    fn sort(&mut self) {
        self.sets.retain(|set| set.len() > 0);
        self.sets.sort_by_key(|set| core::cmp::Reverse(set.limit));
    }
}

impl PublishedClassifier for PartitionSort {
    #[inline(always)]
    fn lookup(&self, packet: Packet) -> u64 {
        let values = values(packet);
        let mut best = 0;
        for set in &self.sets {
            if best >= set.limit {
                break;
            }
            best = set.lookup(packet, &values, best);
        }
        self.irregular.lookup(packet, best)
    }

    fn heap_size(&self) -> usize {
        let sets = self.sets.iter().map(Set::heap_size).sum::<usize>();
        sets + self.sets.capacity() * size_of::<Set>() + self.irregular.heap_size()
    }

    fn structure(&self) -> String {
        format!("{} sets", self.sets.len())
    }

    fn insert(&mut self, rule: &Rule5) -> bool {
        let Some(ranges) = rule.ranges() else {
            self.irregular.insert(rule);
            return true;
        };
        let taken = self.sets.iter_mut().position(|set| set.insert(rule, &ranges));
        let at = taken.unwrap_or(self.sets.len());
        if taken.is_none() {
            let (order, _) = field_order(&[ranges], vec![0]);
            self.sets.push(Set::new(order));
            self.sets[at].insert(rule, &ranges);
        } else if self.sets[at].len() < MATURE {
            self.sets[at].reorder();
        }
        self.sort();
        true
    }

    fn remove(&mut self, rule: &Rule5) -> bool {
        let Some(ranges) = rule.ranges() else {
            return self.irregular.remove(rule);
        };
        let removed = self.sets.iter_mut().any(|set| set.remove(rule, &ranges));
        self.sort();
        removed
    }
}
