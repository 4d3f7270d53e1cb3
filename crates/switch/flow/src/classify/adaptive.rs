//! The classifier of a flow table. It chooses its structure by the rules, and changes it as the rules change.
//!
//! Rules are in *parts*. A list that is compared directly holds up to some hundred irregular rules, a trie holds many
//! rules that differ in one prefix, and tuples (one hash table each) hold the others. If all rules have one mask,
//! there is one tuple, which is an exact match. A lookup searches the parts in the order of their highest priorities,
//! the whole burst in one part before the next, and a packet leaves the search when no later part can have a better
//! rule.
//!
//! Two sorts of rules are in no part. A rule that matches everything (table miss) is the initial result of every
//! lookup. A rule with the same match as another rule and a lower priority can never be found; it is stored until the
//! other rule is removed.

use std::collections::BTreeMap;

use super::columns::{AlignedColumns, Burst, COLUMNS, Columns, Projection};
use super::direct::Direct;
use super::hash::HashKeys;
use super::header_columns::HeaderColumns;
use super::lpm::LpmPart;
use super::masks::{MaskId, Masks};
use super::part::{Kind, Part};
use super::plan::{self, COLLISIONS_HARD_MAX, COLLISIONS_MAX, SAMPLE, Sample};
use super::tuple::{Scratch, Tuple, TupleSpec};
use super::{BURST, Classifier, PRIORITY_SHIFT, Simd, Slot, rank, slot_of};
use crate::key::{FlowKey, FlowMask, Rule};

/// The number of rules that are compared directly, whatever their masks. (ADR 3: two dozen compares cost less than one
/// hash table.)
const DIRECT_MIN: usize = 16;

/// The minimum number of updates between two plans; a quarter of the rules if that is more.
const PLAN_PAUSE: usize = 64;

/// Up to this number of rules, the parts are planned again after updates to a sixteenth of the rules, if
/// lookups have become much slower than planned.
const FREQUENT_PLANS: usize = 1 << 16;

/// Up to this number of rules, an idle table is planned again if one rule in [`IDLE_SHARE`] has changed or a lookup
/// takes longer than planned. A plan of this many rules takes a tenth of a second.
const IDLE_RULES: usize = 1 << 18;
const IDLE_SHARE: usize = 64;

/// The classifier of one flow table, for any rules.
#[derive(Clone, Debug)]
pub struct Adaptive {
    simd: Simd,
    keys: HashKeys,
    /// The slots of rules that match everything, by priority.
    constant: BTreeMap<u16, Slot>,
    masks: Masks,
    projection: Projection,
    parts: Vec<Option<Part>>,
    /// The parts in search order, the one with the highest rank first. Each item is a rank and the index of a part: a
    /// packet whose best rule so far has at least this rank needs no search of the part.
    order: Vec<(u64, u32)>,
    /// The number of rules in parts.
    placed: usize,
    /// Rules with the same match as another rule and a lower priority.
    hidden: BTreeMap<(MaskId, Columns, u16), Slot>,
    planned_rules: usize,
    planned_weight: usize,
    /// True if more rules are compared directly than a plan allows, although the plan is new.
    planned_overfull: bool,
    updates: usize,
}

impl Adaptive {
    /// Returns a classifier without rules. `seed` keys every hash, so that an attacker who does not know it cannot
    /// construct collisions.
    pub fn new(seed: u64) -> Adaptive {
        Adaptive::with_simd(seed, Simd::detect())
    }

    /// Returns a classifier without rules that uses the given vector instructions.
    pub fn with_simd(seed: u64, simd: Simd) -> Adaptive {
        Adaptive {
            simd,
            keys: HashKeys::new(seed),
            constant: BTreeMap::new(),
            masks: Masks::default(),
            projection: Projection::default(),
            parts: Vec::new(),
            order: Vec::new(),
            placed: 0,
            hidden: BTreeMap::new(),
            planned_rules: 0,
            planned_weight: 0,
            planned_overfull: false,
            updates: 0,
        }
    }

    /// Returns the structure in use.
    pub fn kind(&self) -> Kind {
        Kind::of(self.parts.iter().flatten())
    }

    /// Returns every bit that some rule compares; a parser must extract these.
    pub fn mask(&self) -> FlowMask {
        self.masks.union()
    }

