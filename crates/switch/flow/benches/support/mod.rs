//! Rules and traffic for the benches, generated from a seed.
//!
//! The ACL and firewall sets resemble those of ClassBench (Taylor and Turner, "ClassBench: A Packet Classification
//! Benchmark", 2007): prefixes that nest and cluster, a protocol, ports that are either one value or any, and
//! priorities by position. Port ranges of ClassBench become exact values, because an OpenFlow match has no ranges.

#![allow(unreachable_pub, dead_code, clippy::should_implement_trait)]

pub mod traffic;

use millrace_flow::classify::Slot;
use millrace_flow::{Field, FlowKey, FlowMask, Rule};
use millrace_types::Priority;

/// A generator of random numbers from a seed (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        millrace_types::split_mix::next(&mut self.0)
    }

    pub fn below(&mut self, sides: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(sides)) >> 64) as u64
    }

    /// Returns a random index; each has the probability of its weight.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }
}

/// A rule set, and packets that match its rules.
pub struct Case {
    pub name: String,
    pub rules: Vec<Rule>,
    pub keys: Vec<FlowKey>,
}

/// Returns a rule from `(field, value, mask length in bits)`.
pub fn rule(fields: &[(Field, u128, u32)], priority: u16) -> Rule {
    let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
    for (field, value, bits) in fields.iter().filter(|(_, _, bits)| *bits > 0) {
        let held = field.max_value() << (field.bits() - bits) & field.max_value();
        mask.0.put(*field, held);
        key.put(*field, value & held);
    }
    Rule {
        key,
        mask,
        priority: Priority(priority),
    }
}

/// Returns a TCP or UDP packet over IPv4.
pub fn packet(proto: u64, source: u64, destination: u64, ports: (u64, u64)) -> FlowKey {
    let mut key = FlowKey::default();
    key.put(Field::InPort, 1);
    key.put(Field::EthDst, 0x0200_0000_0001);
    key.put(Field::EthSrc, 0x0200_0000_0002);
    key.put(Field::EthType, 0x800);
    key.put(Field::IpProto, proto.into());
    key.put(Field::Ipv4Src, source.into());
    key.put(Field::Ipv4Dst, destination.into());
    key.put(Field::TcpSrc, ports.0.into());
    key.put(Field::TcpDst, ports.1.into());
    key
}

fn five_tuple(key: &FlowKey, prefixes: (u32, u32), ports: (u32, u32), proto: u32, priority: u16) -> Rule {
    use Field::*;
    let of = |field, bits| (field, key.field(field), bits);
    rule(
        &[
            of(EthType, 16),
            of(IpProto, proto),
            of(Ipv4Src, prefixes.0),
            of(Ipv4Dst, prefixes.1),
            of(TcpSrc, ports.0),
            of(TcpDst, ports.1),
        ],
        priority,
    )
}

/// Returns a packet with random addresses and ports.
pub fn random_packet(dice: &mut Rng) -> FlowKey {
    packet(
        [6, 17][dice.below(2) as usize],
        dice.below(1 << 32),
        dice.below(1 << 32),
        (dice.below(1 << 16), dice.below(1 << 16)),
    )
}

/// Returns one rule that matches the ingress port.
pub fn one() -> Case {
    Case {
        name: "one".into(),
        rules: vec![rule(&[(Field::InPort, 1, 32)], 1)],
        keys: vec![packet(6, 1, 2, (3, 4)); 4096],
    }
}

/// Returns `count` exact 5-tuples.
pub fn exact(count: usize, dice: &mut Rng) -> Case {
    let keys: Vec<FlowKey> = (0..count).map(|_| random_packet(dice)).collect();
    let rules = keys
        .iter()
        .map(|key| five_tuple(key, (32, 32), (16, 16), 8, 100))
        .collect();
    Case {
        name: format!("exact-{count}"),
        rules,
        keys: shuffled(keys, dice),
    }
}

