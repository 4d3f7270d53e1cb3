//! Sets of rules: exact 5-tuples, a few masks, and filter sets like those that ClassBench models.
//!
//! ClassBench (Taylor, Turner: INFOCOM 2005) describes real filter sets by their distributions: the prefix lengths
//! that occur together, the nesting of prefixes and their common leading bits, and the shares of wildcard, exact and
//! range ports. We have neither its seeds nor its code; the distributions below are ours, chosen so that the three
//! types differ as theirs do. Access lists (`acl`) name destinations and their services exactly. Firewalls (`fw`) have
//! many wildcards, also for sources and source ports, so that rules overlap. IP chains (`ipc`) are between the two.
//! Small port ranges are expanded; large ones become wildcards.

use std::collections::HashSet;

use millrace_types::Mac;

use super::header::{GRE, Header, ICMP, TCP, UDP, has_ports, transport};
use super::rule::{Oracle, PRIORITY, Prefix, Rule, Sink};
use crate::random::Random;

/// The type of a filter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// An access list.
    Acl,
    Firewall,
    /// IP chains.
    Chain,
}

/// Returns a locally administered address for number `n`.
pub(super) fn numbered_mac(n: usize) -> Mac {
    let n = n as u32;
    let [a, b, c, d] = n.to_be_bytes();
    Mac([0x06, 0, a, b, c, d])
}

/// Returns `len` different 5-tuple rules for TCP and UDP, and one packet for each rule. Each rule writes a
/// different MAC address.
pub(super) fn exact(len: usize, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let mut seen = HashSet::with_capacity(len);
    let (mut rules, mut headers) = (Vec::with_capacity(len), Vec::with_capacity(len));
    while rules.len() < len {
        let mut header = Header::of_client(random);
        header.proto = transport(random);
        if !seen.insert((header.src, header.dst, header.proto, header.sport, header.dport)) {
            continue;
        }
        rules.push(Rule {
            priority: PRIORITY,
            src: Prefix::new(header.src, 32),
            dst: Prefix::new(header.dst, 32),
            proto: Some(header.proto),
            sport: Some(header.sport),
            dport: Some(header.dport),
            sink: Sink::alternate(rules.len()),
            rewrite: Some(numbered_mac(rules.len())),
        });
        headers.push(header);
    }
    (rules, headers)
}

