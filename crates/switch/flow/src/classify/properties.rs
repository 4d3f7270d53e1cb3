//! The main property: for any rules, keys and updates, [`Adaptive`] returns a rule of the same priority as the oracle,
//! [`LinearScan`].

use std::collections::HashMap;

use millrace_types::Priority;
use proptest::prelude::*;

use super::{Adaptive, BURST, Classifier, Kind, LinearScan, Simd, Slot};
use crate::field::Field;
use crate::key::{FlowKey, FlowMask, Rule};
use millrace_types::split_mix::next as split_mix;

/// Workers share a classifier, so it must be `Sync`.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Adaptive>();
};

/// A generator of small random numbers from a seed.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        (split_mix(&mut self.0) >> 16) % sides
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.roll(items.len() as u64) as usize]
    }
}

/// The shape of rules and packets: fields have few values, so that packets hit and rules overlap.
struct World {
    fields: Vec<Field>,
    /// The number of different values of a field.
    values: u64,
    /// True if addresses have prefixes, and other maskable fields have masks.
    partial: bool,
    priorities: u64,
    /// True if the rule with more bits in its mask has the higher priority, as in a routing table.
    longest: bool,
}

impl World {
    fn random(dice: &mut Rng) -> World {
        const SETS: [&[Field]; 6] = {
            use Field::*;
            [
                &[EthType, IpProto, Ipv4Src, Ipv4Dst, TcpSrc, TcpDst],
                &[EthType, Ipv4Dst],
                &[EthType, Ipv6Dst],
                &[InPort, EthDst, EthSrc, VlanVid],
                &[
                    InPort, Metadata, EthType, Ipv4Src, Ipv6Dst, MplsLabel, ArpOp, Ipv6Exthdr,
                ],
                &Field::ALL,
            ]
        };
        World {
            fields: dice.pick(&SETS).to_vec(),
            values: [2, 6, 40, 3000][dice.roll(4) as usize],
            partial: dice.roll(3) > 0,
            priorities: [1, 3, 50, 65536][dice.roll(4) as usize],
            longest: dice.roll(3) == 0,
        }
    }

    fn value(&self, field: Field, dice: &mut Rng) -> u128 {
        let number = u128::from(dice.roll(self.values));
        // The values are spread over the width of the field, and over the high bits first for addresses.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        if self.values < 10 && dice.roll(2) == 0 {
            number & field.max_value()
        } else {
            (spread ^ spread >> 71) & field.max_value()
        }
    }

    fn rule(&self, dice: &mut Rng) -> Rule {
        let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
        let all = self.longest || dice.roll(3) > 0;
        for field in &self.fields {
            if !all && dice.roll(3) == 0 {
                continue;
            }
            let mut bits = field.max_value();
            if self.partial && field.is_maskable() {
                let free = if dice.roll(2) == 0 { 40 } else { 127 };
                bits = bits << dice.roll(1 + u64::from(field.bits().min(free))) & field.max_value();
            }
            if bits != 0 {
                mask.0.put(*field, bits);
                key.put(*field, self.value(*field, dice));
            }
        }
        let bits: u32 = mask.words().iter().map(|word| word.count_ones()).sum();
        let priority = match self.longest && dice.roll(100) > 0 {
            true => bits as u16,
            false => dice.roll(self.priorities) as u16,
        };
        Rule {
            key: key.masked(&mask),
            mask,
            priority: Priority(priority),
        }
    }

    fn packet(&self, rules: &[Rule], dice: &mut Rng) -> FlowKey {
        let mut key = FlowKey::default();
        for field in &self.fields {
            key.put(*field, self.value(*field, dice));
        }
        if let (false, true) = (rules.is_empty(), dice.roll(4) > 0) {
            let rule = dice.pick(rules);
            let (words, mask) = (*rule.key.words(), *rule.mask.words());
            for (word, held) in key.words_mut().iter_mut().enumerate() {
                *held = *held & !mask[word] | words[word];
            }
        }
        if dice.roll(8) == 0 {
            key.words_mut()[dice.roll(FlowKey::WORDS as u64) as usize] ^= 1 << dice.roll(64);
        }
        key
    }
}

