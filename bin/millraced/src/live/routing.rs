//! The router, from the agent's values to those of REST.

use millrace_agent::routing::{
    self as agent, InterfaceStatus, NextHopGroupStatus, Router, RouterTotals, VrfState, VrfStatus,
};
use millrace_api::server::{LiveError, RouteQuery, RouteSelection};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_fib::{NextHopKind, NextHopSpec};
use millrace_rib::event::{NeighbourState, RouteKind};
use millrace_rib::{HopView, NeighbourView, RouteView};
use millrace_router::{ErrorClass, PuntClass};

/// The origins of routes with a name (`RTPROT_*`; rt_protos of iproute2).
const PROTOCOLS: [(u8, &str); 14] = [
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (9, "ra"),
    (11, "zebra"),
    (12, "bird"),
    (16, "dhcp"),
    (42, "babel"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

pub(super) fn vrf(status: &VrfStatus) -> view::Vrf {
    view::Vrf {
        name: status.config.name.to_string(),
        netns: status.config.netns.as_ref().map(ToString::to_string),
        table: status.config.table.get(),
        source: status.config.routes.to_string(),
        state: match status.state {
            VrfState::Reading => view::RouteSourceState::Reading,
            VrfState::Synchronised => view::RouteSourceState::Synchronised,
            VrfState::Away => view::RouteSourceState::Away,
            VrfState::NoNamespace => view::RouteSourceState::NoNamespace,
        },
        ipv4_routes: status.routes[0],
        ipv6_routes: status.routes[1],
        nexthop_groups: status.nexthop_groups,
        neighbours: status.neighbours,
        fib_bytes: status.fib_bytes,
        overruns: status.kernel.overruns,
        source_counters: view::RouteSourceCounters {
            kernel_messages: status.kernel.messages,
            fpm_messages: status.fpm.messages,
            fpm_sessions: status.fpm.sessions,
            failed_dumps: status.kernel.failed_dumps,
            forwarding_resets: status.kernel.forwarding_resets,
            refused_requests: status.kernel.refused_requests,
            dropped_probes: status.kernel.dropped_probes,
            ignored: ignored(status),
        },
    }
}

/// Returns the messages of both sources without effect, by reason.
fn ignored(status: &VrfStatus) -> Vec<view::IgnoredMessages> {
    let counted = status.kernel.ignored.by_reason().into_iter();
    let both = counted.zip(status.fpm.ignored.by_reason());
    both.map(|((reason, kernel), (_, fpm))| view::IgnoredMessages {
        reason: reason.to_owned(),
        messages: kernel + fpm,
    })
    .filter(|counted| counted.messages != 0)
    .collect()
}

pub(super) fn totals(totals: &RouterTotals) -> view::RouterTotals {
    view::RouterTotals {
        fib_bytes: totals.usage.size as u64,
        fib_used_bytes: totals.usage.nodes_size as u64,
        refused: totals.counts.refused,
        purged: totals.counts.purged,
    }
}

pub(super) fn interface(status: &InterfaceStatus) -> view::RouterInterface {
    let InterfaceStatus {
        config,
        is_up,
        mtu,
        other_macs,
        stats,
    } = status;
    let drops = stats.drops.iter().map(|(reason, packets)| view::Drop {
        bridge: Some(config.bridge.to_string()),
        reason: reason.name().to_owned(),
        description: reason.description().to_owned(),
        packets: *packets,
    });
    view::RouterInterface {
        name: config.name.to_string(),
        vrf: config.vrf.to_string(),
        bridge: config.bridge.to_string(),
        vlan: config.vlan.map(millrace_types::Vid::raw),
        number: config.number.map(millrace_types::PortNo::raw),
        mac: config.mac_address().to_string(),
        other_macs: other_macs.iter().map(ToString::to_string).collect(),
        mtu: *mtu,
        addresses: config.addresses.iter().map(ToString::to_string).collect(),
        up: *is_up,
        rx_packets: stats.rx_packets,
        rx_bytes: stats.rx_bytes,
        tx_packets: stats.tx_packets,
        tx_bytes: stats.tx_bytes,
        to_kernel: stats.punted.iter().sum(),
        punted: PuntClass::ALL
            .into_iter()
            .map(|class| view::Punted {
                class: class.name().to_owned(),
                packets: stats.punted[class as usize],
                limited: stats.punt_limited[class as usize],
            })
            .filter(|punted| punted.packets + punted.limited != 0)
            .collect(),
        icmp_errors: stats.errors.iter().sum(),
        icmp: ErrorClass::ALL
            .into_iter()
            .map(|class| view::IcmpErrors {
                class: class.name().to_owned(),
                sent: stats.errors[class as usize],
                limited: stats.errors_limited[class as usize],
            })
            .filter(|errors| errors.sent + errors.limited != 0)
            .collect(),
        fragments: stats.fragments,
        drops: drops.collect(),
    }
}

fn protocol(number: u8) -> String {
    let found = PROTOCOLS.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

fn hop<B: Backend>(router: &Router<B>, hop: &HopView) -> view::RouteNextHop {
    let NextHopSpec {
        kind,
        interface,
        gateway,
        destination,
        ..
    } = hop.spec;
    let named = (interface != NextHopSpec::NO_INTERFACE).then(|| router.interface_name(interface));
    view::RouteNextHop {
        gateway: gateway.map(|gateway| gateway.to_string()),
        interface: named
            .flatten()
            .or_else(|| Some(hop.link.clone()).filter(|link| !link.is_empty())),
        weight: hop.weight,
        mac: (kind == NextHopKind::Forward).then(|| destination.to_string()),
        live: hop.is_live,
    }
}

fn route<B: Backend>(router: &Router<B>, route: &RouteView) -> view::Route {
    let kind = match route.kind {
        RouteKind::Unicast | RouteKind::Throw => view::RouteKind::Unicast,
        RouteKind::Local | RouteKind::Broadcast | RouteKind::Multicast | RouteKind::Anycast => {
            view::RouteKind::Local
        }
        RouteKind::Blackhole => view::RouteKind::Blackhole,
        RouteKind::Unreachable => view::RouteKind::Unreachable,
        RouteKind::Prohibit => view::RouteKind::Prohibit,
    };
    let hops = route.next_hops.iter().map(|held| hop(router, held));
    view::Route {
        prefix: route.prefix.to_string(),
        kind,
        protocol: protocol(route.protocol),
        metric: route.metric,
        nexthops: if kind == view::RouteKind::Unicast {
            hops.collect()
        } else {
            Vec::new()
        },
    }
}

/// Returns the error for a VRF that does not run.
fn no_vrf<B: Backend>(router: &Router<B>, name: &str) -> LiveError {
    LiveError::NoVrf {
        name: name.to_owned(),
        running: router.vrf_names(),
    }
}

pub(super) fn routes<B: Backend>(
    router: &Router<B>,
    vrf: &str,
    query: &RouteQuery,
) -> Result<view::RoutePage, LiveError> {
    let selection = match query.selection {
        RouteSelection::All => agent::RouteSelection::All,
        RouteSelection::To(address) => agent::RouteSelection::To(address),
        RouteSelection::Within(prefix) => agent::RouteSelection::Within(prefix),
    };
    let found = router.routes(vrf, selection, query.after, query.limit);
    let (routes, has_more) = found.ok_or_else(|| no_vrf(router, vrf))?;
    Ok(view::RoutePage {
        next: routes
            .last()
            .filter(|_| has_more)
            .map(|last| last.prefix.to_string()),
        routes: routes.iter().map(|held| route(router, held)).collect(),
    })
}

pub(super) fn nexthops<B: Backend>(
    router: &Router<B>,
    vrf: &str,
) -> Result<Vec<view::NextHopGroup>, LiveError> {
    let groups = router.nexthops(vrf).ok_or_else(|| no_vrf(router, vrf))?;
    let view = |group: &NextHopGroupStatus| view::NextHopGroup {
        group: group.example.group.number(),
        routes: group.routes,
        nexthops: group
            .example
            .next_hops
            .iter()
            .map(|held| hop(router, held))
            .collect(),
    };
    Ok(groups.iter().map(view).collect())
}

pub(super) fn neighbours<B: Backend>(
    router: &Router<B>,
    vrf: &str,
) -> Result<Vec<view::Neighbour>, LiveError> {
    let neighbours = router.neighbours(vrf).ok_or_else(|| no_vrf(router, vrf))?;
    let state = |state: NeighbourState| match state {
        NeighbourState::None => "none",
        NeighbourState::Incomplete => "incomplete",
        NeighbourState::Reachable => "reachable",
        NeighbourState::Stale => "stale",
        NeighbourState::Delay => "delay",
        NeighbourState::Probe => "probe",
        NeighbourState::Failed => "failed",
        NeighbourState::NoArp => "noarp",
        NeighbourState::Permanent => "permanent",
    };
    let view = |held: &NeighbourView| view::Neighbour {
        interface: held.link.clone(),
        address: held.address.to_string(),
        mac: held.mac.map(|mac| mac.to_string()),
        state: state(held.state).to_owned(),
    };
    Ok(neighbours.iter().map(view).collect())
}