/// Returns `len` rules over `masks` different masks, and one packet for each rule. Each mask has a different
/// priority. A packet may match another rule with a higher priority.
pub(super) fn masked(len: usize, masks: usize, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let mut shapes = Vec::with_capacity(masks);
    while shapes.len() < masks {
        // The two addresses together have prefixes of at least 36 bits, so that rules rarely overlap.
        let shape = (
            16 + random.below(17) as u8,
            20 + random.below(13) as u8,
            random.percent(50),
            random.percent(50),
        );
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    let mut seen = HashSet::with_capacity(len);
    let (mut rules, mut headers) = (Vec::with_capacity(len), Vec::with_capacity(len));
    while rules.len() < len {
        let index = rules.len() % masks.max(1);
        let Some(&(src, dst, sport, dport)) = shapes.get(index) else {
            break;
        };
        let mut header = Header::udp(random.word32(), random.word32(), random.word16(), random.word16());
        header.proto = transport(random);
        let rule = Rule {
            priority: PRIORITY + (masks - index) as u16,
            src: Prefix::new(header.src, src),
            dst: Prefix::new(header.dst, dst),
            proto: Some(header.proto),
            sport: sport.then_some(header.sport),
            dport: dport.then_some(header.dport),
            sink: Sink::alternate(rules.len()),
            rewrite: Some(numbered_mac(rules.len() % 256)),
        };
        if seen.insert((
            rule.priority,
            rule.src,
            rule.dst,
            rule.proto,
            rule.sport,
            rule.dport,
        )) {
            rules.push(rule);
            headers.push(header);
        }
    }
    (rules, headers)
}

/// The percentages of prefix lengths in a table of Internet routes: three in five are /24.
const ROUTE_LENS: [(usize, u8); 12] = [
    (60, 24),
    (9, 22),
    (9, 23),
    (5, 20),
    (5, 21),
    (4, 19),
    (3, 16),
    (2, 18),
    (1, 17),
    (1, 15),
    (1, 14),
    (1, 12),
];
/// The number of next hops.
const NEXT_HOPS: usize = 64;

/// Returns `len` routes, with higher priorities for longer prefixes, and `flows` packets to their destinations.
pub(super) fn routes(len: usize, flows: usize, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let mut seen = HashSet::with_capacity(len);
    let mut rules = Vec::with_capacity(len);
    while rules.len() < len {
        let bits = random.weighted(&ROUTE_LENS).unwrap_or(24);
        let dst = Prefix::new(random.word32(), bits);
        let hop = random.below(NEXT_HOPS);
        if seen.insert(dst) {
            rules.push(Rule {
                priority: PRIORITY + u16::from(bits),
                src: Prefix::ANY,
                dst,
                proto: None,
                sport: None,
                dport: None,
                sink: Sink::alternate(hop),
                rewrite: Some(numbered_mac(hop)),
            });
        }
    }
    let headers = packets(&rules, flows, random);
    (rules, headers)
}

/// The greatest number of rules of a filter set: each has a priority of its own.
const RULES_MAX: usize = 60_000;

/// Returns a filter set of `len` rules in descending priority, and `flows` packets that match a rule. The
/// last rule matches all IPv4 packets. There are at most [`RULES_MAX`] rules.
pub(super) fn filter(
    kind: Filter,
    len: usize,
    flows: usize,
    random: &mut Random,
) -> (Vec<Rule>, Vec<Header>) {
    let len = len.clamp(1, RULES_MAX);
    let mut networks = Networks::default();
    // The last rule is always in the set.
    let mut seen = HashSet::from([(Prefix::ANY, Prefix::ANY, None, None, None)]);
    let mut rules: Vec<Rule> = Vec::with_capacity(len);
    while rules.len() + 1 < len {
        let shape = Draft::new(kind, &mut networks, random);
        // The expansion of a port range shares the action of its rule.
        let sink = Sink::alternate(random.below(2));
        for dport in shape.dports {
            let rule = Rule {
                priority: 0,
                src: shape.src,
                dst: shape.dst,
                proto: shape.proto,
                sport: shape.sport,
                dport,
                sink,
                rewrite: None,
            };
            if rules.len() + 1 < len && seen.insert((rule.src, rule.dst, rule.proto, rule.sport, rule.dport))
            {
                rules.push(rule);
            }
        }
    }
    rules.push(Rule {
        priority: 0,
        src: Prefix::ANY,
        dst: Prefix::ANY,
        proto: None,
        sport: None,
        dport: None,
        sink: Sink::First,
        rewrite: None,
    });
    // Specific rules come before general ones, with some disorder: lists are not perfect, but a rule that can never
    // match is not written.
    let last = rules.len() - 1;
    if let Some(written) = rules.get_mut(..last) {
        let mut keyed: Vec<(usize, Rule)> = written
            .iter()
            .map(|rule| (specificity(rule) * PER_BIT + random.below(DISORDER), rule.clone()))
            .collect();
        keyed.sort_by_key(|entry| std::cmp::Reverse(entry.0));
        for (slot, (_, rule)) in written.iter_mut().zip(keyed) {
            *slot = rule;
        }
    }
    for (index, rule) in rules.iter_mut().enumerate() {
        rule.priority = (len - index) as u16;
    }
    let headers = packets(&rules, flows, random);
    (rules, headers)
}

/// The order of a filter set: a rule may come before one that matches up to 16 bits more (`DISORDER / PER_BIT`).
const PER_BIT: usize = 4;
const DISORDER: usize = 64;

/// Returns the number of bits that a rule matches.
fn specificity(rule: &Rule) -> usize {
    let port = |port: Option<u16>| if port.is_some() { 16 } else { 0 };
    usize::from(rule.src.bits()) + usize::from(rule.dst.bits()) + port(rule.sport) + port(rule.dport)
}

/// Returns `flows` different packets, each made to match a rule chosen at random. Another rule with a higher priority
/// may match it, so that some rules match no packet.
fn packets(rules: &[Rule], flows: usize, random: &mut Random) -> Vec<Header> {
    let mut seen = HashSet::with_capacity(flows);
    let mut headers = Vec::with_capacity(flows);
    let mut attempts = 0;
    while headers.len() < flows && attempts < flows * 100 {
        attempts += 1;
        let Some(rule) = rules.get(random.below(rules.len())) else {
            break;
        };
        let header = packet_of(rule, random);
        if seen.insert(header) {
            headers.push(header);
        }
    }
    headers
}

/// Returns a packet made to match one of the rules, chosen at random.
pub(super) fn packet_for(rules: &[Rule], random: &mut Random) -> Header {
    match rules.get(random.below(rules.len())) {
        Some(rule) => packet_of(rule, random),
        None => Header::udp(0, 0, 0, 0),
    }
}

fn packet_of(rule: &Rule, random: &mut Random) -> Header {
    let mut header = Header::udp(
        rule.src.address(random.word32()),
        rule.dst.address(random.word32()),
        rule.sport.unwrap_or_else(|| random.word16()),
        rule.dport.unwrap_or_else(|| random.word16()),
    );
    header.proto = rule.proto.unwrap_or(transport(random));
    if !has_ports(header.proto) {
        // Such packets have no ports, neither on the wire nor in the search.
        (header.sport, header.dport) = (0, 0);
    }
    header
}

/// The percentage of prefixes inside of, or equal to, an earlier one that is not longer.
const REPEATED_PERCENT: usize = 70;
/// The bits in which a subnet or a host differs from the start of its network: hosts usually have addresses near it.
const HOST_BITS: u32 = 0x0007_0fff;
/// The number of prefixes that are remembered.
const NETWORKS_MAX: usize = 4096;

/// The prefixes that the set has so far. Real sets repeat networks and their subnets.
#[derive(Default)]
struct Networks(Vec<Prefix>);

impl Networks {
    /// Returns a prefix of `len` bits. In many cases, it is inside or equal to an earlier prefix.
    fn prefix(&mut self, len: u8, random: &mut Random) -> Prefix {
        let known = self.0.get(random.below(self.0.len())).copied();
        let prefix = match known {
            Some(known) if known.bits() <= len && random.percent(REPEATED_PERCENT) => {
                known.narrow(len, random.word32() & HOST_BITS)
            }
            _ => Prefix::new(random.word32(), len),
        };
        if prefix.bits() > 0 && self.0.len() < NETWORKS_MAX {
            self.0.push(prefix);
        }
        prefix
    }
}

/// A rule before the expansion of its port range.
struct Draft {
    src: Prefix,
    dst: Prefix,
    proto: Option<u8>,
    sport: Option<u16>,
    dports: Vec<Option<u16>>,
}

impl Draft {
    /// Returns a random rule with the distributions of a type of filter set.
    fn new(kind: Filter, networks: &mut Networks, random: &mut Random) -> Draft {
        let (src, dst): (Classes, Classes) = match kind {
            Filter::Acl => (
                &[(30, 0), (10, 16), (20, 24), (5, 28), (35, 32)],
                &[(2, 0), (8, 16), (25, 24), (15, 28), (50, 32)],
            ),
            Filter::Firewall => (
                &[(45, 0), (10, 8), (10, 16), (15, 24), (20, 32)],
                &[(35, 0), (5, 8), (10, 16), (20, 24), (30, 32)],
            ),
            Filter::Chain => (
                &[(25, 0), (10, 12), (25, 20), (15, 24), (25, 32)],
                &[(15, 0), (10, 12), (25, 20), (20, 24), (30, 32)],
            ),
        };
        let mut len = |classes: Classes, random: &mut Random| {
            let class = random.weighted(classes).unwrap_or(32);
            let len = match class {
                0 | 32 => class,
                class => (class + random.below(5) as u8).saturating_sub(2),
            };
            if len == 0 {
                Prefix::ANY
            } else {
                networks.prefix(len, random)
            }
        };
        let (src, dst) = (len(src, random), len(dst, random));
        let protos: &[(usize, Option<u8>)] = match kind {
            Filter::Acl => &[(70, Some(TCP)), (20, Some(UDP)), (3, Some(ICMP)), (7, None)],
            Filter::Firewall => &[
                (60, Some(TCP)),
                (25, Some(UDP)),
                (5, Some(ICMP)),
                (2, Some(GRE)),
                (8, None),
            ],
            Filter::Chain => &[(50, Some(TCP)), (25, Some(UDP)), (5, Some(ICMP)), (20, None)],
        };
        let proto = random.weighted(protos).flatten();
        let is_with_ports = proto.is_some_and(has_ports);
        // The percentages of rules for any source port, for any destination port, and of ranges among the others.
        let (any_sport, any_dport, range) = match kind {
            Filter::Acl => (99, 15, 10),
            Filter::Firewall => (70, 30, 25),
            Filter::Chain => (85, 40, 15),
        };
        let sport = (is_with_ports && !random.percent(any_sport)).then(|| service(random));
        let dports = match is_with_ports && !random.percent(any_dport) {
            false => vec![None],
            true if random.percent(range) => {
                let first = service(random);
                (0..=random.below(4) as u16)
                    .map(|offset| Some(first.wrapping_add(offset)))
                    .collect()
            }
            true => vec![Some(service(random))],
        };
        Draft {
            src,
            dst,
            proto,
            sport,
            dports,
        }
    }
}

/// Weights and prefix lengths; a length stands for the lengths near it.
type Classes = &'static [(usize, u8)];

/// Returns a port; well-known ports are frequent.
fn service(random: &mut Random) -> u16 {
    const WELL_KNOWN_PERCENT: usize = 70;
    /// The number of ports from which the others are drawn: those below the ports that Linux chooses by itself.
    const OTHER_PORTS: u16 = 32_000;
    const NAMED: [u16; 16] = [
        80, 443, 22, 53, 25, 21, 23, 110, 123, 139, 143, 161, 389, 445, 3306, 8080,
    ];
    if random.percent(WELL_KNOWN_PERCENT) {
        // The bound is random, too, so that the first ports are more frequent.
        let bound = 1 + random.below(NAMED.len());
        NAMED.get(random.below(bound)).copied().unwrap_or(80)
    } else {
        1 + random.word16() % OTHER_PORTS
    }
}

/// Returns the share of `headers` that `rules` send to each sink.
pub(super) fn shares(rules: &[Rule], headers: &[Header]) -> [f64; 2] {
    let oracle = Oracle::new(rules);
    let mut counts = [0_usize; 2];
    for header in headers {
        match oracle
            .find(header)
            .and_then(|index| rules.get(index))
            .map(|rule| rule.sink)
        {
            Some(Sink::First) => counts[0] += 1,
            Some(Sink::Second) => counts[1] += 1,
            None => {}
        }
    }
    counts.map(|count| count as f64 / headers.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_set() {
        for kind in [Filter::Acl, Filter::Firewall, Filter::Chain] {
            assert_eq!(
                filter(kind, 300, 300, &mut Random::new(7)),
                filter(kind, 300, 300, &mut Random::new(7))
            );
            assert_ne!(
                filter(kind, 300, 300, &mut Random::new(7)),
                filter(kind, 300, 300, &mut Random::new(8))
            );
        }
        assert_eq!(exact(100, &mut Random::new(1)), exact(100, &mut Random::new(1)));
    }

    #[test]
    fn every_packet_of_an_exact_set_has_its_own_rule() {
        let (rules, headers) = exact(2000, &mut Random::new(1));
        let oracle = Oracle::new(&rules);
        for (index, header) in headers.iter().enumerate() {
            assert_eq!(oracle.find(header), Some(index));
        }
        assert_eq!(shares(&rules, &headers), [0.5, 0.5]);
    }

    #[test]
    fn a_masked_set_has_as_many_masks_as_asked_for_and_no_packet_misses() {
        let (rules, headers) = masked(3200, 32, &mut Random::new(1));
        let masks: HashSet<_> = rules
            .iter()
            .map(|rule| {
                (
                    rule.src.bits(),
                    rule.dst.bits(),
                    rule.sport.is_some(),
                    rule.dport.is_some(),
                )
            })
            .collect();
        assert_eq!((rules.len(), headers.len(), masks.len()), (3200, 3200, 32));
        let oracle = Oracle::new(&rules);
        assert!(headers.iter().all(|header| oracle.find(header).is_some()));
    }

    #[test]
    fn a_filter_set_has_its_len_one_priority_a_rule_and_a_last_rule_for_all() {
        for kind in [Filter::Acl, Filter::Firewall, Filter::Chain] {
            let (rules, headers) = filter(kind, 1000, 2000, &mut Random::new(3));
            assert_eq!((rules.len(), headers.len()), (1000, 2000));
            let priorities: HashSet<u16> = rules.iter().map(|rule| rule.priority).collect();
            assert_eq!(priorities.len(), 1000);
            let matches: HashSet<_> = rules
                .iter()
                .map(|r| (r.src, r.dst, r.proto, r.sport, r.dport))
                .collect();
            assert_eq!(matches.len(), 1000, "{kind:?}");
            assert!(
                rules
                    .iter()
                    .all(|rule| rule.matches(&headers[0]) || rule.priority > 1)
            );
        }
    }

    #[test]
    fn packets_reach_most_rules_of_an_access_list_and_both_sinks() {
        let (rules, headers) = filter(Filter::Acl, 1000, 10_000, &mut Random::new(3));
        let oracle = Oracle::new(&rules);
        let reached: HashSet<_> = headers.iter().filter_map(|header| oracle.find(header)).collect();
        assert!(reached.len() > 600, "{}", reached.len());
        let shares = shares(&rules, &headers);
        assert!((shares[0] + shares[1] - 1.0).abs() < 1e-9);
        assert!(shares[0] > 0.3 && shares[1] > 0.3, "{shares:?}");
    }

    #[test]
    fn routes_are_as_many_as_asked_for_and_no_packet_misses() {
        let (rules, headers) = routes(5000, 2000, &mut Random::new(3));
        assert_eq!((rules.len(), headers.len()), (5000, 2000));
        let long = rules.iter().filter(|rule| rule.dst.bits() == 24).count();
        assert!((2700..3300).contains(&long), "{long}");
        let shares = shares(&rules, &headers);
        assert!((shares[0] + shares[1] - 1.0).abs() < 1e-9, "{shares:?}");
    }

    #[test]
    fn a_firewall_overlaps_more_than_an_access_list() {
        let overlaps = |kind| {
            let (rules, headers) = filter(kind, 1000, 1000, &mut Random::new(3));
            let total: usize = headers
                .iter()
                .map(|header| rules.iter().filter(|rule| rule.matches(header)).count())
                .sum();
            total as f64 / headers.len() as f64
        };
        let (acl, firewall) = (overlaps(Filter::Acl), overlaps(Filter::Firewall));
        assert!(firewall > 1.2 * acl, "{firewall} {acl}");
    }

    #[test]
    fn ports_are_only_where_a_protocol_has_them() {
        let (rules, _) = filter(Filter::Firewall, 2000, 10, &mut Random::new(9));
        assert!(
            rules
                .iter()
                .filter(|rule| rule.sport.is_some() || rule.dport.is_some())
                .all(|rule| rule.proto.is_some_and(has_ports))
        );
    }
}
