//! The routes of a router with both versions of IP, in two tables: IPv6 in the first, which sends everything else on,
//! and IPv4 in the second. Each entry decrements the TTL and sets both MAC addresses, as a router does. The packets go
//! to random addresses below the prefixes; a share of them goes to addresses that no route covers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::header::{Header, SOURCE, client_port};
use super::parts::Parts;
use super::rule::{PRIORITY, Sink};
use super::sets;
use crate::random::Random;

/// The percentages of IPv6 prefix lengths: nearly half of the routes of the Internet are /48.
const IPV6_LENS: [(usize, u8); 12] = [
    (46, 48),
    (14, 32),
    (9, 44),
    (8, 40),
    (7, 64),
    (5, 36),
    (4, 29),
    (2, 56),
    (2, 28),
    (1, 24),
    (1, 20),
    (1, 52),
];
/// The percentages of IPv4 prefix lengths, from /8 to /32.
const IPV4_LENS: [(usize, u8); 10] = [
    (54, 24),
    (12, 22),
    (10, 23),
    (6, 20),
    (5, 16),
    (4, 32),
    (4, 28),
    (3, 18),
    (1, 12),
    (1, 8),
];
/// The network of all IPv6 routes, 2000::/3 (RFC 3587), as the highest bits of an address.
const GLOBAL_UNICAST: u128 = 0x2 << 124;
/// The network of IPv6 destinations that no route covers, fd00::/8 (RFC 4193).
const UNCOVERED_IPV6: u128 = 0xfd << 120;
/// The network of IPv4 destinations that no route covers, 240.0.0.0/4 (RFC 1112).
const UNCOVERED_IPV4: u32 = 0xf000_0000;

/// The destination port of all packets: that of DNS.
const DNS: u16 = 53;

/// The numbers of routes and packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) ipv6: usize,
    pub(super) ipv4: usize,
    pub(super) flows: usize,
    /// The percentage of packets to addresses that a route covers.
    pub(super) covered: u8,
}

/// Routes by prefix, as integers of 128 bits; those of IPv4 are in the low 32 bits.
struct Routes {
    width: u8,
    sinks: HashMap<(u8, u128), Sink>,
    prefixes: Vec<(u8, u128)>,
}

impl Routes {
    fn random(len: usize, width: u8, lens: &[(usize, u8)], random: &mut Random) -> Routes {
        let mut routes = Routes {
            width,
            sinks: HashMap::new(),
            prefixes: Vec::new(),
        };
        while routes.prefixes.len() < len {
            let bits = random.weighted(lens).unwrap_or(24);
            let address = match width {
                32 => u128::from(random.word32()) & !u128::from(UNCOVERED_IPV4),
                _ => word128(random) >> 3 | GLOBAL_UNICAST,
            };
            let prefix = (bits, address & mask(bits, width));
            let sink = Sink::alternate(routes.prefixes.len());
            if let Entry::Vacant(entry) = routes.sinks.entry(prefix) {
                entry.insert(sink);
                routes.prefixes.push(prefix);
            }
        }
        routes
    }

    /// Returns an address below a random prefix.
    fn covered(&self, random: &mut Random) -> u128 {
        let (bits, network) = self.prefixes[random.below(self.prefixes.len())];
        network | word128(random) & !mask(bits, self.width) & mask(0, 128 - self.width)
    }

    /// Returns the sink of the longest prefix that covers an address.
    fn sink(&self, address: u128) -> Option<Sink> {
        let longest = (0..=self.width).rev();
        longest
            .filter_map(|bits| self.sinks.get(&(bits, address & mask(bits, self.width))))
            .next()
            .copied()
    }
}

/// Returns the mask of a prefix of `bits` bits in an address of `width` bits.
fn mask(bits: u8, width: u8) -> u128 {
    let ones = u128::MAX.checked_shr(u32::from(128 - width)).unwrap_or(0);
    let host = u128::MAX.checked_shr(u32::from(128 - width + bits)).unwrap_or(0);
    ones & !host
}

fn word128(random: &mut Random) -> u128 {
    (0..4).fold(0, |word, _| word << 32 | u128::from(random.word32()))
}

