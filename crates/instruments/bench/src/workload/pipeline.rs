//! A pipeline of eight tables, like that of an edge router, and flows that pass all of them:
//!
//! | table | matches | actions |
//! | --- | --- | --- |
//! | 0 port | in_port | |
//! | 1 VLAN | VLAN (16 entries) | write the number of the VLAN into the metadata |
//! | 2 MAC | VLAN and destination MAC (64: the addresses of the router) | |
//! | 3 ACL | prefixes, protocol, port (500) | denied packets are output to port 3 |
//! | 4 route | destination prefix (1000, /16 to /24) | write the next hop (64) into the metadata, decrement the TTL |
//! | 5 next hop | metadata | write both MAC addresses |
//! | 6 rewrite | VLAN (16) | write the egress VLAN |
//! | 7 out | in_port | output |

use std::fmt::Write as _;

use millrace_types::Mac;

use super::header::{Header, transport};
use super::parts::Parts;
use super::rule::{OFPVID_PRESENT, Oracle, PRIORITY, Prefix, Rule, Sink};
use crate::random::Random;

const VLANS: usize = 16;
const MACS_PER_VLAN: usize = 4;
const NEXT_HOPS: usize = 64;
const ROUTES: usize = 1000;
const ACL_LEN: usize = 500;
/// The access list stands above the entry that sends all other packets on.
const ACL_PRIORITY: u16 = 1000;
/// The percentage of denied services with a port; the others are whole protocols.
const PORT_PERCENT: usize = 70;
/// The number of destination ports of packets. They are few, so that the access list denies some packets.
const SERVICES: u16 = 100;
/// The identifier of the first VLAN, and the distance to the identifier with which its packets leave.
const FIRST_VID: usize = 100;
const EGRESS_VID: usize = 1000;
/// The number of MAC addresses from which the router sends.
const EGRESS_MACS: usize = 4;

/// The number of entries.
pub(super) const LEN: usize =
    1 + VLANS + VLANS * MACS_PER_VLAN + ACL_LEN + 1 + ROUTES + NEXT_HOPS + VLANS + 1;

fn router_mac(number: usize) -> Mac {
    Mac([0x02, 0, 0, 0x10, 0, number as u8])
}

fn vid(number: usize) -> usize {
    FIRST_VID + number
}

/// Returns the entries of the pipeline, and `flows` packets, all different.
pub(super) fn pipeline(flows: usize, random: &mut Random) -> Parts {
    let routes = routes(random);
    let denied = acl(&routes, random);
    let lines = lines(&routes, &denied);
    let oracle = Oracle::new(&denied);
    let (mut headers, mut seen) = (Vec::with_capacity(flows), std::collections::HashSet::new());
    let mut counts = [0_usize; 2];
    while headers.len() < flows {
        let vlan = random.below(VLANS);
        let mac = vlan * MACS_PER_VLAN + random.below(MACS_PER_VLAN);
        let Some(route) = routes.get(random.below(routes.len())) else {
            break;
        };
        let header = Header {
            eth_dst: router_mac(mac),
            vlan: Some(vid(vlan) as u16),
            proto: transport(random),
            ..Header::udp(
                random.word32(),
                route.address(random.word32()),
                random.word16(),
                random.word16() % SERVICES,
            )
        };
        if seen.insert(header) {
            counts[usize::from(oracle.find(&header).is_some())] += 1;
            headers.push(header);
        }
    }
    Parts {
        lines,
        shares: counts.map(|count| count as f64 / headers.len().max(1) as f64),
        headers,
    }
}

fn routes(random: &mut Random) -> Vec<Prefix> {
    let mut routes: Vec<Prefix> = Vec::with_capacity(ROUTES);
    while routes.len() < ROUTES {
        let route = Prefix::new(random.word32(), 16 + random.below(9) as u8);
        if !routes.contains(&route) {
            routes.push(route);
        }
    }
    routes
}