/// A classifier and the oracle with the same rules.
struct Pair {
    fast: Adaptive,
    slow: LinearScan,
    rules: HashMap<Slot, Rule>,
    next: u32,
}

/// Returns a set of vector instructions: the one that `MILLRACE_SIMD` names, or one of those of this processor.
fn some_simd(seed: u64) -> Simd {
    let simd: Vec<Simd> = Simd::available().collect();
    match std::env::var("MILLRACE_SIMD") {
        Ok(name) => *simd.iter().find(|simd| simd.name() == name).unwrap(),
        Err(_) => simd[seed as usize % simd.len()],
    }
}

impl Pair {
    fn new(seed: u64) -> Pair {
        Pair {
            fast: Adaptive::with_simd(seed, some_simd(seed)),
            slow: LinearScan::new(),
            rules: HashMap::new(),
            next: 0,
        }
    }

    fn insert(&mut self, rule: &Rule) {
        let slot = Slot::new(self.next);
        self.next += 1;
        let old = self.slow.insert(rule, slot);
        assert_eq!(self.fast.insert(rule, slot), old, "insert {rule:?}");
        if let Some(old) = old {
            self.rules.remove(&old);
        }
        self.rules.insert(slot, rule.clone());
    }

    fn remove(&mut self, rule: &Rule) {
        let old = self.slow.remove(rule);
        assert_eq!(self.fast.remove(rule), old, "remove {rule:?}");
        if let Some(old) = old {
            self.rules.remove(&old);
        }
    }

    fn check(&self, world: &World, dice: &mut Rng) {
        let rules: Vec<Rule> = self.rules.values().take(200).cloned().collect();
        let keys: Vec<FlowKey> = (0..200).map(|_| world.packet(&rules, dice)).collect();
        let len = 1 + dice.roll(BURST as u64) as usize;
        let select: Vec<u8> = (0..len).map(|_| dice.roll(200) as u8).collect();
        self.check_burst(&self.fast, &keys, &select);
        assert_eq!(self.fast.len(), self.slow.len());
        let mut mask = FlowMask::default();
        self.slow.iter().for_each(|(rule, _)| mask.merge(&rule.mask));
        assert_eq!(self.fast.mask(), mask);
    }

    fn check_burst(&self, fast: &Adaptive, keys: &[FlowKey], select: &[u8]) {
        let mut expected = vec![None; select.len()];
        self.slow.lookup_burst(keys, select, &mut expected);
        let mut verdicts = vec![Some(Slot::new(9)); select.len()];
        fast.lookup_burst(keys, select, &mut verdicts);
        for ((expected, verdict), packet) in expected.iter().zip(&verdicts).zip(select) {
            let key = &keys[usize::from(*packet)];
            let rule = |slot: &Option<Slot>| slot.map(|slot| &self.rules[&slot]);
            let (right, given) = (rule(expected), rule(verdict));
            assert_eq!(
                right.map(|rule| rule.priority),
                given.map(|rule| rule.priority),
                "{:?} for {key:?}: {right:?} but {given:?}",
                self.fast.kind()
            );
            assert!(given.is_none_or(|rule| rule.matches(key)));
        }
    }
}

/// Returns classifiers with random rules of one shape.
fn filled(world: &World, count: usize, seed: u64) -> (Pair, Rng) {
    let (mut pair, mut dice) = (Pair::new(seed), Rng(seed));
    while pair.fast.len() < count {
        let rule = world.rule(&mut dice);
        pair.insert(&rule);
    }
    (pair, dice)
}

fn world(fields: &[Field], partial: bool, longest: bool) -> World {
    World {
        fields: fields.to_vec(),
        values: 1 << 40,
        partial,
        priorities: 100,
        longest,
    }
}