    /// Returns the size in bytes of the heap memory in use.
    pub fn heap_size(&self) -> usize {
        let parts = self.parts.iter().flatten().map(Part::heap_size);
        parts.sum::<usize>()
            + self.parts.capacity() * size_of::<Option<Part>>()
            + self.order.capacity() * size_of::<(u64, u32)>()
            + self.masks.heap_size()
            + self.projection.heap_size()
            + self.hidden.len() * size_of::<((MaskId, Columns, u16), Slot)>()
    }

    /// Returns the number of rules outside of their home group.
    #[cfg(test)]
    pub(super) fn overflowed(&self) -> usize {
        let tuples = self.parts.iter().flatten().map(|part| match part {
            Part::Tuple(part) => part.overflowed(),
            _ => 0,
        });
        tuples.sum()
    }

    /// Returns the part that holds the rule with this mask and key, and its rank.
    fn held(&self, mask: MaskId, key: &Columns) -> Option<(u32, u64)> {
        self.masks.entry(mask).parts.iter().find_map(|(part_index, _)| {
            let rank = self.parts[*part_index as usize].as_ref()?.rank(mask, key);
            Some((*part_index, rank?))
        })
    }

    /// Changes the rank of a rule from `old` to `rank`.
    fn replace(&mut self, part_index: u32, mask: MaskId, key: &Columns, (old, rank): (u64, u64)) {
        if old >> PRIORITY_SHIFT != rank >> PRIORITY_SHIFT {
            self.remove_from_part(part_index, mask, key);
            self.insert_into_part(mask, key, rank);
            return;
        }
        let columns = self.masks.entry(mask).columns;
        if let Some(part) = &mut self.parts[part_index as usize] {
            part.replace(&self.projection, (mask, &columns), key, rank);
        }
    }

    /// Inserts a rule that is in no part.
    fn insert_into_part(&mut self, mask: MaskId, key: &Columns, rank: u64) {
        let columns = self.masks.entry(mask).columns;
        let part_index = self.part_for((mask, &columns), key, rank);
        if let Some(part) = &mut self.parts[part_index as usize] {
            part.insert(&self.projection, (mask, &columns), key, rank);
        }
        self.masks.entry_mut(mask).arrive(part_index);
        self.placed += 1;
        self.sort(part_index);
    }

    /// Returns the part for a rule; the part may be new.
    fn part_for(&mut self, (id, mask): (MaskId, &Columns), key: &Columns, rank: u64) -> u32 {
        let accepting = |collisions_max: usize| {
            let accepts = |part: &Option<Part>| {
                part.as_ref()
                    .is_some_and(|part| part.accepts(mask, key, rank, collisions_max))
            };
            self.parts.iter().position(accepts)
        };
        if let Some(part_index) = accepting(COLLISIONS_MAX) {
            return part_index as u32;
        }
        let Some((part_index, direct)) = self.direct() else {
            return self.new_part(Part::Direct(Direct::default()));
        };
        if direct.is_wanted(mask) {
            return part_index;
        }
        if let Some(part_index) = accepting(COLLISIONS_HARD_MAX) {
            return part_index as u32;
        }
        let mut holders = self.masks.entry(id).parts.iter();
        let alike = holders
            .find(|(held, _)| *held == part_index)
            .map_or(0, |(_, rules)| *rules);
        if direct.has_room(mask, alike) {
            return part_index;
        }
        let tuple = Tuple::new(&self.keys, &self.projection, &TupleSpec::single(*mask));
        self.new_part(Part::Tuple(Box::new(tuple)))
    }

    /// Returns the part whose rules are compared directly.
    fn direct(&self) -> Option<(u32, &Direct)> {
        self.parts
            .iter()
            .zip(0..)
            .find_map(|(part, part_index)| match part {
                Some(Part::Direct(part)) => Some((part_index, part)),
                _ => None,
            })
    }

    /// Returns the cost of a lookup, as a number of tuple searches.
    pub(super) fn weight(&self) -> usize {
        self.order.len() + self.direct().map_or(0, |(_, direct)| direct.weight())
    }

    /// Returns true if more rules are compared directly than a plan allows.
    fn is_overfull(&self) -> bool {
        self.direct().is_some_and(|(_, direct)| direct.is_overfull())
    }

