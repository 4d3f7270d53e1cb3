//! One test for each rule that the kernel applies in silence.

use millrace_fib::{Family, NextHopKind};
use millrace_rib::Action;
use millrace_rib::event::{
    Change, Dump, Hops, NeighbourState, NextHopObject, NextHopObjectKind, Object, Route, RouteKind, Source,
};
use millrace_types::Duration;

use crate::world::{NETNS, World, address, connected, hop, ip, link, local, mac, neighbour, prefix, route};

fn two_hops() -> Hops {
    Hops::Many(vec![hop(2, "10.0.2.9"), hop(3, "10.0.3.9")])
}

/// A world with a route by each way: one hop, two hops, an object, a group.
fn world() -> World {
    let mut world = World::new(Source::Kernel);
    world.object(1, NextHopObjectKind::Hop(hop(2, "10.0.2.9")));
    world.object(2, NextHopObjectKind::Hop(hop(3, "10.0.3.9")));
    world.object(3, NextHopObjectKind::Hop(hop(2, "2001:db8:2::9")));
    world.object(10, NextHopObjectKind::Group(vec![(1, 1), (2, 1)]));
    world.object(11, NextHopObjectKind::Group(vec![(1, 1)]));
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.route("192.0.3.0/24", two_hops());
    world.route("192.0.5.0/24", Hops::Object(10));
    world.route("192.0.6.0/24", Hops::Object(1));
    world.route("192.0.7.0/24", Hops::Object(11));
    world.route("2001:db8:1000::/64", Hops::One(hop(2, "2001:db8:2::9")));
    world.route("2001:db8:1001::/64", Hops::Object(3));
    world.actions();
    world
}

