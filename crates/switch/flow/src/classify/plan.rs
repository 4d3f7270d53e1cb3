//! The plan: the choice of tuples for given rules.
//!
//! Every tuple costs each packet a hash and a read of one group, whether or not it has a rule for the packet. Every
//! rule that has the same hash as another costs some packets a compare. A good plan therefore has few tuples, and few
//! rules with equal hashes: a cover of the rules by masks. The smallest cover is hard to find, and the greedy cover is
//! worse by a logarithmic factor at most (Chvátal, "A Greedy Heuristic for the Set-Covering Problem", 1979). This
//! module computes the greedy cover: among some candidate masks it takes the one that serves most rules, and repeats
//! that for the remaining rules.
//!
//! The plan examines a sample of the rules, so that its time is bounded. Any choice is correct.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::direct::{IRREGULAR, MANY_PLANNED, planned, weight};
use super::lpm::{LpmField, LpmSpec};
use super::table::WINDOWS;
use super::tuple::{Classes, TupleSpec};

/// The maximum number of rules with equal hashes in a tuple.
pub(super) const COLLISIONS_MAX: usize = 5;

/// The maximum number of rules with equal hashes in a tuple, if a lower limit would need another tuple.
pub(super) const COLLISIONS_HARD_MAX: usize = 20;

/// The maximum number of rules in a sample.
pub(super) const SAMPLE: usize = 4096;

/// The number of masks that the comparison of candidates considers: the masks with most rules.
const MASKS: usize = 128;

/// The number of masks that are combined with each other to find candidates.
const COMBINED: usize = 24;

/// The maximum number of candidates for a tuple; the rough comparison selects [`FINALISTS`] of them.
const CANDIDATES: usize = if cfg!(test) { 200 } else { 512 };
const FINALISTS: usize = 16;

/// The maximum number of searches for new candidates, each when the best candidate serves less than a quarter of the
/// remaining rules. Each search takes milliseconds for many different masks.
const RENEWALS: usize = 6;

/// The minimum number of rules that differ in one prefix for a trie; their prefixes have at least [`LPM_LENGTHS_MIN`]
/// lengths.
const LPM_RULES_MIN: usize = if cfg!(test) { 32 } else { 1024 };
const LPM_LENGTHS_MIN: u32 = 4;

/// The number of rules in the first, rough comparison of candidates.
const ROUGH: usize = 256;

/// The number of tuples with the limit [`COLLISIONS_MAX`]; as many again have twice that limit.
const TUPLES: usize = 24;

/// Prefix lengths to which candidates shorten IPv4 addresses.
const IPV4_LENGTHS: [u32; 7] = [0, 8, 12, 16, 20, 24, 28];

/// A sample of rules, each with the number of its mask.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) masks: Vec<Columns>,
    pub(super) rules: Vec<(usize, Columns)>,
    /// The lowest and the highest priority.
    pub(super) priorities: (u16, u16),
    /// The number of rules for each rule in the sample.
    pub(super) scale: usize,
}

/// Finds rules that differ in one prefix, if there are many of them with many lengths, and removes them from the
/// sample.
pub(super) fn prefixes(sample: &mut Sample) -> Vec<LpmSpec> {
    let mut groups: BTreeMap<LpmSpec, (usize, u128)> = BTreeMap::new();
    for (number, key) in &sample.rules {
        for field in LpmField::ALL {
            if let Some((spec, len)) = LpmSpec::of(field, &sample.masks[*number], key) {
                let (rules, lengths) = groups.entry(spec).or_default();
                *rules += 1;
                *lengths |= 1 << len.min(127);
            }
        }
    }
    groups.retain(|_, (rules, lengths)| {
        *rules * sample.scale >= LPM_RULES_MIN && lengths.count_ones() >= LPM_LENGTHS_MIN
    });
    let specs: Vec<LpmSpec> = groups.into_keys().collect();
    let masks = &sample.masks;
    sample.rules.retain(|(number, key)| {
        let taken = |spec: &LpmSpec| {
            LpmSpec::of(spec.lpm_field, &masks[*number], key).is_some_and(|(held, _)| held == *spec)
        };
        !specs.iter().any(taken)
    });
    specs
}