/// Returns a route, the longest prefix with the highest priority.
fn route(address: u128, len: u16) -> Rule {
    let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
    mask.0.put(Field::Ipv6Dst, u128::MAX << (128 - len));
    key.put(Field::Ipv6Dst, address);
    Rule {
        key: key.masked(&mask),
        mask,
        priority: Priority(len),
    }
}

#[test]
fn a_longer_route_is_found_though_none_looked_at_the_second_half_of_addresses() {
    let (mut pair, mut dice) = (Pair::new(5), Rng(5));
    for number in 0..2000_u128 {
        let address = 0x2001 << 112 | u128::from(dice.roll(1 << 48)) << 64 | number;
        pair.insert(&route(address, 32 + 4 * dice.roll(9) as u16));
    }
    assert_eq!(pair.fast.kind().to_string(), "lpm(ipv6_dst)");
    let address = 0x2001_0db8 << 96 | 7;
    pair.insert(&route(address, 48));
    pair.insert(&route(address, 128));
    let mut keys = [FlowKey::default(), FlowKey::default()];
    keys[0].put(Field::Ipv6Dst, address);
    keys[1].put(Field::Ipv6Dst, address ^ 1);
    pair.check_burst(&pair.fast, &keys, &[0, 1]);
    pair.remove(&route(address, 128));
    pair.check_burst(&pair.fast, &keys, &[0, 1]);
}

#[test]
fn the_structure_follows_the_rules() {
    use Field::*;
    let exact = world(&[InPort, EthDst], false, true);
    let (mut pair, dice) = filled(&exact, 3, 1);
    assert_eq!(pair.fast.kind(), Kind::Direct { rules: 3 });
    let mut rules: Vec<Rule> = pair.rules.values().cloned().collect();
    for _ in 0..500 {
        rules.push(exact.rule(&mut Rng(dice.0 + rules.len() as u64)));
        pair.insert(&rules[rules.len() - 1]);
    }
    assert_eq!(pair.fast.kind(), Kind::ExactHash);
    rules.iter().skip(2).for_each(|rule| pair.remove(rule));
    assert_eq!(pair.fast.kind().to_string(), "direct(2)");

    // One rule of another mask before the others changes nothing: it is compared directly.
    let source = world(&[EthSrc], false, true);
    let (mut pair, mut dice) = filled(&source, 1, 4);
    for _ in 0..500 {
        pair.insert(&exact.rule(&mut dice));
    }
    assert_eq!(pair.fast.kind().to_string(), "tuples(1, 1 direct)");

    // Many rules of another mask get a table of their own.
    for _ in 0..300 {
        pair.insert(&source.rule(&mut dice));
    }
    assert_eq!(pair.fast.kind().to_string(), "tuples(2)");

    // A submask of the only mask does not get a tuple: it would put rules together that the mask distinguishes.
    let port = world(&[InPort], false, true);
    let connections = world(&[EthType, IpProto, Ipv4Src, Ipv4Dst, TcpSrc, TcpDst], false, true);
    let (mut pair, mut dice) = filled(&port, 1, 7);
    for _ in 0..5000 {
        pair.insert(&connections.rule(&mut dice));
    }
    assert_eq!(pair.fast.kind().to_string(), "tuples(1, 1 direct)");

    let mut routes = world(&[Ipv4Dst], true, true);
    routes.values = 4000;
    let (pair, mut dice) = filled(&routes, 400, 2);
    let kind = pair.fast.kind().to_string();
    assert!(kind.contains("lpm"), "{kind}");
    (0..20).for_each(|_| pair.check(&routes, &mut dice));

    let mixed = world(&[EthType, IpProto, Ipv4Src, Ipv4Dst, TcpDst], true, false);
    let (pair, mut dice) = filled(&mixed, 600, 3);
    let kind = pair.fast.kind();
    assert!(
        matches!(
            kind,
            Kind::Tuples {
                tuples: 1..=16,
                merged: 1..,
                ..
            }
        ),
        "{kind}"
    );
    (0..20).for_each(|_| pair.check(&mixed, &mut dice));
}