/// Returns the entries of the routes, and packets of `sizes.flows` flows.
pub(super) fn mixed_routes(sizes: Sizes, random: &mut Random) -> Parts {
    let ipv6 = Routes::random(sizes.ipv6, 128, &IPV6_LENS, random);
    let ipv4 = Routes::random(sizes.ipv4, 32, &IPV4_LENS, random);
    let mut lines = String::from("table=0,priority=0,actions=goto_table:1\n");
    for (table, routes) in [(0, &ipv6), (1, &ipv4)] {
        for (number, prefix @ (bits, network)) in routes.prefixes.iter().enumerate() {
            let matched = match table {
                0 => format!("ipv6,ipv6_dst={}/{bits}", Ipv6Addr::from(*network)),
                _ => format!("ip,nw_dst={}/{bits}", Ipv4Addr::from(*network as u32)),
            };
            let port = routes.sinks[prefix].port();
            // Writing to a string does not fail.
            let _ = writeln!(
                lines,
                "table={table},priority={},{matched},actions=dec_ttl,set_field:{SOURCE}->eth_src,\
                 set_field:{}->eth_dst,output:{port}",
                PRIORITY + u16::from(*bits),
                sets::numbered_mac(number),
            );
        }
    }
    let mut seen = [0_u32; 2];
    let headers: Vec<Header> = (0..sizes.flows)
        .map(|_| {
            let is_covered = random.percent(sizes.covered.into());
            let is_ipv6 = random.below(sizes.ipv6 + sizes.ipv4) < sizes.ipv6;
            let (routes, uncovered) = match is_ipv6 {
                true => (&ipv6, UNCOVERED_IPV6 | word128(random) >> 8),
                false => (&ipv4, u128::from(UNCOVERED_IPV4 | random.word32())),
            };
            let dst = if is_covered {
                routes.covered(random)
            } else {
                uncovered
            };
            match routes.sink(dst) {
                Some(Sink::First) => seen[0] += 1,
                Some(Sink::Second) => seen[1] += 1,
                None => {}
            }
            let header = Header::udp(random.word32(), dst as u32, client_port(random), DNS);
            let src = Ipv6Addr::from(word128(random) >> 3 | GLOBAL_UNICAST);
            Header {
                ipv6: is_ipv6.then(|| (src, Ipv6Addr::from(dst))),
                ..header
            }
        })
        .collect();
    Parts {
        lines,
        headers,
        shares: seen.map(|packets| f64::from(packets) / sizes.flows.max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        ipv6: 300,
        ipv4: 200,
        flows: 2000,
        covered: 50,
    };

    #[test]
    fn each_route_is_an_entry_of_a_router_and_uncovered_packets_reach_no_sink() {
        let Parts {
            lines,
            headers,
            shares,
        } = mixed_routes(SIZES, &mut Random::new(1));
        assert_eq!((lines.lines().count(), headers.len()), (501, 2000));
        assert_eq!(lines.matches("actions=dec_ttl,set_field:").count(), 500);
        assert_eq!(lines.matches("table=0,").count(), 301);
        assert!((0.45..0.55).contains(&(shares[0] + shares[1])), "{shares:?}");
        let ipv6 = headers.iter().filter(|header| header.ipv6.is_some()).count();
        assert!((1100..1300).contains(&ipv6));
    }

    #[test]
    fn the_longest_prefix_decides() {
        let mut routes = Routes::random(0, 32, &IPV4_LENS, &mut Random::new(1));
        routes.sinks.insert((8, 0x0a00_0000), Sink::First);
        routes.sinks.insert((24, 0x0a01_0200), Sink::Second);
        assert_eq!(routes.sink(0x0a01_0203), Some(Sink::Second));
        assert_eq!(routes.sink(0x0a01_0303), Some(Sink::First));
        assert_eq!(routes.sink(0x0b01_0303), None);
        assert_eq!(
            (mask(0, 32), mask(32, 32), mask(128, 128)),
            (0, 0xffff_ffff, u128::MAX)
        );
    }
}