/// Returns `count` rules with 32 masks: eight pairs of prefix lengths, each with either, both or none of the ports.
/// Each mask has its own priority.
pub fn masks32(count: usize, dice: &mut Rng) -> Case {
    const PREFIXES: [(u32, u32); 8] = [
        (32, 32),
        (32, 24),
        (24, 32),
        (24, 24),
        (20, 28),
        (28, 20),
        (16, 24),
        (24, 16),
    ];
    let (mut rules, mut keys) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mask = number % 32;
        let ports = ((mask as u32 & 1) * 16, (mask as u32 >> 1 & 1) * 16);
        let key = random_packet(dice);
        rules.push(five_tuple(&key, PREFIXES[mask / 4], ports, 8, 1000 - mask as u16));
        keys.push(key);
    }
    Case {
        name: format!("masks32-{count}"),
        rules,
        keys: shuffled(keys, dice),
    }
}

/// The types of [`classbench`] rule sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Access list: mostly long prefixes on both sides, the protocol, the destination port.
    Acl,
    /// Firewall: many wildcards, short prefixes, any ports.
    Firewall,
    /// IP chain: between access list and firewall.
    IpChain,
}

/// Returns `count` rules that resemble those of ClassBench.
pub fn classbench(shape: Shape, count: usize, dice: &mut Rng) -> Case {
    // Prefixes derive from a few hundred sites, so that they share leading bits and nest.
    let sites: Vec<u64> = (0..200).map(|_| dice.below(1 << 32)).collect();
    let (lengths, none): (&[u64; 33], [u64; 2]) = match shape {
        Shape::Acl => (&ACL_LENGTHS, [3, 1]),
        Shape::Firewall => (&FIREWALL_LENGTHS, [35, 30]),
        Shape::IpChain => (&CHAIN_LENGTHS, [15, 10]),
    };
    let mut seen = std::collections::HashSet::new();
    let (mut rules, mut keys) = (Vec::new(), Vec::new());
    while rules.len() < count {
        let mut side = |none: u64| {
            let site = sites[dice.below(200) as usize];
            let keep = 8 + dice.below(17);
            let address = site & !(0xffff_ffff >> keep) | dice.below(1 << 32) & (0xffff_ffff >> keep);
            let len = if dice.below(100) < none {
                0
            } else {
                dice.weighted(lengths) as u32
            };
            (address, len)
        };
        let (source, destination) = (side(none[0]), side(none[1]));
        let proto = [6, 17, 1, 6][dice.weighted(&[60, 25, 5, 10])];
        let has_proto = dice.below(100) < if shape == Shape::Firewall { 85 } else { 95 };
        let well_known = [
            80, 443, 53, 22, 25, 123, 161, 1521, 3306, 8080, 110, 143, 993, 995, 389, 445,
        ];
        let mut port = |often: u64| match dice.below(100) {
            roll if roll >= often => (dice.below(1 << 16), 0),
            roll if roll % 3 == 0 => (dice.below(1 << 16), 16),
            _ => (well_known[dice.below(16) as usize], 16),
        };
        let (from, to) = match shape {
            Shape::Acl => (port(2), port(75)),
            Shape::Firewall => (port(20), port(45)),
            Shape::IpChain => (port(10), port(50)),
        };
        let (from, to) = if has_proto {
            (from, to)
        } else {
            ((from.0, 0), (to.0, 0))
        };
        let key = packet(proto, source.0, destination.0, (from.0, to.0));
        // Broad rules have low priorities, with some variation; an early one would hide the rest.
        let looked_at = source.1 + destination.1 + from.1 + to.1;
        let priority = (500 * looked_at + dice.below(8000) as u32) as u16;
        let rule = five_tuple(
            &key,
            (source.1, destination.1),
            (from.1, to.1),
            if has_proto { 8 } else { 0 },
            priority,
        );
        if seen.insert((rule.key, rule.mask)) {
            rules.push(rule);
            // Bits that the rule does not compare are random, as in ClassBench's traces.
            keys.push(key);
        }
    }
    Case {
        name: format!("{shape:?}-{count}").to_lowercase(),
        rules,
        keys: shuffled(keys, dice),
    }
}