/// Returns an access list of 3,000 rules, from the general to the specific, and the random generator that
/// made it.
fn access_list() -> (World, Vec<Rule>, Rng) {
    use Field::*;
    let list = world(&[EthType, IpProto, Ipv4Src, Ipv4Dst, TcpDst], true, true);
    let mut dice = Rng(5);
    let mut rules: Vec<Rule> = (0..3000).map(|_| list.rule(&mut dice)).collect();
    rules.sort_by_key(|rule| rule.priority);
    (list, rules, dice)
}

/// Access lists are written from the specific to the general, so that no rule resembles those of the last plan.
#[test]
fn rules_that_come_sorted_do_not_multiply_parts() {
    for general_first in [false, true] {
        let (list, mut rules, mut dice) = access_list();
        if !general_first {
            rules.reverse();
        }
        let mut pair = Pair::new(6);
        for (count, rule) in rules.iter().enumerate() {
            pair.insert(rule);
            if count % 100 == 99 {
                let kind = pair.fast.kind();
                let few = matches!(kind, Kind::Direct { .. } | Kind::Tuples { tuples: ..=16, .. });
                assert!(few, "after {count} rules: {kind}");
            }
        }
        (0..20).for_each(|_| pair.check(&list, &mut dice));
    }
}

/// The latest rules are in preliminary parts between plans, until the table is idle.
#[test]
fn a_table_at_rest_has_parts_for_the_rules_that_came_last() {
    let (list, mut rules, mut dice) = access_list();
    rules.reverse();
    let mut pair = Pair::new(6);
    let (mut written, mut planned) = (0, 0);
    for (count, rule) in rules.iter().enumerate() {
        pair.insert(rule);
        if count % 100 == 99 {
            let mut rested = pair.fast.clone();
            rested.optimize();
            written += pair.fast.weight();
            planned += rested.weight();
            assert_eq!(rested.len(), pair.fast.len());
        }
    }
    assert!(
        planned * 10 < written * 9,
        "{planned} tuples, of {written} before"
    );
    pair.fast.optimize();
    (0..20).for_each(|_| pair.check(&list, &mut dice));
}

/// The rules alone determine the number of entries and tuples that an attacker's traffic may reach, because lookups
/// write nothing. The distribution of rules over groups could still be uneven.
#[test]
fn rules_in_any_regular_pattern_spread_evenly() {
    use Field::*;
    type Pattern = fn(u64) -> [(Field, u128); 4];
    let patterns: [Pattern; 5] = [
        |n| {
            [
                (Ipv4Src, 0x0a00_0000 + u128::from(n)),
                (Ipv4Dst, 0x0a01_0000),
                (TcpSrc, 1),
                (TcpDst, 2),
            ]
        },
        |n| {
            [
                (Ipv4Src, u128::from(n) << 16),
                (Ipv4Dst, u128::from(n)),
                (TcpSrc, 7),
                (TcpDst, 80),
            ]
        },
        |n| {
            let port = u128::from(n & 0xffff);
            [
                (Ipv4Src, 1),
                (Ipv4Dst, 2 + u128::from(n >> 16)),
                (TcpSrc, port),
                (TcpDst, port),
            ]
        },
        |n| {
            let (high, low) = (u128::from(n >> 8), u128::from(n & 0xff));
            [
                (Ipv4Src, high << 24 | low),
                (Ipv4Dst, low << 24 | high),
                (TcpSrc, high),
                (TcpDst, low),
            ]
        },
        |n| {
            [
                (Ipv4Src, u128::from(n) << 20 & 0xffff_ffff),
                (Ipv4Dst, 0),
                (TcpSrc, u128::from(n)),
                (TcpDst, 0),
            ]
        },
    ];
    const COUNT: usize = 20_000;
    let with_seeds = patterns
        .iter()
        .flat_map(|pattern| (0..12).map(move |seed| (pattern, seed)));
    for (pattern, seed) in with_seeds {
        let mut table = Adaptive::new(seed);
        for n in 0..COUNT {
            let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
            for (field, value) in pattern(n as u64) {
                key.put(field, value & field.max_value());
                mask.0.put(field, field.max_value());
            }
            table.insert(
                &Rule {
                    key,
                    mask,
                    priority: Priority(1),
                },
                Slot::new(n as u32),
            );
        }
        // A random function moves less than one entry in ten to another group at this load.
        let overflowed = table.overflowed();
        assert!(
            overflowed * 10 < COUNT,
            "pattern {seed}: {overflowed} of {COUNT} not in their group"
        );
        assert!(table.heap_size() < COUNT * 80);
    }
}

