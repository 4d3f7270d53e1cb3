//! Tables in sequence, to measure the cost of each table for the same flows. The last table has exact
//! entries. The tables before it match, in rotation, the port, the destination MAC address (16 entries), the
//! destination network (256), the protocol (2) and the source network (256).

use std::fmt::Write as _;

use millrace_types::Mac;

use super::parts::Parts;
use super::rule::Rule;
use super::sets;
use crate::random::Random;

const MACS: usize = 16;
/// The number of networks of sources, and of destinations: the third byte of their addresses.
const NETWORKS: usize = 256;

fn mac(number: usize) -> Mac {
    Mac([0x02, 0, 0, 0x40, 0, number as u8])
}

/// Returns the entries of the tables, and packets of `flows` flows.
pub(super) fn chain(tables: usize, flows: usize, random: &mut Random) -> Parts {
    let (rules, mut headers) = sets::exact(flows, random);
    for header in &mut headers {
        header.eth_dst = mac(random.below(MACS));
    }
    let last = tables.max(1) - 1;
    let mut lines = String::new();
    for table in 0..last {
        for matched in matches(table) {
            // Writing to a string does not fail.
            let _ = writeln!(
                lines,
                "table={table},priority=1,{matched}actions=goto_table:{}",
                table + 1
            );
        }
    }
    for rule in &rules {
        let _ = write!(lines, "table={last},");
        Rule::line(rule, &mut lines);
    }
    Parts {
        lines,
        headers,
        // Exact rules alternate between the sinks.
        shares: [0.5, 0.5],
    }
}

/// Returns the matches of a table.
fn matches(table: usize) -> Vec<String> {
    match table % 5 {
        0 => vec!["in_port=1,".to_owned()],
        1 => (0..MACS)
            .map(|number| format!("dl_dst={},", mac(number)))
            .collect(),
        2 => (0..NETWORKS)
            .map(|net| format!("ip,nw_dst=192.168.{net}.0/24,"))
            .collect(),
        3 => vec!["tcp,".to_owned(), "udp,".to_owned()],
        _ => (0..NETWORKS)
            .map(|net| format!("ip,nw_src=10.{net}.0.0/16,"))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_leads_to_the_next_and_the_last_has_the_flows() {
        for tables in [1, 4, 8, 16] {
            let Parts { lines, headers, .. } = chain(tables, 100, &mut Random::new(1));
            let of = |table: usize| {
                let prefix = format!("table={table},");
                lines
                    .lines()
                    .filter(|line| line.starts_with(&prefix))
                    .collect::<Vec<_>>()
            };
            for table in 0..tables - 1 {
                let next = format!("actions=goto_table:{}", table + 1);
                assert!(!of(table).is_empty() && of(table).iter().all(|line| line.ends_with(&next)));
            }
            assert_eq!((of(tables - 1).len(), headers.len()), (100, 100));
        }
    }
}