    fn new_part(&mut self, part: Part) -> u32 {
        let part_index = match self.parts.iter().position(Option::is_none) {
            Some(free) => {
                self.parts[free] = Some(part);
                free
            }
            None => {
                self.parts.push(Some(part));
                self.parts.len() - 1
            }
        };
        self.order.push((u64::MAX, part_index as u32));
        part_index as u32
    }

    /// Removes a rule from its part.
    fn remove_from_part(&mut self, part_index: u32, mask: MaskId, key: &Columns) {
        if let Some(part) = &mut self.parts[part_index as usize] {
            part.remove(mask, key);
        }
        self.masks.entry_mut(mask).leave(part_index);
        self.placed -= 1;
        self.sort(part_index);
    }

    /// Updates the position of a part in the order after its rules changed, or removes an empty part.
    fn sort(&mut self, part_index: u32) {
        let part = self.parts[part_index as usize].as_ref();
        let (len, highest) = part.map_or((0, 0), |part| (part.len(), part.highest()));
        if len == 0 {
            self.parts[part_index as usize] = None;
            self.order.retain(|(_, held)| *held != part_index);
            return;
        }
        let needless = (highest >> PRIORITY_SHIFT << PRIORITY_SHIFT).max(1);
        if let Some(held) = self.order.iter_mut().find(|(_, held)| *held == part_index)
            && held.0 != needless
        {
            held.0 = needless;
            self.order
                .sort_by_key(|(needless, part_index)| (core::cmp::Reverse(*needless), *part_index));
        }
    }

    /// Returns true if no other choice of parts is better: there is one part for each of one or two masks, and few
    /// rules are compared directly.
    fn is_perfect(&self) -> bool {
        let are_few = self.order.len() <= 2 && self.masks.len() == self.order.len();
        are_few
            && self.direct().is_none_or(|(_, direct)| direct.weight() <= 1)
            && self.masks.iter().all(|(_, mask)| mask.parts.len() == 1)
    }

    /// Returns true if another choice of parts may be better now.
    fn is_outgrown(&self) -> bool {
        let is_direct = self.planned_rules <= DIRECT_MIN;
        if is_direct || self.placed <= DIRECT_MIN / 2 {
            return (self.placed > DIRECT_MIN) == is_direct;
        }
        if self.is_perfect() {
            return false;
        }
        let is_crowded = self.weight() > self.planned_weight + self.planned_weight / 4 + 2
            || self.is_overfull() && !self.planned_overfull;
        let is_resized = self.placed > 2 * self.planned_rules || self.placed < self.planned_rules / 4;
        // Rules often arrive sorted. Later rules then do not resemble those of the last plan, and the plan
        // soon becomes useless. The share is larger for many rules, because moving them takes long.
        let share = if is_crowded && self.placed <= FREQUENT_PLANS {
            16
        } else {
            4
        };
        self.updates >= PLAN_PAUSE.max(self.placed / share) && (is_crowded || is_resized)
    }

    /// Plans the parts again if that may be worth it. The caller calls this when no update has come for a
    /// while. During updates, a plan waits for more updates, and the latest rules are in preliminary parts.
    pub fn optimize(&mut self) {
        let is_worn = self.weight() > self.planned_weight || self.updates > self.placed / IDLE_SHARE;
        if is_worn && (DIRECT_MIN + 1..=IDLE_RULES).contains(&self.placed) && !self.is_perfect() {
            self.rebuild();
        }
    }

    /// Plans the parts again and moves every rule.
    fn rebuild(&mut self) {
        let parts = core::mem::take(&mut self.parts);
        let rules = self.placed;
        self.order.clear();
        self.placed = 0;
        self.projection.clear();
        let ids: Vec<MaskId> = self.masks.iter().map(|(id, _)| id).collect();
        for id in &ids {
            let entry = self.masks.entry_mut(*id);
            entry.parts.clear();
            self.projection.extend(entry.mask());
        }
        if rules > DIRECT_MIN {
            let mut sample = self.sample(&parts, rules, &ids);
            for spec in plan::prefixes(&mut sample) {
                let part = LpmPart::new(&self.projection, spec);
                self.new_part(Part::Lpm(Box::new(part)));
            }
            for spec in plan::tuples(&sample) {
                let part = Tuple::new(&self.keys, &self.projection, &spec);
                self.new_part(Part::Tuple(Box::new(part)));
            }
        }
        for part in parts.into_iter().flatten() {
            part.each(|mask, key, rank| self.insert_into_part(mask, key, rank));
        }
        for part_index in 0..self.parts.len() {
            self.sort(part_index as u32);
        }
        self.planned_rules = self.placed;
        self.planned_weight = self.weight();
        self.planned_overfull = self.is_overfull();
        self.updates = 0;
    }

