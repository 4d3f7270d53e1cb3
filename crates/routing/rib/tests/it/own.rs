//! Routes of packets of the machine itself.

use std::net::IpAddr;

use millrace_rib::event::{Hops, Object, Route, Source};

use crate::world::{NETNS, World, address, hop, ip, link, route};

/// Returns the link and the source of packets to an address.
fn way(world: &World, to: &str) -> Option<(String, Option<IpAddr>)> {
    let route = world.rib.own_route(world.vrf, ip(to))?;
    Some((route.link, route.source))
}

fn via(link: &str, source: &str) -> Option<(String, Option<IpAddr>)> {
    Some((link.to_owned(), Some(ip(source))))
}

#[test]
fn a_packet_of_the_machine_has_the_source_that_the_kernel_would_choose() {
    let mut world = World::new(Source::Kernel);
    assert_eq!(way(&world, "10.0.2.7"), via("v2", "10.0.2.1"));
    assert_eq!(way(&world, "192.0.2.1"), None, "no route");
    assert_eq!(way(&world, "10.0.2.1"), None, "the machine itself");

    // Behind a gateway it is the address in the network of the gateway; a preferred source comes first.
    world.there(Object::Address(address(3, "10.0.33.1/24")));
    world.route("192.0.2.0/24", Hops::One(hop(3, "10.0.33.9")));
    assert_eq!(way(&world, "192.0.2.1"), via("v3", "10.0.33.1"));
    world.there(Object::Route(Route {
        source: Some(ip("10.0.4.1")),
        ..route("192.0.2.128/25", Hops::One(hop(3, "10.0.33.9")))
    }));
    assert_eq!(way(&world, "192.0.2.129"), via("v3", "10.0.4.1"));
    // A gateway in no network of the link: the first address.
    world.route("198.51.100.0/24", Hops::One(hop(3, "10.0.99.9")));
    assert_eq!(way(&world, "198.51.100.1"), via("v3", "10.0.3.1"));

    // An address of IPv6 is the one most like the destination, and none of the link only.
    world.there(Object::Address(address(2, "fe80::2/64")));
    world.there(Object::Address(address(2, "fd00:2::1/64")));
    world.route("fd00::/16", Hops::One(hop(2, "fe80::9")));
    world.route("2001:db9::/32", Hops::One(hop(2, "fe80::9")));
    assert_eq!(way(&world, "fd00:7::1"), via("v2", "fd00:2::1"));
    assert_eq!(way(&world, "2001:db9::1"), via("v2", "2001:db8:2::1"));
}

#[test]
fn the_link_of_a_route_says_if_it_is_up_and_an_interface_of_the_router() {
    let mut world = World::new(Source::Kernel);
    let mut other = link(9, true, true);
    other.name = "eth9".to_owned();
    world.there(Object::Link(other));
    world.route("192.0.2.0/24", Hops::One(hop(9, "10.0.99.9")));
    let route = world.rib.own_route(world.vrf, ip("192.0.2.1")).unwrap();
    assert_eq!(
        (route.link.as_str(), route.is_interface, route.is_up),
        ("eth9", false, true)
    );
    assert_eq!(route.source, None, "the link has no address");
    let route = world.rib.own_route(world.vrf, ip("10.0.2.7")).unwrap();
    assert!(route.is_interface && route.is_up);
    world.there(Object::Link(link(2, true, false)));
    let route = world.rib.own_route(world.vrf, ip("10.0.2.7"));
    assert!(route.is_none_or(|route| !route.is_up));

    // Of several next hops, a live one.
    world.route(
        "203.0.113.0/24",
        Hops::Many(vec![hop(2, "10.0.2.9"), hop(3, "10.0.3.9")]),
    );
    assert_eq!(way(&world, "203.0.113.1"), via("v3", "10.0.3.1"));
}

#[test]
fn links_with_an_address_of_more_than_the_link_are_named() {
    let mut world = World::new(Source::Kernel);
    let mut other = link(9, true, true);
    other.name = "eth9".to_owned();
    world.there(Object::Link(other));
    let all = ["v2", "v3", "v4"];
    assert!(world.rib.addressed_links(NETNS).into_iter().eq(all));
    world.there(Object::Address(address(9, "fe80::9/64")));
    world.there(Object::Address(address(1, "127.0.0.1/8")));
    assert!(world.rib.addressed_links(NETNS).into_iter().eq(all));
    world.there(Object::Address(address(9, "192.0.2.1/24")));
    assert!(
        world
            .rib
            .addressed_links(NETNS)
            .into_iter()
            .eq(["eth9", "v2", "v3", "v4"])
    );
    world.gone(Object::Address(address(9, "192.0.2.1/24")));
    assert!(world.rib.addressed_links(NETNS).into_iter().eq(all));
}
