//! A rule over five fields, in two forms: the line that `ovs-ofctl` sends to any switch, and a slow, obvious search
//! that determines the result of a correct switch for each packet.
//!
//! Ports are exact or wildcards: OpenFlow 1.3.5, section 7.2.3.7, has neither ranges nor masks for ports, so
//! rules that every switch supports cannot use them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;

use millrace_types::Mac;

use super::header::{Header, TCP, UDP};

/// An IPv4 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: u32,
    len: u8,
}

impl Prefix {
    /// The prefix of all addresses.
    pub const ANY: Prefix = Prefix { address: 0, len: 0 };

    /// Returns the `len` (at most 32) leading bits of `address`.
    pub fn new(address: u32, len: u8) -> Prefix {
        let len = len.min(32);
        Prefix {
            address: address & mask(len),
            len,
        }
    }

    /// Returns the length in bits.
    pub fn bits(self) -> u8 {
        self.len
    }

    /// Returns the lowest address.
    pub fn first(self) -> u32 {
        self.address
    }

    /// Returns the address in this prefix that takes its host bits from `fill`.
    pub fn address(self, fill: u32) -> u32 {
        self.address | (fill & !mask(self.len))
    }

    /// Returns a prefix inside this one, of length `len`, or of this prefix's length if that is longer. The
    /// additional bits are taken from `fill`.
    pub fn narrow(self, len: u8, fill: u32) -> Prefix {
        Prefix::new(self.address(fill), len.max(self.len))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.address), self.len)
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// The lowest priority of a generated rule. Entries for all other packets have lower ones.
pub(super) const PRIORITY: u16 = 100;

/// The bit of a VLAN identifier that says that there is a tag (OpenFlow 1.3.5, section 7.2.3.7).
pub(super) const OFPVID_PRESENT: usize = 0x1000;

/// A port that discards packets. There are two, so that a switch that applies the wrong rule is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// OpenFlow port 2.
    First,
    /// OpenFlow port 3.
    Second,
}

impl Sink {
    /// Both sinks in the order of their ports.
    pub const ALL: [Sink; 2] = [Sink::First, Sink::Second];

    /// Returns the OpenFlow port.
    pub fn port(self) -> u32 {
        match self {
            Sink::First => 2,
            Sink::Second => 3,
        }
    }

    /// Returns the first sink for even numbers, and the second for odd ones.
    pub fn alternate(number: usize) -> Sink {
        if number.is_multiple_of(2) {
            Sink::First
        } else {
            Sink::Second
        }
    }
}

/// A rule over the 5-tuple. The flow entries of each system are generated from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The priority; higher wins. Two rules that match one packet have different priorities.
    pub priority: u16,
    /// The source prefix.
    pub src: Prefix,
    /// The destination prefix.
    pub dst: Prefix,
    /// The protocol; rules with ports need TCP or UDP.
    pub proto: Option<u8>,
    /// The source port.
    pub sport: Option<u16>,
    /// The destination port.
    pub dport: Option<u16>,
    /// The egress port.
    pub sink: Sink,
    /// The new destination MAC address.
    pub rewrite: Option<Mac>,
}

/// The bits that a rule matches: lengths of the two prefixes, and the presence of protocol and ports.
type Shape = (u8, u8, bool, bool, bool);
type Values = (u32, u32, u8, u16, u16);

impl Rule {
    /// Appends the priority and the match in the syntax of `ovs-ofctl add-flows`.
    pub fn matching(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(out, "priority={}", self.priority);
        match self.proto {
            None => out.push_str(",ip"),
            Some(TCP) => out.push_str(",tcp"),
            Some(UDP) => out.push_str(",udp"),
            Some(proto) => {
                let _ = write!(out, ",ip,nw_proto={proto}");
            }
        }
        for (key, prefix) in [("nw_src", self.src), ("nw_dst", self.dst)] {
            if prefix.bits() > 0 {
                let _ = write!(out, ",{key}={prefix}");
            }
        }
        for (key, port) in [("tp_src", self.sport), ("tp_dst", self.dport)] {
            if let Some(port) = port {
                let _ = write!(out, ",{key}={port}");
            }
        }
    }

    /// Appends the line for `ovs-ofctl add-flows`.
    pub fn line(&self, out: &mut String) {
        self.matching(out);
        out.push_str(",actions=");
        // Writing to a string does not fail.
        if let Some(mac) = self.rewrite {
            let _ = write!(out, "set_field:{mac}->eth_dst,");
        }
        let _ = writeln!(out, "output:{}", self.sink.port());
    }

    /// Returns true if the rule matches `header`.
    pub fn matches(&self, header: &Header) -> bool {
        Prefix::new(header.src, self.src.len) == self.src
            && Prefix::new(header.dst, self.dst.len) == self.dst
            && self.proto.is_none_or(|proto| proto == header.proto)
            && self.sport.is_none_or(|port| port == header.sport)
            && self.dport.is_none_or(|port| port == header.dport)
    }

