//! Network address translation as a controller programs it: an exact entry for each direction of a
//! connection. An entry sets both MAC addresses, one IPv4 address and the port of the same end, and
//! decrements the TTL. Even entries translate the source and odd entries the destination, so that the traffic
//! mixes both.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::header::{SOURCE, TCP, client_port};
use super::parts::Parts;
use super::rule::Sink;
use super::sets;
use crate::random::Random;

/// The first of the public addresses that sources are translated to (RFC 2544, section C.2.2).
const PUBLIC: u32 = 0xc612_0000;
/// The first of the private addresses that destinations are translated to.
const PRIVATE: u32 = 0xac10_0000;
/// The number of addresses that connections share.
const ADDRESSES: usize = 64;

/// Returns the entries of `connections` connections, and a packet of each.
pub(super) fn nat(connections: usize, random: &mut Random) -> Parts {
    let (rules, headers) = sets::exact(connections, random);
    let mut lines = String::new();
    for (number, rule) in rules.iter().enumerate() {
        let (side, first) = match rule.sink {
            Sink::First => ("src", PUBLIC),
            Sink::Second => ("dst", PRIVATE),
        };
        let address = Ipv4Addr::from(first + (number % ADDRESSES) as u32);
        let port = client_port(random);
        let transport = if rule.proto == Some(TCP) { "tcp" } else { "udp" };
        rule.matching(&mut lines);
        // Writing to a string does not fail.
        if let Some(mac) = rule.rewrite {
            let _ = write!(
                lines,
                ",actions=set_field:{SOURCE}->eth_src,set_field:{mac}->eth_dst,"
            );
        }
        let _ = writeln!(
            lines,
            "set_field:{address}->ip_{side},set_field:{port}->{transport}_{side},dec_ttl,output:{}",
            rule.sink.port()
        );
    }
    Parts {
        lines,
        shares: sets::shares(&rules, &headers),
        headers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_has_five_fields_set_and_both_directions_are_translated() {
        let Parts {
            lines,
            headers,
            shares,
        } = nat(100, &mut Random::new(1));
        assert_eq!(
            (lines.lines().count(), headers.len(), shares),
            (100, 100, [0.5, 0.5])
        );
        for line in lines.lines() {
            assert_eq!(line.matches("set_field").count(), 4, "{line}");
            assert_eq!(line.matches("dec_ttl,output:").count(), 1, "{line}");
        }
        for side in ["src", "dst"] {
            let of_side = format!("->ip_{side},");
            assert_eq!(lines.lines().filter(|line| line.contains(&of_side)).count(), 50);
        }
    }
}