/// Returns the tuples for these rules, the most useful first. Rules that no tuple serves get tuples of their own
/// masks.
pub(super) fn tuples(sample: &Sample) -> Vec<TupleSpec> {
    if let [mask] = *sample.masks {
        return vec![TupleSpec::single(mask)];
    }
    let mut specs = Vec::new();
    let mut left: Vec<usize> = (0..sample.rules.len()).collect();
    let mut counter = Counter::new(sample);
    let mut family = candidates(sample, &left);
    let (mut is_fresh, mut renewals) = (true, 0);
    let mut cheapest = Cheapest::default();
    cheapest.consider(sample, &left, 0);
    while left.len() * sample.scale > IRREGULAR && specs.len() < 2 * TUPLES {
        let collisions_max = (COLLISIONS_MAX << (specs.len() / TUPLES)).div_ceil(sample.scale);
        let found = best(sample, &family, &left, collisions_max, &mut counter);
        let serves_few = || {
            let fits = |rule: &&usize| found.is_some_and(|found| found.fits[sample.rules[**rule].0]);
            left.iter().filter(fits).count() * 4 < left.len()
        };
        if !is_fresh && renewals < RENEWALS && serves_few() {
            family = candidates(sample, &left);
            (is_fresh, renewals) = (true, renewals + 1);
            continue;
        }
        let Some(found) = found else {
            break;
        };
        is_fresh = false;
        specs.push(take(sample, found, collisions_max, &mut left, &mut counter));
        cheapest.consider(sample, &left, specs.len());
    }
    if let Some((_, tuples)) = cheapest.0 {
        specs.truncate(tuples);
    }
    specs
}

/// The cheapest plan so far: its cost as a number of tuple searches, and its number of tuples. The remaining
/// rules are compared directly.
#[derive(Default)]
struct Cheapest(Option<(usize, usize)>);

impl Cheapest {
    /// Keeps the plan of `tuples` tuples if it is the cheapest so far. The rules `left`, which no tuple accepts, are compared
    /// directly.
    fn consider(&mut self, sample: &Sample, left: &[usize], tuples: usize) {
        let rules = left.len() * sample.scale;
        if rules > MANY_PLANNED {
            return;
        }
        let masks = left.iter().map(|rule| &sample.masks[sample.rules[*rule].0]);
        let mask = masks.fold(Columns::default(), |all, mask| all.or(mask));
        if rules > planned(&mask) {
            return;
        }
        // If there are irregular rules, more of them will arrive before the next plan.
        let direct = if rules > 0 {
            1 + weight(rules.max(IRREGULAR), &mask)
        } else {
            0
        };
        let cost = tuples + direct;
        if self.0.is_none_or(|(least, _)| cost < least) {
            self.0 = Some((cost, tuples));
        }
    }
}

/// Returns a tuple of this mask for those rules in `left` that it serves, with at most `collisions_max` equal hashes,
/// and removes them from `left`.
fn take(
    sample: &Sample,
    Candidate { mask, fits }: &Candidate,
    collisions_max: usize,
    left: &mut Vec<usize>,
    counter: &mut Counter,
) -> TupleSpec {
    let mut widest = *mask;
    let mut merged = false;
    let mut taken = Vec::new();
    counter.clear();
    left.retain(|rule| {
        let (number, key) = &sample.rules[*rule];
        let held = &sample.masks[*number];
        if !fits[*number] || counter.count(mask, key) >= collisions_max {
            return true;
        }
        merged |= held != mask;
        widest
            .0
            .iter_mut()
            .zip(&held.0)
            .for_each(|(wide, held)| *wide |= held);
        taken.push(*rule);
        false
    });
    TupleSpec {
        mask: *mask,
        widest,
        merged,
        windows: windows(sample, mask, &widest, &taken),
        classes: Classes::new(sample.priorities.0, sample.priorities.1),
    }
}

/// Returns candidate masks for the rules in `left`.
fn candidates(sample: &Sample, left: &[usize]) -> Vec<Candidate> {
    let fits = |mask: &Columns| sample.masks.iter().map(|held| mask.is_subset_of(held)).collect();
    let family = family(sample, left).into_iter();
    let candidates = family.map(|mask| Candidate {
        fits: fits(&mask),
        mask,
    });
    // A candidate that is a submask of the only mask that it serves merges nothing, and distinguishes rules less well
    // than that mask.
    candidates
        .filter(|Candidate { mask, fits }| {
            let mut served = sample.masks.iter().zip(fits).filter(|(_, fits)| **fits);
            served.next().is_some_and(|(held, _)| held == mask) || served.next().is_some()
        })
        .collect()
}