    fn shape(&self) -> Shape {
        (
            self.src.len,
            self.dst.len,
            self.proto.is_some(),
            self.sport.is_some(),
            self.dport.is_some(),
        )
    }

    fn values(&self) -> Values {
        (
            self.src.address,
            self.dst.address,
            self.proto.unwrap_or(0),
            self.sport.unwrap_or(0),
            self.dport.unwrap_or(0),
        )
    }
}

/// The reference search for the rule that matches a header. All rules of one shape are in one hash table; a
/// search looks in all tables and takes the best rule.
#[derive(Debug)]
pub struct Oracle {
    shapes: HashMap<Shape, HashMap<Values, Rank>>,
}

/// The order of rules: by priority, then by position, where the earlier rule wins.
type Rank = (u16, Reverse<usize>);

impl Oracle {
    /// Builds the tables for these rules. Of two rules with the same match and priority the earlier wins.
    pub fn new(rules: &[Rule]) -> Oracle {
        let mut shapes: HashMap<Shape, HashMap<Values, Rank>> = HashMap::new();
        for (index, rule) in rules.iter().enumerate() {
            let rank = (rule.priority, Reverse(index));
            let best = shapes
                .entry(rule.shape())
                .or_default()
                .entry(rule.values())
                .or_insert(rank);
            *best = rank.max(*best);
        }
        Oracle { shapes }
    }

    /// Returns the index of the rule that wins; `None` if no rule matches.
    pub fn find(&self, header: &Header) -> Option<usize> {
        let found = self.shapes.iter().filter_map(|(shape, rules)| {
            let (src, dst, proto, sport, dport) = *shape;
            let wanted = (
                Prefix::new(header.src, src).address,
                Prefix::new(header.dst, dst).address,
                if proto { header.proto } else { 0 },
                if sport { header.sport } else { 0 },
                if dport { header.dport } else { 0 },
            );
            rules.get(&wanted).copied()
        });
        found.max().map(|(_, Reverse(index))| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u16, dst: &str, len: u8) -> Rule {
        Rule {
            priority,
            src: Prefix::ANY,
            dst: Prefix::new(dst.parse::<Ipv4Addr>().unwrap().into(), len),
            proto: None,
            sport: None,
            dport: None,
            sink: Sink::First,
            rewrite: None,
        }
    }

    #[test]
    fn a_rule_is_a_line_that_ovs_ofctl_reads() {
        let mut text = String::new();
        Rule {
            proto: Some(TCP),
            dport: Some(80),
            rewrite: Some(Mac([2, 0, 0, 0, 0, 9])),
            sink: Sink::Second,
            ..rule(7, "10.1.2.3", 16)
        }
        .line(&mut text);
        assert_eq!(
            text,
            "priority=7,tcp,nw_dst=10.1.0.0/16,tp_dst=80,actions=set_field:02:00:00:00:00:09->eth_dst,output:3\n"
        );
    }

    #[test]
    fn the_highest_priority_that_matches_wins() {
        let rules = [
            rule(1, "0.0.0.0", 0),
            rule(9, "10.0.0.0", 8),
            rule(5, "10.1.0.0", 16),
        ];
        let oracle = Oracle::new(&rules);
        let to = |dst: [u8; 4]| oracle.find(&Header::udp(1, u32::from_be_bytes(dst), 1, 1));
        assert_eq!(to([10, 1, 0, 1]), Some(1));
        assert_eq!(to([11, 0, 0, 1]), Some(0));
    }

    #[test]
    fn a_prefix_keeps_its_own_bits_whatever_fills_the_others() {
        let prefix = Prefix::new(0x0a01_ffff, 16);
        assert_eq!(prefix.first(), 0x0a01_0000);
        assert_eq!(prefix.address(0xffff_1234), 0x0a01_1234);
        assert_eq!(prefix.narrow(24, 0x0000_5678).to_string(), "10.1.86.0/24");
        assert_eq!(Prefix::ANY.address(7), 7);
    }

    #[test]
    fn the_search_finds_what_a_scan_of_all_rules_finds() {
        let mut random = crate::random::Random::new(5);
        let rules: Vec<Rule> = (0..200)
            .map(|i| Rule {
                proto: random.percent(50).then_some(UDP),
                dport: random.percent(20).then(|| random.word16() % 4),
                ..rule(i, "10.0.0.0", (8 + random.below(24)) as u8)
            })
            .map(|rule| Rule {
                proto: rule.dport.map_or(rule.proto, |_| Some(UDP)),
                ..rule
            })
            .collect();
        let oracle = Oracle::new(&rules);
        for _ in 0..1000 {
            let dst = Prefix::new(0x0a00_0000, 8 + random.below(24) as u8).address(random.word32());
            let header = Header::udp(random.word32(), dst, 1, random.word16() % 4);
            let scan = rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| rule.matches(&header))
                .max_by_key(|(_, rule)| rule.priority)
                .map(|(index, _)| index);
            assert_eq!(oracle.find(&header), scan);
        }
    }
}