    fn sample(&self, parts: &[Option<Part>], rules: usize, ids: &[MaskId]) -> Sample {
        let mut sample = Sample {
            masks: ids.iter().map(|id| self.masks.entry(*id).columns).collect(),
            rules: Vec::with_capacity(rules.min(2 * SAMPLE)),
            priorities: (u16::MAX, 0),
            scale: rules.div_ceil(SAMPLE),
        };
        let mut count = 0;
        for part in parts.iter().flatten() {
            part.each(|mask, key, rank| {
                let priority = (rank >> PRIORITY_SHIFT) as u16;
                let (lowest, highest) = sample.priorities;
                sample.priorities = (lowest.min(priority), highest.max(priority));
                if count % sample.scale == 0
                    && let Ok(number) = ids.binary_search(&mask)
                {
                    sample.rules.push((number, *key));
                }
                count += 1;
            });
        }
        sample
    }

    fn updated(&mut self) {
        self.updates += 1;
        if self.is_outgrown() {
            self.rebuild();
        }
    }

    #[inline(always)]
    fn search(&self, burst: &mut Burst, verdicts: &mut [Option<Slot>]) {
        let start = self.constant.last_key_value();
        let start = start.map_or(0, |(priority, slot)| rank(*priority, *slot));
        let mut best = [start; BURST];
        let mut len = verdicts.len().min(BURST);
        if let [(needless, part_index)] = *self.order {
            // Rules that are compared directly are found even if a rule that matches everything has their priority.
            if let Some(part) = &self.parts[part_index as usize]
                && (start < needless || matches!(part, Part::Direct(_)))
            {
                self.simd.search_part(part, burst, len, &mut best, None);
            }
            for (verdict, best) in verdicts.iter_mut().zip(&best) {
                *verdict = slot_of(*best);
            }
            return;
        }
        let mut scratch = Scratch::new();
        let mut indices: [u8; BURST] = core::array::from_fn(|index| index as u8);
        for (needless, part_index) in &self.order {
            let decided = best[..len].iter().filter(|best| **best >= *needless).count();
            if decided * 4 >= len {
                let mut left = 0;
                for packet in 0..len {
                    if best[packet] >= *needless {
                        verdicts[usize::from(indices[packet])] = slot_of(best[packet]);
                        continue;
                    }
                    best[left] = best[packet];
                    indices[left] = indices[packet];
                    for column in &mut burst[..self.projection.len()] {
                        column[left] = column[packet];
                    }
                    left += 1;
                }
                len = left;
            }
            if len == 0 {
                return;
            }
            if let Some(part) = &self.parts[*part_index as usize] {
                self.simd
                    .search_part(part, burst, len, &mut best, Some(&mut scratch));
            }
        }
        for packet in 0..len {
            verdicts[usize::from(indices[packet])] = slot_of(best[packet]);
        }
    }