#[test]
fn routes_lead_to_their_next_hops() {
    let world = world();
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
    assert_eq!(world.path("192.0.5.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
    assert_eq!(world.path("192.0.6.1"), ["12 10.0.2.9"]);
    assert_eq!(world.path("2001:db8:1001::1"), ["12 2001:db8:2::9"]);
    assert_eq!(world.path("10.0.2.1"), ["Local 12"]);
    assert_eq!(world.path("10.0.2.255"), ["Local 12"]);
    assert_eq!(world.path("10.0.2.7"), ["12"]);
    assert_eq!(world.path("127.1.2.3"), ["Local"]);
    assert!(world.group("198.51.100.1").is_none());
}

#[test]
fn carrier_lost_drops_nexthop_objects_and_their_routes_and_keeps_the_others() {
    let mut world = world();
    world.there(Object::Link(link(2, true, false)));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
    // The member on the dead link is left out.
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    // The group loses a member, the other group is empty, and all routes by the objects of the link are gone.
    assert_eq!(world.path("192.0.5.1"), ["13 10.0.3.9"]);
    for gone in ["192.0.6.1", "192.0.7.1", "2001:db8:1001::1"] {
        assert!(world.group(gone).is_none(), "{gone}");
    }
    assert_eq!(world.path("2001:db8:1000::1"), ["12 2001:db8:2::9"]);
    assert_eq!(world.path("10.0.2.7"), ["12"]);
    world.there(Object::Link(link(2, true, true)));
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
    assert_eq!(world.path("192.0.5.1"), ["13 10.0.3.9"]);
}

#[test]
fn a_carrier_that_came_and_went_between_two_messages_takes_its_objects_along() {
    let mut world = world();
    world.there(Object::Link(link(4, true, false)));
    // The kernel accepts an object on a link whose carrier it has not told yet.
    world.object(7, NextHopObjectKind::Hop(hop(4, "10.0.4.9")));
    world.route("192.0.12.0/24", Hops::Object(7));
    world.there(Object::Link(link(4, true, false)));
    assert!(world.group("192.0.12.1").is_none());
}

#[test]
fn link_down_drops_ipv4_routes_by_it_and_keeps_local_ones() {
    let mut world = world();
    world.there(Object::Link(link(2, false, false)));
    for gone in [
        "192.0.2.1",
        "192.0.6.1",
        "10.0.2.7",
        "10.0.2.255",
        "2001:db8:1001::1",
    ] {
        assert!(world.group(gone).is_none(), "{gone}");
    }
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    assert_eq!(world.path("10.0.2.1"), ["Local 12"]);
    // The kernel withdraws IPv6 routes: they are passed over until then.
    assert!(world.group("2001:db8:1000::1").is_none());
    // Up again: the route with two next hops has both.
    world.there(Object::Link(link(2, true, true)));
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
    assert!(world.group("192.0.2.1").is_none());
}

#[test]
fn a_route_all_of_whose_links_are_down_is_gone() {
    let mut world = world();
    world.there(Object::Link(link(2, false, false)));
    world.there(Object::Link(link(3, false, false)));
    assert!(world.group("192.0.3.1").is_none());
    world.there(Object::Link(link(2, true, true)));
    assert!(world.group("192.0.3.1").is_none());
}

#[test]
fn link_deleted_drops_ipv4_routes_with_any_next_hop_on_it() {
    let mut world = world();
    world.gone(Object::Link(link(3, false, false)));
    assert!(world.group("192.0.3.1").is_none());
    assert!(world.group("10.0.3.1").is_none());
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
    assert_eq!(world.path("192.0.5.1"), ["12 10.0.2.9"]);
}

#[test]
fn the_last_ipv4_address_takes_routes_of_its_link_along_but_no_objects() {
    let mut world = world();
    world.there(Object::Address(address(2, "10.9.0.1/24")));
    world.gone(Object::Address(address(2, "10.9.0.1/24")));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
    world.gone(Object::Address(address(2, "10.0.2.1/24")));
    for gone in ["192.0.2.1", "10.0.2.7", "10.0.2.1"] {
        assert!(world.group(gone).is_none(), "{gone}");
    }
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    assert_eq!(world.path("192.0.6.1"), ["12 10.0.2.9"]);
    world.there(Object::Address(address(2, "10.0.2.1/24")));
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
}

#[test]
fn an_address_takes_the_ipv4_routes_along_whose_source_it_is() {
    let mut world = world();
    world.there(Object::Route(Route {
        source: Some(ip("10.0.2.1")),
        ..route("192.0.9.0/24", Hops::One(hop(3, "10.0.3.9")))
    }));
    assert_eq!(world.path("192.0.9.1"), ["13 10.0.3.9"]);
    world.gone(Object::Address(address(2, "10.0.2.1/24")));
    assert!(world.group("192.0.9.1").is_none());
}

#[test]
fn a_deleted_object_takes_its_routes_along_and_empties_groups() {
    let mut world = world();
    world.gone(Object::NextHop(NextHopObject {
        id: 1,
        kind: NextHopObjectKind::Unknown,
    }));
    assert!(world.group("192.0.6.1").is_none());
    assert!(world.group("192.0.7.1").is_none());
    assert_eq!(world.path("192.0.5.1"), ["13 10.0.3.9"]);
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
}

#[test]
fn a_replaced_group_changes_one_group_of_the_fib() {
    let mut world = world();
    let before = world.group("192.0.5.1");
    world.object(10, NextHopObjectKind::Group(vec![(2, 5)]));
    assert_eq!(world.group("192.0.5.1"), before);
    assert_eq!(world.path("192.0.5.1"), ["13 10.0.3.9"]);
    world.object(2, NextHopObjectKind::Hop(hop(4, "10.0.4.9")));
    assert_eq!(world.group("192.0.5.1"), before);
    assert_eq!(world.path("192.0.5.1"), ["14 10.0.4.9"]);
}

#[test]
fn a_failed_neighbour_is_gleaned_and_left_out_of_ecmp_while_others_live() {
    let mut world = world();
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.9",
        NeighbourState::Reachable,
        9,
    )));
    world.there(Object::Neighbour(neighbour(
        3,
        "10.0.3.9",
        NeighbourState::Reachable,
        8,
    )));
    assert_eq!(world.kind("192.0.2.1"), Some(NextHopKind::Forward));
    let members = world.seen(ip("192.0.3.1"));
    assert_eq!(
        members.iter().map(|seen| seen.3).collect::<Vec<_>>(),
        [mac(9), mac(8)]
    );
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.9",
        NeighbourState::Failed,
        0,
    )));
    assert_eq!(world.kind("192.0.2.1"), Some(NextHopKind::Glean));
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    // It is asked again: it has still failed.
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.9",
        NeighbourState::Incomplete,
        0,
    )));
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    // The other fails, too: both are tried.
    world.there(Object::Neighbour(neighbour(
        3,
        "10.0.3.9",
        NeighbourState::Failed,
        0,
    )));
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.9",
        NeighbourState::Reachable,
        7,
    )));
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9"]);
    assert_eq!(world.seen(ip("192.0.2.1")).first().unwrap().3, mac(7));
}