/// A candidate mask of a tuple.
struct Candidate {
    mask: Columns,
    /// For each mask of the sample, true if its rules may be in such a tuple.
    fits: Vec<bool>,
}

/// Returns the candidate that serves the rules in `left` best, if any serves one.
fn best<'a>(
    sample: &Sample,
    family: &'a [Candidate],
    left: &[usize],
    collisions_max: usize,
    counter: &mut Counter,
) -> Option<&'a Candidate> {
    let some: Vec<usize> = left.iter().copied().step_by(left.len().div_ceil(ROUGH)).collect();
    let mut order: Vec<(usize, &Candidate)> = family
        .iter()
        .map(|candidate| (score(sample, &some, candidate, 1, counter), candidate))
        .filter(|(score, _)| *score > 0)
        .collect();
    order.sort_by_key(|(score, candidate)| core::cmp::Reverse((*score, bits(&candidate.mask))));
    order.truncate(FINALISTS);
    let scores = order
        .into_iter()
        .map(|(_, candidate)| (score(sample, left, candidate, collisions_max, counter), candidate));
    // Among candidates that are about equal, the first one wins, because it has most bits.
    let best = scores.reduce(|best, other| if other.0 * 64 > best.0 * 65 { other } else { best });
    best.filter(|(score, _)| *score > 0)
        .map(|(_, candidate)| candidate)
}

/// Returns the score of a mask for some rules, with at most `collisions_max` equal hashes. A rule with a unique hash
/// has the highest value, and a rule beyond the limit has none.
fn score(
    sample: &Sample,
    rules: &[usize],
    candidate: &Candidate,
    collisions_max: usize,
    counter: &mut Counter,
) -> usize {
    counter.clear();
    let served = rules
        .iter()
        .map(|rule| &sample.rules[*rule])
        .filter(|(number, _)| candidate.fits[*number]);
    served
        .map(|(_, key)| collisions_max.saturating_sub(counter.count(&candidate.mask, key)))
        .sum()
}

/// The number of pairs of rules that are examined to choose windows.
const PAIRS: usize = 2048;

/// Returns the windows, as column and shift: the eight bits that distinguish most pairs of rules with equal hashes,
/// the eight that distinguish most of the remaining pairs, and so on.
fn windows(sample: &Sample, mask: &Columns, widest: &Columns, rules: &[usize]) -> [(usize, u32); WINDOWS] {
    let mut sorted: Vec<(Columns, usize)> = rules
        .iter()
        .map(|rule| (sample.rules[*rule].1.and(mask), *rule))
        .collect();
    sorted.sort();
    // Pairs of the key of one rule, which stands for a packet, and another rule with the same hash.
    let mut pairs = Vec::new();
    for together in sorted.chunk_by(|a, b| a.0 == b.0) {
        for (_, one) in together {
            let others = together.iter().filter(|(_, other)| other != one);
            pairs.extend(others.map(|(_, other)| (*one, *other)));
        }
    }
    let step = pairs.len().div_ceil(PAIRS).max(1);
    let mut pairs: Vec<(usize, usize)> = pairs.into_iter().step_by(step).collect();
    // The bits that are neither hashed by the tuple nor in a window.
    let mut fresh = *widest;
    fresh
        .0
        .iter_mut()
        .zip(&mask.0)
        .for_each(|(fresh, hashed)| *fresh &= !hashed);
    [(); WINDOWS].map(|()| window(sample, &mut fresh, rules, &mut pairs))
}

