//! Neighbours on the router's interfaces.

use millrace_fib::NextHopKind;
use millrace_rib::event::{Address, Hops, Link, LinkKind, NeighbourState, Object, Source};
use millrace_rib::{Action, Limits};
use millrace_types::{Duration, Mac};

use crate::world::{NETNS, World, connected, hop, ip, link, mac, neighbour, route};

#[test]
fn a_neighbour_of_a_connected_route_is_forwarded_to_and_others_are_gleaned() {
    let mut world = World::new(Source::Kernel);
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Stale,
        7,
    )));
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Forward));
    assert_eq!(world.seen(ip("10.0.2.7")).first().unwrap().3, mac(7));
    assert_eq!(world.kind("10.0.2.8"), Some(NextHopKind::Glean));
    assert_eq!(world.path("10.0.2.8"), ["12"]);
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Failed,
        0,
    )));
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Glean));
}

#[test]
fn a_longer_route_of_the_kernel_beats_a_neighbour_and_gives_way_again() {
    let mut world = World::new(Source::Kernel);
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Reachable,
        7,
    )));
    for more in ["10.0.2.0/28", "10.0.2.7/32"] {
        world.route(more, Hops::One(hop(3, "10.0.3.9")));
        assert_eq!(world.path("10.0.2.7"), ["13 10.0.3.9"]);
        world.gone(Object::Route(route(more, Hops::One(hop(3, "10.0.3.9")))));
        assert_eq!(world.path("10.0.2.7"), ["12 10.0.2.7"]);
    }
    // A connected host route of the same link keeps the neighbour.
    world.there(Object::Route(connected("10.0.2.7/32", 2)));
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Forward));
    // On another link it does not.
    world.gone(Object::Route(connected("10.0.2.7/32", 2)));
    world.there(Object::Route(connected("10.0.2.7/32", 3)));
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Glean));
    assert_eq!(world.path("10.0.2.7"), ["13"]);
}

#[test]
fn a_neighbour_before_its_route_and_after_it_has_none() {
    let mut world = World::new(Source::Kernel);
    world.there(Object::Neighbour(neighbour(
        2,
        "172.16.0.7",
        NeighbourState::Reachable,
        7,
    )));
    assert!(world.group("172.16.0.7").is_none());
    world.there(Object::Route(connected("172.16.0.0/24", 2)));
    assert_eq!(world.kind("172.16.0.7"), Some(NextHopKind::Forward));
    world.gone(Object::Route(connected("172.16.0.0/24", 2)));
    assert!(world.group("172.16.0.7").is_none());
}

#[test]
fn stale_hosts_with_traffic_are_confirmed() {
    let mut world = World::new(Source::Kernel);
    for last in [7, 8] {
        world.there(Object::Neighbour(neighbour(
            2,
            &format!("10.0.2.{last}"),
            NeighbourState::Stale,
            last,
        )));
    }
    world.actions();
    world
        .next_hops
        .member(world.group("10.0.2.7"), 0)
        .unwrap()
        .mark_used();
    world.pass(Duration::from_secs(10));
    let probe = Action::Probe {
        netns: NETNS,
        ifindex: 2,
        address: ip("10.0.2.7"),
    };
    assert_eq!(world.actions(), [probe]);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.actions(), []);
}

#[test]
fn an_interface_that_comes_later_gets_routes_and_hosts() {
    let mut world = World::new(Source::Kernel);
    world.rib.remove_interface(NETNS, "v2");
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Reachable,
        7,
    )));
    assert_eq!(world.kind("192.0.2.1"), Some(NextHopKind::Unreachable));
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Unreachable));
    world.rib.add_interface(world.vrf, NETNS, "v2", 77);
    assert_eq!(world.path("192.0.2.1"), ["77 10.0.2.9"]);
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Forward));
    world.rib.remove_interface(NETNS, "v2");
    assert_eq!(world.kind("10.0.2.7"), Some(NextHopKind::Unreachable));
}

