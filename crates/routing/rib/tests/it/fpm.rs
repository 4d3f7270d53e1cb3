//! Routes of FRR by FPM.

use millrace_fib::Family;
use millrace_rib::event::{Change, Dump, Hop, Hops, NextHopObject, NextHopObjectKind, Object, Route, Source};
use millrace_rib::{FIRST_REPLAY_MAX, REPLAY_QUIET};
use millrace_types::Duration;

use crate::world::{World, address, connected, hop, link, route};

fn fpm(world: &mut World, object: Object) {
    world.event(Source::Fpm, Change::There(object));
}

fn bgp(text: &str, hops: Hops) -> Route {
    Route {
        protocol: 186,
        metric: 20,
        ..route(text, hops)
    }
}

#[test]
fn routes_are_those_of_fpm_and_connected_and_local_ones_those_of_the_kernel() {
    let mut world = World::new(Source::Fpm);
    world.there(Object::Route(bgp("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")))));
    assert!(world.group("192.0.2.1").is_none());
    fpm(
        &mut world,
        Object::Route(bgp("192.0.2.0/24", Hops::One(hop(3, "10.0.3.9")))),
    );
    assert_eq!(world.path("192.0.2.1"), ["13 10.0.3.9"]);
    // Each message replaces the route, whatever its metric.
    fpm(
        &mut world,
        Object::Route(Route {
            metric: 30,
            ..bgp("192.0.2.0/24", Hops::One(hop(4, "10.0.4.9")))
        }),
    );
    assert_eq!(world.path("192.0.2.1"), ["14 10.0.4.9"]);
    // The kernel's copy is withdrawn first: no matter.
    world.gone(Object::Route(bgp("192.0.2.0/24", Hops::One(hop(4, "10.0.4.9")))));
    assert_eq!(world.path("192.0.2.1"), ["14 10.0.4.9"]);
    assert_eq!(world.path("10.0.2.7"), ["12"]);
    world.gone(Object::Route(connected("10.0.2.0/24", 2)));
    assert!(world.group("10.0.2.7").is_none());
    let gone = bgp("192.0.2.0/24", Hops::None);
    world.event(Source::Fpm, Change::Gone(Object::Route(gone)));
    assert!(world.group("192.0.2.1").is_none());
}

#[test]
fn a_kernel_vrf_does_not_listen_to_fpm() {
    let mut world = World::new(Source::Kernel);
    fpm(
        &mut world,
        Object::Route(bgp("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9")))),
    );
    assert!(world.group("192.0.2.1").is_none());
}

#[test]
fn a_replay_keeps_routes_and_sweeps_the_others_after_five_seconds_of_quiet() {
    let mut world = World::new(Source::Fpm);
    world.event(Source::Fpm, Change::Opened);
    let one = || Object::Route(bgp("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9"))));
    let two = || Object::Route(bgp("192.0.3.0/24", Hops::Object(8)));
    let object = || {
        Object::NextHop(NextHopObject {
            id: 8,
            kind: NextHopObjectKind::Hop(hop(3, "10.0.3.9")),
        })
    };
    fpm(&mut world, one());
    fpm(&mut world, object());
    fpm(&mut world, two());
    // The connection breaks: routes stay for as long as it takes.
    world.event(Source::Fpm, Change::Closed);
    world.pass(Duration::from_secs(600));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
    world.event(Source::Fpm, Change::Opened);
    world.pass(REPLAY_QUIET - Duration::from_millis(1));
    fpm(&mut world, one());
    world.pass(REPLAY_QUIET - Duration::from_millis(1));
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
    assert!(world.group("192.0.3.1").is_none());
    // Connected routes are not FPM's.
    assert_eq!(world.path("10.0.2.7"), ["12"]);
}