/// Returns the rules of the access list, which deny services of some of the networks behind the router.
fn acl(routes: &[Prefix], random: &mut Random) -> Vec<Rule> {
    (0..ACL_LEN)
        .map(|index| {
            let network = routes
                .get(random.below(routes.len()))
                .copied()
                .unwrap_or(Prefix::ANY);
            Rule {
                priority: ACL_PRIORITY + (ACL_LEN - index) as u16,
                src: Prefix::new(random.word32(), random.below(3) as u8),
                dst: network,
                proto: Some(transport(random)),
                sport: None,
                dport: random.percent(PORT_PERCENT).then(|| random.word16() % SERVICES),
                sink: Sink::Second,
                rewrite: None,
            }
        })
        .collect()
}

/// Returns the entries of all tables, one per line.
fn lines(routes: &[Prefix], denied: &[Rule]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "table=0,priority=1,in_port=1,actions=goto_table:1");
    for vlan in 0..VLANS {
        let vid = vid(vlan);
        let _ = writeln!(
            out,
            "table=1,priority=1,dl_vlan={vid},actions=write_metadata:{vlan:#x}/0xff,goto_table:2"
        );
        for mac in vlan * MACS_PER_VLAN..(vlan + 1) * MACS_PER_VLAN {
            let mac = router_mac(mac);
            let _ = writeln!(
                out,
                "table=2,priority=1,dl_vlan={vid},dl_dst={mac},actions=goto_table:3"
            );
        }
        let _ = writeln!(
            out,
            "table=6,priority=1,dl_vlan={vid},actions=set_field:{}->vlan_vid,goto_table:7",
            OFPVID_PRESENT | (vid + EGRESS_VID)
        );
    }
    for rule in denied {
        let mut line = String::new();
        rule.line(&mut line);
        out.push_str("table=3,");
        out.push_str(&line);
    }
    let _ = writeln!(out, "table=3,priority=1,actions=goto_table:4");
    for (index, route) in routes.iter().enumerate() {
        // Longer prefixes have higher priorities.
        let _ = writeln!(
            out,
            "table=4,priority={},ip,nw_dst={route},actions=dec_ttl,write_metadata:{:#x}/0xff00,goto_table:5",
            PRIORITY + u16::from(route.bits()),
            (index % NEXT_HOPS) << 8
        );
    }
    for hop in 0..NEXT_HOPS {
        let _ = writeln!(
            out,
            "table=5,priority=1,metadata={:#x}/0xff00,actions=set_field:02:00:00:20:00:{hop:02x}->eth_dst,\
             set_field:02:00:00:30:00:{:02x}->eth_src,goto_table:6",
            hop << 8,
            hop % EGRESS_MACS
        );
    }
    let _ = writeln!(
        out,
        "table=7,priority=1,in_port=1,actions=output:{}",
        Sink::First.port()
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipeline_has_eight_tables_and_every_table_leads_to_the_next() {
        let pipeline = pipeline(1000, &mut Random::new(1));
        for table in 0..8 {
            let own: Vec<&str> = pipeline
                .lines
                .lines()
                .filter(|line| line.starts_with(&format!("table={table},")))
                .collect();
            assert!(!own.is_empty());
            if table < 7 {
                assert!(
                    own.iter()
                        .any(|line| line.ends_with(&format!("goto_table:{}", table + 1)))
                );
            }
        }
        assert_eq!(LEN, 1 + 16 + 64 + 501 + 1000 + 64 + 16 + 1);
        assert_eq!(pipeline.lines.lines().count(), LEN);
    }

    #[test]
    fn most_packets_are_routed_and_some_are_denied() {
        let pipeline = pipeline(10_000, &mut Random::new(1));
        assert_eq!(pipeline.headers.len(), 10_000);
        assert!(
            pipeline.shares[0] > 0.9 && pipeline.shares[1] > 0.001,
            "{:?}",
            pipeline.shares
        );
    }
}
