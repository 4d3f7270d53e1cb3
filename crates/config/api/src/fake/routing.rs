//! The router of the fake switch: VRF `blue` with two interfaces.

use millrace_fib::Prefix;

use crate::server::{LiveError, RouteQuery, RouteSelection};
use crate::view::{
    Drop, IcmpErrors, IgnoredMessages, Neighbour, NextHopGroup, Punted, Route, RouteKind, RouteNextHop,
    RoutePage, RouteSourceCounters, RouteSourceState, RouterInterface, RouterTotals, Vrf,
};

pub(super) fn vrfs() -> Vec<Vrf> {
    vec![Vrf {
        name: "blue".to_owned(),
        netns: Some("blue".to_owned()),
        table: 254,
        source: "netlink".to_owned(),
        state: RouteSourceState::Synchronised,
        ipv4_routes: 2,
        ipv6_routes: 1,
        nexthop_groups: 2,
        neighbours: 1,
        fib_bytes: 65_536,
        overruns: 1,
        source_counters: RouteSourceCounters {
            kernel_messages: 120,
            fpm_messages: 0,
            fpm_sessions: 0,
            failed_dumps: 0,
            forwarding_resets: 1,
            refused_requests: 2,
            dropped_probes: 0,
            ignored: vec![IgnoredMessages {
                reason: "encapsulated".to_owned(),
                messages: 3,
            }],
        },
    }]
}

pub(super) fn totals() -> RouterTotals {
    RouterTotals {
        fib_bytes: 65_536,
        fib_used_bytes: 4096,
        refused: 4,
        purged: 2,
    }
}

pub(super) fn interfaces() -> Vec<RouterInterface> {
    let interface = |name: &str, vlan, address: &str, drops| RouterInterface {
        name: name.to_owned(),
        vrf: "blue".to_owned(),
        bridge: "br0".to_owned(),
        vlan: Some(vlan),
        number: None,
        mac: "02:00:00:00:00:0a".to_owned(),
        other_macs: vec!["00:00:5e:00:01:0a".to_owned()],
        mtu: 1500,
        addresses: vec![address.to_owned()],
        up: true,
        rx_packets: 1000,
        rx_bytes: 64_000,
        tx_packets: 990,
        tx_bytes: 63_360,
        to_kernel: 12,
        punted: vec![Punted {
            class: "ospf".to_owned(),
            packets: 12,
            limited: 5,
        }],
        icmp_errors: 1,
        icmp: vec![IcmpErrors {
            class: "time_exceeded".to_owned(),
            sent: 1,
            limited: 6,
        }],
        fragments: 7,
        drops,
    };
    let expired = Drop {
        bridge: Some("br0".to_owned()),
        reason: "ttl_expired".to_owned(),
        packets: 1,
        description: "The TTL ran out.".to_owned(),
    };
    vec![
        interface("v10", 10, "10.0.10.1/24", vec![expired]),
        interface("v20", 20, "10.0.20.1/24", Vec::new()),
    ]
}

fn hop(gateway: Option<&str>) -> RouteNextHop {
    RouteNextHop {
        gateway: gateway.map(str::to_owned),
        interface: Some("v20".to_owned()),
        weight: 1,
        mac: gateway.map(|_| "02:00:00:00:00:14".to_owned()),
        live: true,
    }
}

fn all() -> [Route; 3] {
    let route = |prefix: &str, kind, protocol: &str, metric, nexthops| Route {
        prefix: prefix.to_owned(),
        kind,
        protocol: protocol.to_owned(),
        metric,
        nexthops,
    };
    [
        route("10.0.20.0/24", RouteKind::Unicast, "kernel", 0, vec![hop(None)]),
        route(
            "192.0.2.0/24",
            RouteKind::Unicast,
            "bgp",
            20,
            vec![hop(Some("10.0.20.2"))],
        ),
        route(
            "2001:db8:bad::/48",
            RouteKind::Blackhole,
            "static",
            1024,
            Vec::new(),
        ),
    ]
}

fn vrf(name: &str) -> Result<(), LiveError> {
    if name == "blue" {
        return Ok(());
    }
    Err(LiveError::NoVrf {
        name: name.to_owned(),
        running: vec!["blue".to_owned()],
    })
}

pub(super) fn routes(name: &str, query: &RouteQuery) -> Result<RoutePage, LiveError> {
    vrf(name)?;
    let mut routes: Vec<Route> = all()
        .into_iter()
        .filter(|route| {
            let Ok(prefix) = route.prefix.parse::<Prefix>() else {
                return false;
            };
            let is_selected = match &query.selection {
                RouteSelection::All => true,
                RouteSelection::To(address) => prefix.contains(*address),
                RouteSelection::Within(within) => within.covers(&prefix),
            };
            is_selected && query.after.is_none_or(|after| prefix > after)
        })
        .collect();
    let next =
        (routes.len() > query.limit).then(|| routes.get(query.limit - 1).map(|last| last.prefix.clone()));
    routes.truncate(query.limit);
    Ok(RoutePage {
        routes,
        next: next.flatten(),
    })
}

pub(super) fn nexthops(name: &str) -> Result<Vec<NextHopGroup>, LiveError> {
    vrf(name)?;
    let group = |group, routes, gateway| NextHopGroup {
        group,
        routes,
        nexthops: vec![hop(gateway)],
    };
    Ok(vec![group(1, 1, None), group(2, 1, Some("10.0.20.2"))])
}

pub(super) fn neighbours(name: &str) -> Result<Vec<Neighbour>, LiveError> {
    vrf(name)?;
    Ok(vec![Neighbour {
        interface: "v20".to_owned(),
        address: "10.0.20.2".to_owned(),
        mac: Some("02:00:00:00:00:14".to_owned()),
        state: "reachable".to_owned(),
    }])
}
