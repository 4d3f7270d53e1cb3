//! The comparison of a sampled packet with the match of a filter, by the same rules as in the switches.

use millrace_ix_model::{FilterMatch, FragmentMatch, Ports};

use crate::Observation;

/// Returns true if the packet satisfies a filter's match.
pub fn matches(matching: &FilterMatch, packet: &Observation) -> bool {
    let in_ports = |ports: &[Ports], port: u16| {
        // Fragments after the first have no ports.
        ports.is_empty()
            || packet.fragment & 2 == 0
                && ports
                    .iter()
                    .any(|range| (range.first..=range.last).contains(&port))
    };
    matching.destination.contains(packet.destination)
        && matching
            .source
            .is_none_or(|source| source.contains(packet.source))
        && matching
            .protocol
            .is_none_or(|protocol| protocol == packet.protocol)
        && in_ports(&matching.source_ports, packet.source_port)
        && in_ports(&matching.destination_ports, packet.destination_port)
        && matching.icmp_type.is_none_or(|kind| kind == packet.icmp.0)
        && matching.icmp_code.is_none_or(|code| code == packet.icmp.1)
        && matching.fragment.is_none_or(|fragment| match fragment {
            FragmentMatch::Not => packet.fragment == 0,
            FragmentMatch::Any => packet.fragment != 0,
            FragmentMatch::First => packet.fragment == 1,
            FragmentMatch::Later => packet.fragment == 3,
        })
        && matching
            .tcp_flags
            .is_none_or(|flags| packet.tcp_flags & flags.mask == flags.value)
        && matching.dscp.is_none_or(|dscp| dscp == packet.dscp)
}