#[test]
fn every_set_of_vector_instructions_gives_the_same_verdicts() {
    for seed in 0..12 {
        let mut dice = Rng(seed);
        let world = World::random(&mut dice);
        let rules: Vec<Rule> = (0..200).map(|_| world.rule(&mut dice)).collect();
        let keys: Vec<FlowKey> = (0..200).map(|_| world.packet(&rules, &mut dice)).collect();
        let select: Vec<u8> = (0..BURST).map(|_| dice.roll(200) as u8).collect();
        let verdicts = |simd: Simd| {
            let mut table = Adaptive::with_simd(seed, simd);
            for (index, rule) in rules.iter().enumerate() {
                table.insert(rule, Slot::new(index as u32));
            }
            let mut verdicts = vec![None; BURST];
            table.lookup_burst(&keys, &select, &mut verdicts);
            verdicts
        };
        let plain = verdicts(Simd::PLAIN);
        for simd in Simd::available() {
            assert_eq!(verdicts(simd), plain, "{}", simd.name());
        }
    }
}

#[test]
fn updates_one_by_one_equal_a_classifier_made_anew() {
    for seed in 0..6 {
        let mut dice = Rng(seed);
        let world = World::random(&mut dice);
        let mut pair = Pair::new(seed);
        for _ in 0..400 {
            let rule = world.rule(&mut dice);
            pair.insert(&rule);
            if dice.roll(3) == 0 {
                let held: Vec<Rule> = pair.rules.values().take(9).cloned().collect();
                let rule = dice.pick(&held).clone();
                pair.remove(&rule);
            }
        }
        let mut anew = Adaptive::new(seed + 1);
        for (rule, slot) in pair.slow.iter() {
            anew.insert(rule, slot);
        }
        let rules: Vec<Rule> = pair.rules.values().cloned().collect();
        let keys: Vec<FlowKey> = (0..256).map(|_| world.packet(&rules, &mut dice)).collect();
        let select: Vec<u8> = (0..=255).collect();
        for select in select.chunks(BURST) {
            pair.check_burst(&pair.fast, &keys, select);
            pair.check_burst(&anew, &keys, select);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(96),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_adaptive_classifier_equals_the_linear_scan_through_any_updates(seed: u64) {
        let mut dice = Rng(seed);
        let world = World::random(&mut dice);
        let mut pair = Pair::new(seed);
        let most = [4, 12, 60, 700][dice.roll(4) as usize];
        let mut history = Vec::new();
        for round in 0..6 {
            let grow = round % 2 == 0 || dice.roll(3) == 0;
            for _ in 0..1 + dice.roll(most) {
                if grow {
                    let rule = world.rule(&mut dice);
                    pair.insert(&rule);
                    history.push(rule);
                } else {
                    let rule = dice.pick(&history).clone();
                    pair.remove(&rule);
                }
            }
            if dice.roll(3) == 0 {
                pair.fast.optimize();
            }
            for _ in 0..3 {
                pair.check(&world, &mut dice);
            }
        }
        for rule in &history {
            pair.remove(rule);
        }
        prop_assert_eq!(pair.fast.len(), 0);
        pair.check(&world, &mut dice);
    }
}
