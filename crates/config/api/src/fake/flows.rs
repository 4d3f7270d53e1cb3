//! The flow entries of the fake switch.

use millrace_flow::{Instructions, Match};

use crate::view;

/// The flow entries of the only bridge, in the order of pages.
pub(super) const FLOWS: [(u8, u16, &str, &str); 4] = [
    (0, 200, "arp", "FLOOD"),
    (
        0,
        100,
        "tcp,in_port=1,dl_vlan=100,nw_dst=10.0.0.0/8,tp_dst=80",
        "set_field:7->ip_dscp,output:2",
    ),
    (0, 0, "", "goto_table:1"),
    (1, 0, "", "drop"),
];

/// Returns every entry with its match.
pub(super) fn all() -> Vec<(Match, view::Flow)> {
    let flow = |(table, priority, matching, actions): (u8, u16, &str, &str)| {
        let matching: Match = matching.parse().ok()?;
        let instructions: Instructions = actions.parse().ok()?;
        let flow = view::Flow {
            table,
            priority,
            cookie: "0x2a".to_owned(),
            matching: matching.to_string(),
            fields: view::MatchField::all(&matching),
            actions: instructions.to_string(),
            instructions: view::Instructions::from(&instructions),
            packets: 1_234_467 + u64::from(priority),
            bytes: 98_765_632 - 2 * u64::from(priority),
            duration_seconds: 3725.5,
            idle_timeout: 0,
            hard_timeout: 300,
            flags: vec!["send_flow_rem".to_owned()],
        };
        Some((matching, flow))
    };
    FLOWS.into_iter().filter_map(flow).collect()
}

/// Returns the flow tables of the only bridge.
pub(super) fn tables() -> Vec<view::Table> {
    let table = |table: u8, entries: u64, classifier: &str| view::Table {
        table,
        entries,
        max_entries: 1_000_000,
        lookups: 5000,
        matches: 4000,
        classifier: classifier.to_owned(),
        memory_bytes: Some(entries * 400),
    };
    vec![table(0, 3, "tuples"), table(1, 1, "direct")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixed_entry_is_valid() {
        assert_eq!(all().len(), FLOWS.len());
    }
}