#[test]
fn a_deleted_gateway_is_asked_for_again() {
    let mut world = world();
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.9",
        NeighbourState::Reachable,
        9,
    )));
    world.gone(Object::Neighbour(neighbour(
        2,
        "10.0.2.9",
        NeighbourState::Reachable,
        9,
    )));
    assert_eq!(world.kind("192.0.2.1"), Some(NextHopKind::Glean));
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    let manage = Action::Manage {
        netns: NETNS,
        ifindex: 2,
        address: ip("10.0.2.9"),
        managed: true,
    };
    assert_eq!(world.actions(), [manage]);
}

#[test]
fn a_gateway_that_was_static_is_managed_from_then_on() {
    let mut world = world();
    let at = |state| Object::Neighbour(neighbour(2, "10.0.2.9", state, 9));
    world.there(at(NeighbourState::Permanent));
    world.actions();
    world.there(at(NeighbourState::Permanent));
    assert_eq!(world.actions(), []);
    world.there(at(NeighbourState::Stale));
    let manage = Action::Manage {
        netns: NETNS,
        ifindex: 2,
        address: ip("10.0.2.9"),
        managed: true,
    };
    assert_eq!(world.actions(), [manage]);
}

#[test]
fn gateways_are_managed_while_a_route_needs_them() {
    let mut world = World::new(Source::Kernel);
    world.actions();
    let manage = |managed| Action::Manage {
        netns: NETNS,
        ifindex: 2,
        address: ip("10.0.2.9"),
        managed,
    };
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.route("192.0.3.0/24", Hops::One(hop(2, "10.0.2.9")));
    assert_eq!(world.actions(), [manage(true)]);
    world.gone(Object::Route(route(
        "192.0.2.0/24",
        Hops::One(hop(2, "10.0.2.9")),
    )));
    assert_eq!(world.actions(), []);
    world.gone(Object::Route(route(
        "192.0.3.0/24",
        Hops::One(hop(2, "10.0.2.9")),
    )));
    assert_eq!(world.actions(), [manage(false)]);
    // The kernel forgets neighbours of a link that goes down.
    world.route("2001:db8:99::/48", Hops::One(hop(2, "10.0.2.9")));
    world.actions();
    world.there(Object::Link(link(2, true, false)));
    assert_eq!(world.actions(), []);
    world.there(Object::Link(link(2, true, true)));
    assert_eq!(world.actions(), [manage(true)]);
}

#[test]
fn events_with_silent_consequences_have_the_routes_checked() {
    let mut world = world();
    world.there(Object::Link(link(2, true, false)));
    assert!(world.dumps().is_empty());
    world.pass(Duration::from_secs(2));
    assert_eq!(world.dumps().len(), 6);
    // Not more often than once a minute.
    world.there(Object::Link(link(2, true, true)));
    world.there(Object::Link(link(2, true, false)));
    world.pass(Duration::from_secs(50));
    assert!(world.dumps().is_empty());
    world.pass(Duration::from_secs(10));
    assert_eq!(world.dumps().len(), 6);
}

