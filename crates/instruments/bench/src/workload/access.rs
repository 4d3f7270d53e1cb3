//! A network of hosts at access ports, as learning controllers (such as Faucet) program it. The first table
//! adds the VLAN tag to untagged packets. The second checks that the source MAC address was learned at this
//! port. The third maps the destination MAC address to its port, removes the tag and outputs.

use std::fmt::Write as _;

use millrace_types::Mac;

use super::header::{Header, SOURCE};
use super::parts::Parts;
use super::rule::{OFPVID_PRESENT, Sink};
use crate::random::Random;

const VLAN: usize = 100;

/// The number of flow entries that do not depend on the number of hosts.
const COMMON: usize = 2;

/// Returns the number of entries for `hosts` hosts.
pub(super) const fn rules_len(hosts: usize) -> usize {
    COMMON + 2 * hosts
}

fn mac(host: usize) -> Mac {
    let number = host as u32;
    let [_, a, b, c] = number.to_be_bytes();
    Mac([0x02, 0, 0x50, a, b, c])
}

/// Returns the entries for `hosts` hosts, and packets of `flows` flows to them.
pub(super) fn access(hosts: usize, flows: usize, random: &mut Random) -> Parts {
    let mut lines = format!(
        "table=0,priority=1,in_port=1,vlan_tci=0x0000/0x1fff,actions=push_vlan:0x8100,\
         set_field:{}->vlan_vid,goto_table:1\n\
         table=1,priority=1,in_port=1,dl_vlan={VLAN},dl_src={SOURCE},actions=goto_table:2\n",
        OFPVID_PRESENT | VLAN
    );
    for host in 0..hosts {
        let (mac, port) = (mac(host), Sink::alternate(host).port());
        // Writing to a string does not fail.
        let _ = writeln!(
            lines,
            "table=1,priority=1,in_port={port},dl_vlan={VLAN},dl_src={mac},actions=goto_table:2\n\
             table=2,priority=1,dl_vlan={VLAN},dl_dst={mac},actions=pop_vlan,output:{port}"
        );
    }
    let mut sent = [0.0; 2];
    let headers = (0..flows)
        .map(|_| {
            let host = random.below(hosts.max(1));
            sent[host % 2] += 1.0;
            Header {
                eth_dst: mac(host),
                ..Header::of_client(random)
            }
        })
        .collect();
    Parts {
        lines,
        headers,
        shares: sent.map(|sent| sent / flows.max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_goes_to_a_host_that_has_its_entries() {
        let Parts {
            lines,
            headers,
            shares,
        } = access(10, 300, &mut Random::new(1));
        assert_eq!(lines.lines().count(), rules_len(10));
        for header in &headers {
            let entry = format!("table=2,priority=1,dl_vlan={VLAN},dl_dst={},", header.eth_dst);
            assert_eq!(lines.lines().filter(|line| line.starts_with(&entry)).count(), 1);
        }
        assert!(headers.len() == 300 && shares[0] > 0.0 && (shares[0] + shares[1] - 1.0).abs() < 1e-9);
    }
}
