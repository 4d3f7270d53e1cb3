//! Metrics of the offload of ports.

use crate::server::exposition::{Metric, metrics, write};
use crate::view::{Offload, Port};

const OFFLOAD: &[Metric<Offload>] = metrics! {
    counter "millrace_offload_packets_total", "Packets that the port received since its device connected." =>
        |offload| offload.packets;
    counter "millrace_offload_marked_packets_total", "Packets that the device marked." =>
        |offload| offload.marked;
    counter "millrace_offload_used_marks_total", "Packets whose mark replaced the lookup." =>
        |offload| offload.used;
    counter "millrace_offload_verified_marks_total",
        "Packets whose key was compared with that of their mark." =>
        |offload| offload.verified;
    counter "millrace_offload_wrong_marks_total", "Packets that differ from the key of their mark." =>
        |offload| offload.mismatches;
    counter "millrace_offload_operations_total", "Entries added to the device and removed from it." =>
        |offload| offload.operations;
    counter "millrace_offload_dropped_packets_total",
        "Packets that the device dropped for flow entries without actions." =>
        |offload| offload.dropped;
    gauge "millrace_offload_entries", "Entries of the device in use." =>
        |offload| offload.entries;
    gauge "millrace_offload_distrusted", "1 if a mark of the device was wrong, else 0." =>
        |offload| offload.distrusted;
};

/// Writes the offload of the ports that have it.
pub(super) fn offload(out: &mut String, ports: &[Port]) {
    let each = ports.iter().filter_map(|port| {
        let labels = [("bridge", port.bridge.as_str()), ("port", &port.name)];
        Some((labels, port.offload_status.as_ref()?))
    });
    write(out, OFFLOAD, &each.collect::<Vec<_>>());
}