#[test]
fn the_lowest_metric_wins_and_the_first_of_equals() {
    let mut world = World::new(Source::Kernel);
    let with = |metric, gateway| Route {
        metric,
        ..route("192.0.2.0/24", Hops::One(hop(2, gateway)))
    };
    world.there(Object::Route(with(20, "10.0.2.20")));
    world.there(Object::Route(with(10, "10.0.2.10")));
    world.there(Object::Route(with(30, "10.0.2.30")));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.10"]);
    world.there(Object::Route(Route {
        mode: millrace_rib::event::RouteMode::Append,
        ..with(10, "10.0.2.11")
    }));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.10"]);
    // Prepended.
    world.there(Object::Route(with(10, "10.0.2.12")));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.12"]);
    world.there(Object::Route(Route {
        mode: millrace_rib::event::RouteMode::Replace,
        ..with(10, "10.0.2.13")
    }));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.13"]);
    for gateway in ["10.0.2.13", "10.0.2.10", "10.0.2.11"] {
        assert_eq!(world.path("192.0.2.1"), [format!("12 {gateway}")]);
        world.gone(Object::Route(with(10, gateway)));
    }
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.20"]);
}

#[test]
fn a_withdrawal_names_the_origin_and_the_source_of_its_route() {
    let mut world = World::new(Source::Kernel);
    let with = |protocol, source: &str, mode| {
        let source = (!source.is_empty()).then(|| ip(source));
        Object::Route(Route {
            protocol,
            source,
            mode,
            ..connected("172.16.0.0/24", 2)
        })
    };
    use millrace_rib::event::RouteMode::{Add, Append};
    world.there(with(3, "", Add));
    world.there(with(2, "172.16.0.1", Append));
    // The second time, it is gone already: with its address.
    for _ in 0..2 {
        world.gone(with(2, "172.16.0.1", Add));
    }
    let routes = world.rib.route(world.vrf, &prefix("172.16.0.0/24"));
    assert_eq!(routes.iter().map(|view| view.protocol).collect::<Vec<_>>(), [3]);
}

#[test]
fn routes_of_other_tables_and_types_of_service_are_not_followed() {
    let mut world = World::new(Source::Kernel);
    for other in [
        Route {
            table: 100,
            ..route("192.0.2.0/24", two_hops())
        },
        Route {
            tos: 8,
            ..route("192.0.2.0/24", two_hops())
        },
        Route {
            kind: RouteKind::Multicast,
            ..route("192.0.2.0/24", two_hops())
        },
    ] {
        world.there(Object::Route(other));
        assert!(world.group("192.0.2.1").is_none());
    }
}

#[test]
fn the_local_table_is_asked_first_even_where_its_prefix_is_shorter() {
    let mut world = World::new(Source::Kernel);
    world.route("192.0.2.128/25", two_hops());
    world.there(Object::Route(local("192.0.2.0/24", 1)));
    assert_eq!(world.path("192.0.2.200"), ["Local"]);
    world.gone(Object::Route(local("192.0.2.0/24", 1)));
    assert_eq!(world.path("192.0.2.200"), ["12 10.0.2.9", "13 10.0.3.9"]);
}

#[test]
fn kinds_without_next_hop_drop_packets_as_the_kernel_does() {
    let mut world = World::new(Source::Kernel);
    for (kind, expected) in [
        (RouteKind::Blackhole, NextHopKind::Blackhole),
        (RouteKind::Unreachable, NextHopKind::Unreachable),
        (RouteKind::Prohibit, NextHopKind::Prohibit),
        (RouteKind::Throw, NextHopKind::NoRoute),
    ] {
        let route = Route {
            kind,
            mode: millrace_rib::event::RouteMode::Replace,
            ..route("192.0.2.0/24", Hops::None)
        };
        world.there(Object::Route(route));
        assert_eq!(world.kind("192.0.2.1"), Some(expected));
    }
}

#[test]
fn an_ipv6_route_whose_next_hops_are_dead_is_passed_over_until_its_link_is_up() {
    let mut world = World::new(Source::Kernel);
    let (one, two) = (hop(2, "2001:db8:2::9"), hop(3, "2001:db8:3::9"));
    world.route("2001:db8:90::/44", Hops::One(hop(4, "2001:db8:4::9")));
    world.route("2001:db8:99::/48", Hops::Many(vec![one, two]));
    world.there(Object::Link(link(3, false, false)));
    assert_eq!(world.path("2001:db8:99::1"), ["12 2001:db8:2::9"]);
    // The other is withdrawn: the kernel keeps the dead one, and takes the shorter route.
    world.gone(Object::Route(route("2001:db8:99::/48", Hops::One(one))));
    assert_eq!(world.path("2001:db8:99::1"), ["14 2001:db8:4::9"]);
    world.there(Object::Link(link(3, true, true)));
    assert_eq!(world.path("2001:db8:99::1"), ["13 2001:db8:3::9"]);
}