#[test]
fn a_macvlan_over_an_interface_sends_with_its_own_address() {
    let mut world = World::new(Source::Kernel);
    world.there(Object::Link(Link {
        name: "vrrp4".into(),
        kind: LinkKind::Macvlan { lower: 2 },
        mac: mac(99),
        ..link(9, true, true)
    }));
    world.there(Object::Route(connected("172.16.0.0/24", 9)));
    assert_eq!(world.path("172.16.0.1"), ["12"]);
    assert_eq!(
        world
            .next_hops
            .member(world.group("172.16.0.1"), 0)
            .unwrap()
            .source(),
        mac(99)
    );
    // Neighbours on the macvlan are those of the interface.
    world.there(Object::Neighbour(neighbour(
        9,
        "172.16.0.1",
        NeighbourState::Reachable,
        7,
    )));
    assert_eq!(world.kind("172.16.0.1"), Some(NextHopKind::Forward));
    assert_eq!(world.seen(ip("172.16.0.1")).first().unwrap().3, mac(7));
    world.gone(Object::Link(link(9, true, true)));
    assert_eq!(world.kind("172.16.0.1"), None);
    assert_eq!(world.rib.summary(world.vrf).hosts, 0);
}

#[test]
fn a_macvlan_has_its_address_while_it_has_a_carrier_and_an_ip_address_of_its_own() {
    let mut world = World::new(Source::Kernel);
    let macvlan = |up, carrier| {
        Object::Link(Link {
            name: "vrrp4".into(),
            kind: LinkKind::Macvlan { lower: 2 },
            mac: Mac([0, 0, 0x5e, 0, 1, 7]),
            ..link(9, up, carrier)
        })
    };
    let address = |text: &str| {
        Object::Address(Address {
            ifindex: 9,
            address: text.parse().unwrap(),
            prefix_len: 64,
            peer: None,
        })
    };
    let addresses = |world: &World| -> Vec<Mac> {
        let mut of_links = world.rib.receiving_addresses(NETNS);
        of_links.remove("v2").unwrap_or_default().into_iter().collect()
    };
    let own = vec![mac(102)];
    let there = vec![Mac([0, 0, 0x5e, 0, 1, 7]), mac(102)];
    // A backup of keepalived has no address but the one that the kernel made of the MAC address.
    world.there(macvlan(true, true));
    world.there(address("fe80::200:5eff:fe00:107"));
    assert_eq!(addresses(&world), own);
    world.there(address("fe80::7"));
    assert_eq!(addresses(&world), there);
    // A backup of FRR has no carrier.
    world.there(macvlan(true, false));
    assert_eq!(addresses(&world), own);
    world.there(macvlan(true, true));
    assert_eq!(addresses(&world), there);
    world.gone(address("fe80::7"));
    assert_eq!(addresses(&world), own);
    world.there(address("10.0.2.254"));
    world.gone(macvlan(true, true));
    assert_eq!(addresses(&world), own);
    // An interface of a VLAN over it is none.
    world.there(Object::Link(Link {
        kind: LinkKind::Other,
        ..link(9, true, true)
    }));
    world.there(address("10.0.2.254"));
    assert_eq!(addresses(&world), own);
}

#[test]
fn an_interface_receives_at_the_address_that_an_administrator_gave_it() {
    let mut world = World::new(Source::Kernel);
    let addresses = |world: &World| world.rib.receiving_addresses(NETNS)["v2"].clone();
    assert_eq!(addresses(&world), [mac(102)].into());
    world.there(Object::Link(Link {
        mac: mac(55),
        ..link(2, true, true)
    }));
    assert_eq!(addresses(&world), [mac(55)].into());
    // Links that are no interface of the router have none.
    assert!(!world.rib.receiving_addresses(NETNS).contains_key("lo"));
}

#[test]
fn neighbours_and_prefixes_beyond_the_limits_are_refused_and_counted() {
    let limits = Limits {
        neighbours: 2,
        prefixes: 20,
        ..Limits::default()
    };
    let mut world = World::with(Source::Kernel, limits);
    for last in 1..=5 {
        world.there(Object::Neighbour(neighbour(
            2,
            &format!("10.0.2.{last}"),
            NeighbourState::Stale,
            last,
        )));
    }
    assert_eq!(world.rib.counts().refused, 3);
    for third in 0..30 {
        world.route(&format!("192.0.{third}.0/24"), Hops::One(hop(2, "10.0.2.9")));
    }
    assert!(world.rib.counts().refused > 10);
    assert!(world.rib.routes(world.vrf).count() <= 20);
}