/// Returns the window that distinguishes most pairs or, if there is a tie, has most fresh bits of the rules' masks.
/// The function removes these pairs from `pairs`, and the bits from `fresh`.
fn window(
    sample: &Sample,
    fresh: &mut Columns,
    rules: &[usize],
    pairs: &mut Vec<(usize, usize)>,
) -> (usize, u32) {
    let alike = |(one, other): &(usize, usize), column: usize, shift: u32| {
        let (number, key) = &sample.rules[*other];
        let difference = key.0[column] ^ sample.rules[*one].1.0[column];
        (difference & sample.masks[*number].0[column]) >> shift & 0xff == 0
    };
    let mut masks = vec![0usize; sample.masks.len()];
    rules.iter().for_each(|rule| masks[sample.rules[*rule].0] += 1);
    let bits = |column: usize, shift: u32| -> usize {
        let held = sample.masks.iter().zip(&masks).filter(|(_, rules)| **rules > 0);
        held.map(|(mask, rules)| {
            let bits = (mask.0[column] & fresh.0[column]) >> shift & 0xff;
            bits.count_ones() as usize * rules
        })
        .sum()
    };
    let all = fresh
        .occupied()
        .flat_map(|column| (0..=56).step_by(4).map(move |shift| (column, shift)));
    let best = all.min_by_key(|(column, shift)| {
        let alike = pairs.iter().filter(|pair| alike(pair, *column, *shift)).count();
        (alike, core::cmp::Reverse(bits(*column, *shift)))
    });
    let (column, shift) = best.unwrap_or((0, 0));
    pairs.retain(|pair| alike(pair, column, shift));
    fresh.0[column] &= !(0xff << shift);
    (column, shift)
}

fn bits(mask: &Columns) -> u32 {
    mask.0.iter().map(|word| word.count_ones()).sum()
}

/// Returns the masks to examine for the rules in `left`: those of the rules, the intersections of pairs of them, and
/// the same masks with IPv4 addresses shortened to a few lengths.
fn family(sample: &Sample, left: &[usize]) -> Vec<Columns> {
    let mut rules = vec![0usize; sample.masks.len()];
    left.iter().for_each(|rule| rules[sample.rules[*rule].0] += 1);
    let mut frequent: Vec<usize> = (0..rules.len()).filter(|number| rules[*number] > 0).collect();
    frequent.sort_by_key(|number| (core::cmp::Reverse(rules[*number]), *number));
    frequent.truncate(MASKS);
    let own: Vec<Columns> = frequent.iter().map(|number| sample.masks[*number]).collect();
    let mut family = own.clone();
    for (at, one) in own.iter().enumerate().take(COMBINED) {
        family.extend(own[..at].iter().map(|other| one.and(other)));
    }
    let mut cut = Vec::new();
    let (addresses, _) = LpmField::Ipv4Src.columns();
    for mask in &family {
        let (source, destination) = (mask.0[addresses] >> 32, mask.0[addresses] & 0xffff_ffff);
        for from in IPV4_LENGTHS
            .map(prefix)
            .into_iter()
            .filter(|from| from & !source == 0)
        {
            for to in IPV4_LENGTHS
                .map(prefix)
                .into_iter()
                .filter(|to| to & !destination == 0)
            {
                let mut mask = *mask;
                mask.0[addresses] = from << 32 | to;
                cut.push(mask);
            }
        }
    }
    family.extend(cut);
    family.retain(|mask| bits(mask) > 0);
    family.sort();
    family.dedup();
    if family.len() > CANDIDATES {
        let served = |mask: &Columns| -> usize {
            let fitting = frequent
                .iter()
                .zip(&own)
                .filter(|(_, held)| mask.is_subset_of(held));
            fitting.map(|(number, _)| rules[*number]).sum()
        };
        family.sort_by_cached_key(|mask| core::cmp::Reverse(served(mask) * bits(mask) as usize));
        family.truncate(CANDIDATES);
    }
    family
}

/// Returns the mask of a prefix of `len` bits, in the low 32 bits.
fn prefix(len: u32) -> u64 {
    (0xffff_ffff_0000_0000 >> len) & 0xffff_ffff
}

/// A counter of keys that agree in the bits of a mask; it rarely counts two different keys as one.
struct Counter {
    counts: Vec<u16>,
    columns: Vec<usize>,
}

impl Counter {
    fn new(sample: &Sample) -> Counter {
        let mut all = Columns::default();
        for mask in &sample.masks {
            all.0.iter_mut().zip(&mask.0).for_each(|(all, mask)| *all |= mask);
        }
        Counter {
            counts: vec![0; (sample.rules.len() * 8).next_power_of_two().max(256)],
            columns: all.occupied().collect(),
        }
    }

    fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Counts a key, and returns the number of equal keys before it.
    fn count(&mut self, mask: &Columns, key: &Columns) -> usize {
        let mut hash = 0u64;
        for column in &self.columns {
            hash = (hash ^ (key.0[*column] & mask.0[*column])).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        let at = (hash >> 20) as usize & (self.counts.len() - 1);
        let before = self.counts[at];
        self.counts[at] = before.saturating_add(1);
        usize::from(before)
    }
}