#[test]
fn an_ipv6_route_that_replaces_another_leaves_its_own_place() {
    let mut world = World::new(Source::Kernel);
    let with = |kind, hops, mode| {
        Object::Route(Route {
            kind,
            mode,
            ..route("2001:db8:99::/48", hops)
        })
    };
    use millrace_rib::event::RouteMode::{Append, Replace};
    let device = Hops::One(hop(3, ""));
    world.there(with(RouteKind::Blackhole, Hops::None, Append));
    world.there(with(
        RouteKind::Unicast,
        Hops::One(hop(2, "2001:db8:2::9")),
        Append,
    ));
    world.there(with(RouteKind::Unicast, device.clone(), Append));
    assert_eq!(world.kind("2001:db8:99::1"), Some(NextHopKind::Blackhole));
    // The first without gateway is replaced.
    world.there(with(RouteKind::Unicast, device, Replace));
    assert_eq!(world.path("2001:db8:99::1"), ["13"]);
    assert_eq!(world.rib.route(world.vrf, &prefix("2001:db8:99::/48")).len(), 2);
}

#[test]
fn the_numbers_of_a_vrf_are_those_of_its_routes() {
    let mut world = world();
    let before = world.rib.summary(world.vrf);
    let by = || Hops::One(hop(3, "10.0.3.7"));
    world.route("203.0.113.0/24", by());
    world.route("198.51.100.0/24", by());
    let summary = world.rib.summary(world.vrf);
    let prefixes = [before.prefixes[0] + 2, before.prefixes[1]];
    assert_eq!((summary.prefixes, summary.groups), (prefixes, before.groups + 1));
    // A group counts while it has a route.
    world.gone(Object::Route(route("203.0.113.0/24", by())));
    assert_eq!(world.rib.summary(world.vrf).groups, before.groups + 1);
    world.gone(Object::Route(route("198.51.100.0/24", by())));
    let summary = world.rib.summary(world.vrf);
    assert_eq!(summary, before);
    // 127.0.0.0/8, and for each link a prefix, an address and a broadcast address.
    assert_eq!(summary.prefixes, [5 + 1 + 3 * 3, 2 + 3]);
    assert!(!summary.is_synchronised);
    for family in [Family::V4, Family::V6] {
        world.kernel(Change::DumpBegins(Dump::Routes(family)));
        world.kernel(Change::DumpEnds(Dump::Routes(family)));
    }
    let summary = world.rib.summary(world.vrf);
    assert_eq!((summary.prefixes, summary.groups), ([0, 0], 0));
    assert!(summary.is_synchronised);
}

#[test]
fn ipv6_routes_with_gateways_are_named_with_all_their_next_hops() {
    let mut world = World::new(Source::Kernel);
    let (one, two) = (hop(2, "fe80::9"), hop(3, "fe80::9"));
    world.route("2001:db8:99::/48", Hops::One(one));
    world.route("2001:db8:99::/48", Hops::Many(vec![one, two]));
    assert_eq!(world.path("2001:db8:99::1"), ["12 fe80::9", "13 fe80::9"]);
    world.gone(Object::Route(route("2001:db8:99::/48", Hops::One(one))));
    assert_eq!(world.path("2001:db8:99::1"), ["13 fe80::9"]);
    world.gone(Object::Route(route("2001:db8:99::/48", Hops::One(two))));
    assert!(world.group("2001:db8:99::1").is_none());
    // Routes of two links without gateways stand side by side.
    world.there(Object::Route(connected("fe80::/64", 2)));
    world.there(Object::Route(connected("fe80::/64", 3)));
    world.gone(Object::Route(connected("fe80::/64", 2)));
    assert_eq!(world.path("fe80::1"), ["13"]);
}
