//! The property that matters: whatever the rules, the keys and the updates, [`Adaptive`] answers with a
//! rule of the same priority as the oracle, [`LinearScan`].

use std::collections::HashMap;

use millrace_types::Priority;
use proptest::prelude::*;

use super::hash::split_mix;
use super::{Adaptive, BURST, Classifier, LinearScan, Slot};
use crate::field::Field;
use crate::key::{FlowKey, FlowMask, Rule};

/// Small random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        (split_mix(&mut self.0) >> 16) % sides
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.roll(items.len() as u64) as usize]
    }
}

/// What rules and packets look like: few values, so that packets hit and rules meet.
struct World {
    fields: Vec<Field>,
    /// How many different values a field has.
    values: u64,
    /// Whether addresses have prefixes, and other maskable fields masks.
    partial: bool,
    priorities: u64,
}

impl World {
    fn random(dice: &mut Dice) -> World {
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
        }
    }

    fn value(&self, field: Field, dice: &mut Dice) -> u128 {
        let number = u128::from(dice.roll(self.values));
        // Spread over the width of the field, high bits first for addresses.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        if self.values < 10 && dice.roll(2) == 0 {
            number & field.max_value()
        } else {
            (spread ^ spread >> 71) & field.max_value()
        }
    }

    fn rule(&self, dice: &mut Dice) -> Rule {
        let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
        let all = dice.roll(3) > 0;
        for field in &self.fields {
            if !all && dice.roll(3) == 0 {
                continue;
            }
            let mut bits = field.max_value();
            if self.partial && field.is_maskable() {
                bits = bits << dice.roll(1 + u64::from(field.bits().min(40))) & field.max_value();
            }
            if bits != 0 {
                mask.0.put(*field, bits);
                key.put(*field, self.value(*field, dice));
            }
        }
        Rule {
            key: key.masked(&mask),
            mask,
            priority: Priority(dice.roll(self.priorities) as u16),
        }
    }

    fn packet(&self, rules: &[Rule], dice: &mut Dice) -> FlowKey {
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
            key.words_mut()[dice.roll(18) as usize] ^= 1 << dice.roll(64);
        }
        key
    }
}

/// Both classifiers, side by side.
struct Pair {
    fast: Adaptive,
    slow: LinearScan,
    rules: HashMap<Slot, Rule>,
    next: u32,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        Pair {
            fast: Adaptive::new(seed),
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

    fn check(&self, world: &World, dice: &mut Dice) {
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_adaptive_classifier_equals_the_linear_scan_through_any_updates(seed: u64) {
        let mut dice = Dice(seed);
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