#[test]
fn other_routes_that_change_without_a_pause_do_not_delay_the_sweep() {
    let mut world = World::new(Source::Fpm);
    let stays = || Object::Route(bgp("192.0.2.0/24", Hops::One(hop(2, "10.0.2.9"))));
    let stale = || Object::Route(bgp("192.0.3.0/24", Hops::One(hop(2, "10.0.2.9"))));
    let changes = |world: &mut World, number: u32| {
        let gateway = if number.is_multiple_of(2) {
            hop(2, "10.0.2.9")
        } else {
            hop(3, "10.0.3.9")
        };
        let route = || Object::Route(bgp(&format!("198.51.{}.0/24", number % 3), Hops::One(gateway)));
        if number.is_multiple_of(5) {
            world.event(Source::Fpm, Change::Gone(route()));
        } else {
            fpm(world, route());
        }
    };
    for dump in [Dump::Routes(Family::V4), Dump::Routes(Family::V6)] {
        world.kernel(Change::DumpBegins(dump));
        world.kernel(Change::DumpEnds(dump));
    }
    // Of a first connection, the end is shown within a bound.
    world.event(Source::Fpm, Change::Opened);
    fpm(&mut world, stays());
    fpm(&mut world, stale());
    let mut passed = Duration::ZERO;
    while !world.rib.summary(world.vrf).is_synchronised {
        changes(&mut world, passed.as_millis() as u32 / 100);
        world.pass(Duration::from_millis(100));
        passed += Duration::from_millis(100);
    }
    assert!(
        (FIRST_REPLAY_MAX..=FIRST_REPLAY_MAX + REPLAY_QUIET).contains(&passed),
        "{passed:?}"
    );
    world.event(Source::Fpm, Change::Closed);
    world.event(Source::Fpm, Change::Opened);
    for number in 0..40 {
        // The replay is slow.
        if number == 30 {
            fpm(&mut world, stays());
        }
        changes(&mut world, number);
        world.pass(Duration::from_millis(100));
    }
    for number in 0..39 {
        changes(&mut world, number);
        world.pass(Duration::from_millis(100));
    }
    assert_eq!(
        world.path("192.0.3.1"),
        ["12 10.0.2.9"],
        "until five seconds after the last renewal"
    );
    world.pass(Duration::from_millis(200));
    assert!(world.group("192.0.3.1").is_none());
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9"]);
}

#[test]
fn fpm_decides_about_its_routes_when_a_link_goes_down_and_dead_members_are_left_out() {
    let mut world = World::new(Source::Fpm);
    let both = Hops::Many(vec![hop(2, "10.0.2.9"), hop(3, "10.0.3.9")]);
    fpm(&mut world, Object::Route(bgp("192.0.2.0/24", both)));
    fpm(
        &mut world,
        Object::Route(bgp("192.0.3.0/24", Hops::One(hop(2, "10.0.2.9")))),
    );
    world.there(Object::Link(link(2, false, false)));
    assert_eq!(world.path("192.0.2.1"), ["13 10.0.3.9"]);
    assert_eq!(world.path("192.0.3.1"), ["12 10.0.2.9"]);
    world.there(Object::Link(link(2, true, true)));
    assert_eq!(world.path("192.0.2.1"), ["12 10.0.2.9", "13 10.0.3.9"]);
}

#[test]
fn gateways_without_interface_are_found_by_addresses() {
    let mut world = World::new(Source::Fpm);
    let floating = Hop {
        ifindex: 0,
        ..hop(0, "172.16.0.9")
    };
    fpm(
        &mut world,
        Object::Route(bgp("192.0.2.0/24", Hops::One(floating))),
    );
    assert_eq!(world.path("192.0.2.1"), ["Unreachable"]);
    world.there(Object::Address(address(3, "172.16.0.1/24")));
    assert_eq!(world.path("192.0.2.1"), ["13 172.16.0.9"]);
    world.gone(Object::Address(address(3, "172.16.0.1/24")));
    assert_eq!(world.path("192.0.2.1"), ["Unreachable"]);
}

#[test]
fn a_route_before_its_object_waits_for_it() {
    let mut world = World::new(Source::Fpm);
    fpm(&mut world, Object::Route(bgp("192.0.3.0/24", Hops::Object(8))));
    assert_eq!(world.path("192.0.3.1"), ["Unreachable"]);
    fpm(
        &mut world,
        Object::NextHop(NextHopObject {
            id: 8,
            kind: NextHopObjectKind::Hop(hop(3, "10.0.3.9")),
        }),
    );
    assert_eq!(world.path("192.0.3.1"), ["13 10.0.3.9"]);
}