    /// Looks up a burst, with the vector instructions of the caller's compilation.
    #[inline(always)]
    pub(super) fn lookup_inlined(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]) {
        match self.projection.len() {
            0..=2 => self.lookup_columns::<2>(keys, select, verdicts),
            3..=8 => self.lookup_columns::<8>(keys, select, verdicts),
            _ => self.lookup_columns::<COLUMNS>(keys, select, verdicts),
        }
    }

    /// Returns true if some rule matches a field before the IP header.
    #[inline]
    pub fn matches_layer2(&self) -> bool {
        self.projection.matches_layer2()
    }

    /// Looks up the packets of a burst by their header columns, which were read as [`Adaptive::matches_layer2`]
    /// requires. The result equals a lookup of each packet's key. `pipeline_fields` has the fields that are not in
    /// the packets' bytes, and the keys of [`HeaderColumns::others`]. `verdicts` is as long as the burst.
    #[inline]
    pub fn lookup_headers(
        &self,
        headers: &HeaderColumns,
        pipeline_fields: (&FlowKey, &[FlowKey]),
        verdicts: &mut [Option<Slot>],
    ) {
        self.simd.lookup_headers(self, headers, pipeline_fields, verdicts);
    }

    /// Looks keys up as [`Adaptive::lookup_headers`] does, with the vector instructions of the caller's compilation.
    #[inline(always)]
    pub(super) fn lookup_headers_inlined(
        &self,
        headers: &HeaderColumns,
        pipeline_fields: (&FlowKey, &[FlowKey]),
        verdicts: &mut [Option<Slot>],
    ) {
        match self.projection.len() {
            0..=2 => self.lookup_header_columns::<2>(headers, pipeline_fields, verdicts),
            3..=8 => self.lookup_header_columns::<8>(headers, pipeline_fields, verdicts),
            _ => self.lookup_header_columns::<COLUMNS>(headers, pipeline_fields, verdicts),
        }
    }

    #[inline(always)]
    fn lookup_header_columns<const N: usize>(
        &self,
        headers: &HeaderColumns,
        (pipeline_fields, keys): (&FlowKey, &[FlowKey]),
        verdicts: &mut [Option<Slot>],
    ) {
        let mut burst = AlignedColumns::<N>::new();
        headers.project(&self.projection, pipeline_fields, keys, &mut burst.0);
        self.search(&mut burst.0, verdicts);
    }

    #[inline(always)]
    fn lookup_columns<const N: usize>(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]) {
        let mut burst = AlignedColumns::<N>::new();
        self.projection.extract(keys, select, &mut burst.0);
        self.search(&mut burst.0, verdicts);
    }
}

impl Classifier for Adaptive {
    fn insert(&mut self, rule: &Rule, slot: Slot) -> Option<Slot> {
        if rule.mask == FlowMask::default() {
            return self.constant.insert(rule.priority.0, slot);
        }
        let (rank, key) = (rank(rule.priority.0, slot), Columns::of(&rule.key));
        let known = self.masks.find(&self.keys, &rule.mask);
        let held = known.and_then(|mask| Some((mask, self.held(mask, &key)?)));
        if let Some((mask, (part_index, held))) = held {
            if held >> PRIORITY_SHIFT == rank >> PRIORITY_SHIFT {
                self.replace(part_index, mask, &key, (held, rank));
                return slot_of(held);
            }
            let lower = held.min(rank);
            let hidden = (mask, key, (lower >> PRIORITY_SHIFT) as u16);
            let old = slot_of(lower).and_then(|slot| self.hidden.insert(hidden, slot));
            if rank > held {
                self.replace(part_index, mask, &key, (held, rank));
            }
            if old.is_none() {
                self.masks.add(&self.keys, &rule.mask);
            }
            return old;
        }
        let (mask, new) = self.masks.add(&self.keys, &rule.mask);
        if new {
            self.projection.extend(&rule.mask);
        }
        self.insert_into_part(mask, &key, rank);
        self.updated();
        None
    }

    fn remove(&mut self, rule: &Rule) -> Option<Slot> {
        if rule.mask == FlowMask::default() {
            return self.constant.remove(&rule.priority.0);
        }
        let key = Columns::of(&rule.key);
        let mask = self.masks.find(&self.keys, &rule.mask)?;
        let (part_index, held) = self.held(mask, &key)?;
        if held >> PRIORITY_SHIFT != u64::from(rule.priority.0) {
            let slot = self.hidden.remove(&(mask, key, rule.priority.0))?;
            self.masks.subtract(&self.keys, mask);
            return Some(slot);
        }
        let range = (mask, key, 0)..=(mask, key, u16::MAX);
        let next = self.hidden.range(range).next_back();
        match next.map(|(hidden, slot)| (*hidden, *slot)) {
            Some((hidden, slot)) => {
                self.hidden.remove(&hidden);
                self.replace(part_index, mask, &key, (held, super::rank(hidden.2, slot)));
                self.masks.subtract(&self.keys, mask);
            }
            None => {
                self.remove_from_part(part_index, mask, &key);
                self.masks.subtract(&self.keys, mask);
                self.updated();
            }
        }
        slot_of(held)
    }

    fn lookup_burst(&self, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>]) {
        self.simd.lookup(self, keys, select, verdicts);
    }

    fn len(&self) -> usize {
        self.constant.len() + self.placed + self.hidden.len()
    }
}
