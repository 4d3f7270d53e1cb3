//! Metrics of the offload of ports.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{Bridge, Offload};

/// Reads a number of the offload of a port.
type Number = fn(&Offload) -> u64;

const COUNTERS: [(&str, &str, Number); 7] = [
    (
        "millrace_offload_packets_total",
        "Packets that the port received since its device connected.",
        |offload| offload.packets,
    ),
    (
        "millrace_offload_marked_packets_total",
        "Packets that the device marked.",
        |offload| offload.marked,
    ),
    (
        "millrace_offload_used_marks_total",
        "Packets whose mark replaced the lookup.",
        |offload| offload.used,
    ),
    (
        "millrace_offload_verified_marks_total",
        "Packets whose key was compared with that of their mark.",
        |offload| offload.verified,
    ),
    (
        "millrace_offload_wrong_marks_total",
        "Packets that differ from the key of their mark.",
        |offload| offload.mismatches,
    ),
    (
        "millrace_offload_operations_total",
        "Entries added to the device and removed from it.",
        |offload| offload.operations,
    ),
    (
        "millrace_offload_dropped_packets_total",
        "Packets that the device dropped for flow entries without actions.",
        |offload| offload.dropped,
    ),
];

/// Writes the offload of the ports that have it.
pub(super) fn offload(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let mut all = Vec::new();
    for bridge in bridges {
        for port in live.ports(&bridge.name).unwrap_or_default() {
            all.extend(
                port.offload_status
                    .map(|offload| (bridge.name.clone(), port.name, offload)),
            );
        }
    }
    for (name, help, number) in COUNTERS {
        let mut family = Family::counter(out, name, help);
        for (bridge, port, offload) in &all {
            family.sample(&[("bridge", bridge), ("port", port)], number(offload));
        }
    }
    let mut entries = Family::gauge(out, "millrace_offload_entries", "Entries of the device in use.");
    for (bridge, port, offload) in &all {
        entries.sample(&[("bridge", bridge), ("port", port)], offload.entries);
    }
    let help = "1 if a mark of the device was wrong, else 0.";
    let mut distrusted = Family::gauge(out, "millrace_offload_distrusted", help);
    for (bridge, port, offload) in &all {
        distrusted.sample(
            &[("bridge", bridge), ("port", port)],
            u8::from(offload.distrusted),
        );
    }
}