/// Returns the same rules in the order of a configuration file: the highest priority, which is the most specific rule,
/// first.
pub fn as_written(mut case: Case) -> Case {
    case.name += "-as-written";
    case.rules.sort_by_key(|rule| core::cmp::Reverse(rule.priority));
    case
}

/// Returns `count` IPv4 routes with the prefix lengths of a default-free table; longer prefixes have higher
/// priorities.
pub fn routes(count: usize, dice: &mut Rng) -> Case {
    let (mut rules, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let key = random_packet(dice);
        let len = [24, 22, 23, 21, 20, 16, 19, 18, 12, 8, 32][dice.weighted(&ROUTE_WEIGHTS)];
        rules.push(five_tuple(&key, (0, len), (0, 0), 0, len as u16));
        keys.push(key);
    }
    Case {
        name: format!("routes-{count}"),
        rules,
        keys: shuffled(keys, dice),
    }
}

/// Returns `count` IPv6 routes, /32 to /64.
pub fn routes6(count: usize, dice: &mut Rng) -> Case {
    let (mut rules, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let address =
            0x2001_0000u128 << 96 | u128::from(dice.below(1 << 28)) << 92 | u128::from(dice.next()) << 20;
        let len = [48, 32, 40, 44, 64, 56, 36][dice.weighted(&[45, 15, 10, 10, 10, 5, 5])];
        rules.push(rule(
            &[(Field::EthType, 0x86dd, 16), (Field::Ipv6Dst, address, len)],
            len as u16,
        ));
        let mut key = FlowKey::default();
        key.put(Field::EthType, 0x86dd);
        key.put(Field::Ipv6Dst, address);
        keys.push(key);
    }
    Case {
        name: format!("routes6-{count}"),
        rules,
        keys: shuffled(keys, dice),
    }
}

const ROUTE_WEIGHTS: [u64; 11] = [58, 11, 8, 5, 5, 2, 3, 2, 1, 1, 4];

/// The relative frequency of each prefix length.
const ACL_LENGTHS: [u64; 33] = lengths(&[
    (16, 4),
    (20, 3),
    (21, 4),
    (22, 5),
    (23, 6),
    (24, 18),
    (25, 4),
    (26, 5),
    (27, 6),
    (28, 8),
    (29, 6),
    (30, 6),
    (31, 2),
    (32, 60),
]);
const FIREWALL_LENGTHS: [u64; 33] = lengths(&[
    (8, 4),
    (12, 3),
    (14, 3),
    (16, 14),
    (18, 4),
    (20, 5),
    (21, 4),
    (22, 6),
    (23, 6),
    (24, 20),
    (26, 4),
    (27, 4),
    (28, 4),
    (30, 4),
    (32, 30),
]);
const CHAIN_LENGTHS: [u64; 33] = lengths(&[
    (8, 2),
    (12, 2),
    (16, 10),
    (18, 3),
    (19, 3),
    (20, 4),
    (22, 4),
    (23, 4),
    (24, 20),
    (25, 3),
    (26, 5),
    (27, 4),
    (28, 5),
    (29, 4),
    (30, 4),
    (32, 40),
]);

const fn lengths(some: &[(usize, u64)]) -> [u64; 33] {
    let mut all = [0; 33];
    let mut at = 0;
    while at < some.len() {
        all[some[at].0] = some[at].1;
        at += 1;
    }
    all
}

/// Returns the items in random order (Fisher and Yates).
pub fn shuffled<T>(mut items: Vec<T>, dice: &mut Rng) -> Vec<T> {
    for last in (1..items.len()).rev() {
        items.swap(last, dice.below(last as u64 + 1) as usize);
    }
    items
}

/// Returns the slot of the rule with this index.
pub fn slot(index: usize) -> Slot {
    Slot::new(index as u32)
}
