//! The metrics of the router in `/metrics`.

use crate::server::exposition::{Family, Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{RouteSourceState, RouterInterface, RouterTotals, Vrf};

const TOTALS: &[Metric<RouterTotals>] = metrics! {
    gauge "millrace_router_fib_bytes", "Memory of the lookup tables of all VRFs." =>
        |totals| totals.fib_bytes;
    gauge "millrace_router_fib_used_bytes", "The part of the memory of the lookup tables that routes use." =>
        |totals| totals.fib_used_bytes;
    counter "millrace_router_refused_total",
        "Routes, neighbours and next hops beyond the limits, or for which there was no memory." =>
        |totals| totals.refused;
    counter "millrace_router_purged_total", "Routes that the kernel removed without a message." =>
        |totals| totals.purged;
};

const VRF: &[Metric<Vrf>] = metrics! {
    gauge "millrace_vrf_nexthop_groups", "Groups of next hops that routes use." =>
        |vrf| vrf.nexthop_groups;
    gauge "millrace_vrf_neighbours", "Neighbours with a MAC address." =>
        |vrf| vrf.neighbours;
    gauge "millrace_vrf_synchronised", "1 if all routes of the source are there, else 0." =>
        |vrf| vrf.state == RouteSourceState::Synchronised;
    counter "millrace_vrf_kernel_messages_total",
        "Messages of the kernel read in the namespace of the VRF." =>
        |vrf| vrf.source_counters.kernel_messages;
    counter "millrace_vrf_fpm_messages_total", "Messages of FRR read." =>
        |vrf| vrf.source_counters.fpm_messages;
    counter "millrace_vrf_fpm_sessions_total", "Sessions of FRR accepted." =>
        |vrf| vrf.source_counters.fpm_sessions;
    counter "millrace_vrf_overruns_total",
        "Times at which the kernel dropped events because they were not read in time." =>
        |vrf| vrf.overruns;
    counter "millrace_vrf_failed_dumps_total", "Readings of all routes that ended incomplete." =>
        |vrf| vrf.source_counters.failed_dumps;
    counter "millrace_vrf_forwarding_resets_total",
        "Times at which the kernel's forwarding was turned off again." =>
        |vrf| vrf.source_counters.forwarding_resets;
    counter "millrace_vrf_refused_requests_total", "Requests that the kernel refused." =>
        |vrf| vrf.source_counters.refused_requests;
    counter "millrace_vrf_dropped_probes_total", "Requests for neighbours dropped because too many waited." =>
        |vrf| vrf.source_counters.dropped_probes;
};

const INTERFACE: &[Metric<RouterInterface>] = metrics! {
    gauge "millrace_interface_up", "1 if a port of the VLAN has a link, else 0." =>
        |interface| interface.up;
    counter "millrace_interface_receive_packets_total", "Packets received from the bridge." =>
        |interface| interface.rx_packets;
    counter "millrace_interface_receive_bytes_total", "Bytes received from the bridge." =>
        |interface| interface.rx_bytes;
    counter "millrace_interface_transmit_packets_total",
        "Packets sent to the bridge, with those of the kernel." =>
        |interface| interface.tx_packets;
    counter "millrace_interface_transmit_bytes_total", "Bytes sent to the bridge." =>
        |interface| interface.tx_bytes;
    counter "millrace_interface_fragments_total", "Fragments sent." =>
        |interface| interface.fragments;
};

/// Writes the metrics of the router; none without VRFs.
pub(super) fn router(out: &mut String, live: &dyn Live) {
    let vrfs = live.vrfs();
    if vrfs.is_empty() {
        return;
    }
    if let Some(totals) = live.router_totals() {
        write(out, TOTALS, &[([], &totals)]);
    }
    self::vrfs(out, &vrfs);
    interfaces(out, &live.router_interfaces());
}

fn vrfs(out: &mut String, vrfs: &[Vrf]) {
    let mut routes = Family::gauge(out, "millrace_vrf_routes", "Routes that packets follow.");
    for vrf in vrfs {
        for (family, number) in [("ipv4", vrf.ipv4_routes), ("ipv6", vrf.ipv6_routes)] {
            routes.sample(&[("vrf", &vrf.name), ("family", family)], number);
        }
    }
    let each: Vec<_> = vrfs
        .iter()
        .map(|vrf| ([("vrf", vrf.name.as_str())], vrf))
        .collect();
    write(out, VRF, &each);
    let help = "Messages of the kernel and of FRR without effect, by reason.";
    let mut ignored = Family::counter(out, "millrace_vrf_ignored_messages_total", help);
    for vrf in vrfs {
        for of in &vrf.source_counters.ignored {
            ignored.sample(&[("vrf", &vrf.name), ("reason", &of.reason)], of.messages);
        }
    }
}

fn interfaces(out: &mut String, interfaces: &[RouterInterface]) {
    let each: Vec<_> = interfaces
        .iter()
        .map(|interface| (labels(interface), interface))
        .collect();
    write(out, INTERFACE, &each);
    let help = "Packets given to the kernel, by class.";
    by(
        out,
        interfaces,
        "millrace_interface_punted_packets_total",
        help,
        "class",
        |interface| {
            let counted = interface.punted.iter();
            counted.map(|of| (of.class.as_str(), of.packets)).collect()
        },
    );
    let help = "Packets for the kernel that were dropped because their class had used up its rate.";
    by(
        out,
        interfaces,
        "millrace_interface_punt_limited_packets_total",
        help,
        "class",
        |interface| {
            let counted = interface.punted.iter();
            counted.map(|of| (of.class.as_str(), of.limited)).collect()
        },
    );
    let help = "ICMP errors sent, by class.";
    by(
        out,
        interfaces,
        "millrace_interface_icmp_errors_total",
        help,
        "class",
        |interface| {
            let counted = interface.icmp.iter();
            counted.map(|of| (of.class.as_str(), of.sent)).collect()
        },
    );
    let help = "ICMP errors not sent because of their rate limit, by class.";
    by(
        out,
        interfaces,
        "millrace_interface_icmp_errors_limited_total",
        help,
        "class",
        |interface| {
            let counted = interface.icmp.iter();
            counted.map(|of| (of.class.as_str(), of.limited)).collect()
        },
    );
    let help = "Packets that the router dropped, by reason; the drops of the bridge have them, too.";
    by(
        out,
        interfaces,
        "millrace_interface_dropped_packets_total",
        help,
        "reason",
        |interface| {
            let counted = interface.drops.iter();
            counted.map(|of| (of.reason.as_str(), of.packets)).collect()
        },
    );
}

/// Writes a counter with a further label.
fn by(
    out: &mut String,
    interfaces: &[RouterInterface],
    name: &'static str,
    help: &str,
    label: &'static str,
    samples: impl Fn(&RouterInterface) -> Vec<(&str, u64)>,
) {
    let mut counter = Family::counter(out, name, help);
    for interface in interfaces {
        let [vrf, named] = labels(interface);
        for (value, number) in samples(interface) {
            counter.sample(&[vrf, named, (label, value)], number);
        }
    }
}

fn labels(interface: &RouterInterface) -> [(&'static str, &str); 2] {
    [("vrf", &interface.vrf), ("interface", &interface.name)]
}
