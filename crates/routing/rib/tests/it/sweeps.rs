//! Dumps, losses, and namespaces that go.

use millrace_fib::Family;
use millrace_rib::event::{Change, Dump, Hops, NeighbourState, NextHopObjectKind, Object, Source};
use millrace_rib::{Action, NAMESPACE_HOLD};
use millrace_types::Duration;

use crate::world::{NETNS, World, connected, hop, local, neighbour, route};

#[test]
fn routes_that_a_dump_does_not_name_are_gone_and_new_ones_stay() {
    let mut world = World::new(Source::Kernel);
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.route("192.0.3.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.route("2001:db8:99::/48", Hops::One(hop(2, "2001:db8:2::9")));
    let dump = Dump::Routes(Family::V4);
    for _ in 0..300 {
        world.kernel(Change::DumpBegins(dump));
        for ifindex in 2..=4 {
            world.there(Object::Route(connected(&format!("10.0.{ifindex}.0/24"), ifindex)));
            world.there(Object::Route(local(&format!("10.0.{ifindex}.1/32"), ifindex)));
        }
        world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
        // A notification between the messages of the dump.
        world.route("192.0.4.0/24", Hops::One(hop(2, "10.0.2.9")));
        assert!(!world.group("192.0.2.1").is_none());
        world.kernel(Change::DumpEnds(dump));
        assert!(world.group("192.0.3.1").is_none());
        for there in ["192.0.2.1", "192.0.4.1", "10.0.2.7", "10.0.3.1", "2001:db8:99::1"] {
            assert!(!world.group(there).is_none(), "{there}");
        }
        world.route("192.0.3.0/24", Hops::One(hop(2, "10.0.2.9")));
    }
}

#[test]
fn a_dump_that_failed_removes_nothing_and_is_asked_for_again() {
    let mut world = World::new(Source::Kernel);
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.actions();
    let dump = Dump::Routes(Family::V4);
    world.kernel(Change::DumpBegins(dump));
    world.kernel(Change::DumpFails(dump));
    world.kernel(Change::DumpEnds(dump));
    assert!(!world.group("192.0.2.1").is_none());
    world.pass(Duration::from_secs(1));
    assert!(world.actions().contains(&Action::Dump { netns: NETNS, dump }));
}

#[test]
fn lost_events_have_everything_dumped_once_and_in_order() {
    let mut world = World::new(Source::Kernel);
    world.actions();
    world.kernel(Change::Lost);
    world.kernel(Change::Lost);
    let expected = [
        Dump::Links,
        Dump::Addresses,
        Dump::Neighbours,
        Dump::NextHops,
        Dump::Routes(Family::V4),
        Dump::Routes(Family::V6),
    ];
    assert_eq!(world.dumps(), expected);
}

#[test]
fn links_addresses_neighbours_and_objects_are_swept_too() {
    let mut world = World::new(Source::Kernel);
    world.object(1, NextHopObjectKind::Hop(hop(2, "10.0.2.9")));
    world.route("192.0.6.0/24", Hops::Object(1));
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Reachable,
        7,
    )));
    world.kernel(Change::DumpBegins(Dump::NextHops));
    world.kernel(Change::DumpEnds(Dump::NextHops));
    assert!(world.group("192.0.6.1").is_none());
    assert_eq!(world.path("10.0.2.7"), ["12 10.0.2.7"]);
    world.kernel(Change::DumpBegins(Dump::Neighbours));
    world.kernel(Change::DumpEnds(Dump::Neighbours));
    assert_eq!(world.path("10.0.2.7"), ["12"]);
    world.kernel(Change::DumpBegins(Dump::Addresses));
    world.kernel(Change::DumpEnds(Dump::Addresses));
    assert!(world.group("10.0.2.7").is_none());
    world.there(Object::Route(connected("172.16.0.0/24", 2)));
    world.kernel(Change::DumpBegins(Dump::Links));
    world.kernel(Change::DumpEnds(Dump::Links));
    assert!(world.group("172.16.0.1").is_none());
}

#[test]
fn a_namespace_that_is_gone_keeps_its_routes_for_30_seconds() {
    let mut world = World::new(Source::Kernel);
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Reachable,
        7,
    )));
    world.kernel(Change::Closed);
    assert!(!world.rib.is_open(world.vrf));
    world.pass(NAMESPACE_HOLD - Duration::from_secs(1));
    assert!(!world.group("192.0.2.1").is_none());
    // It comes back: all is dumped, and nothing was lost meanwhile.
    world.actions();
    world.kernel(Change::Opened);
    assert_eq!(world.dumps().len(), 6);
    world.pass(NAMESPACE_HOLD * 2);
    assert!(!world.group("192.0.2.1").is_none());
    // It does not come back.
    world.kernel(Change::Closed);
    world.pass(NAMESPACE_HOLD);
    for gone in ["192.0.2.1", "10.0.2.7", "10.0.2.1", "2001:db8:2::1", "127.0.0.1"] {
        assert!(world.group(gone).is_none(), "{gone}");
    }
    assert_eq!(world.rib.usage().groups, 0);
    assert_eq!(world.rib.usage().next_hops, 0);
}

#[test]
fn a_removed_vrf_leaves_nothing() {
    let mut world = World::new(Source::Kernel);
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    world.there(Object::Neighbour(neighbour(
        2,
        "10.0.2.7",
        NeighbourState::Reachable,
        7,
    )));
    world.rib.remove_vrf(world.vrf);
    world.pass(Duration::from_secs(1));
    let usage = world.rib.usage();
    assert_eq!((usage.groups, usage.next_hops, usage.nodes_size), (0, 0, 0));
}

#[test]
fn a_route_that_was_withdrawn_twice_does_no_harm() {
    let mut world = World::new(Source::Kernel);
    world.route("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")));
    for _ in 0..2 {
        world.gone(Object::Route(route(
            "192.0.2.0/24",
            Hops::One(hop(2, "10.0.2.9")),
        )));
        assert!(world.group("192.0.2.1").is_none());
    }
}
