//! After any events, each lookup in the FIB is what a search of all routes finds.

use std::net::IpAddr;

use millrace_fib::{Family, GroupId, Prefix};
use millrace_rib::RouteView;
use millrace_rib::event::{
    Change, Dump, Hops, Neighbour, NeighbourState, Object, Route, RouteKind, RouteMode, Source,
};
use millrace_types::Duration;
use proptest::prelude::*;

use crate::world::{NETNS, World, hop, ip, link, mac, prefix, route};

const PREFIXES: [&str; 14] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.2.0/24",
    "10.0.2.0/25",
    "10.0.2.7/32",
    "10.0.2.128/26",
    "10.1.0.0/16",
    "10.1.2.0/23",
    "::/0",
    "2001:db8::/32",
    "2001:db8:2::/64",
    "2001:db8:2::7/128",
    "2001:db8:2::/65",
    "2001:db8:8000::/33",
];
const ADDRESSES: [&str; 14] = [
    "9.9.9.9",
    "10.0.2.7",
    "10.0.2.1",
    "10.0.2.130",
    "10.0.2.200",
    "10.0.3.4",
    "10.1.2.3",
    "10.1.9.9",
    "10.200.0.1",
    "2001:db8:2::7",
    "2001:db8:2::8",
    "2001:db8:2:0:8000::1",
    "2001:db8:9000::1",
    "2001:4860::1",
];

/// An event, in numbers.
#[derive(Clone, Debug)]
enum Step {
    There(Route),
    Gone(Route),
    Link(u32, bool, bool),
    LinkGone(u32),
    Neighbour(u32, usize, u8),
    NeighbourGone(u32, usize),
    Interface(u32, bool),
    EmptyDump(Dump),
}

fn any_route() -> impl Strategy<Value = Route> {
    let mode = prop_oneof![
        Just(RouteMode::Add),
        Just(RouteMode::Replace),
        Just(RouteMode::Append)
    ];
    (
        0..PREFIXES.len(),
        0usize..8,
        prop_oneof![Just(0u32), Just(10)],
        mode,
    )
        .prop_map(|(at, number, metric, mode)| {
            let (kind, hops) = match number {
                0 => (RouteKind::Unicast, Hops::One(hop(2, ""))),
                1 => (RouteKind::Unicast, Hops::One(hop(3, ""))),
                2 => (RouteKind::Unicast, Hops::One(hop(2, "10.0.2.7"))),
                3 => (RouteKind::Unicast, Hops::One(hop(3, "2001:db8:2::7"))),
                // The kernel withdraws IPv6 next hops of a link before the link.
                4 if !PREFIXES[at].contains(':') => (
                    RouteKind::Unicast,
                    Hops::Many(vec![hop(2, "10.0.2.7"), hop(3, "10.0.3.4")]),
                ),
                5 => (RouteKind::Blackhole, Hops::None),
                // Of the table `local`.
                _ => (RouteKind::Local, Hops::One(hop(1, ""))),
            };
            Route {
                table: if kind == RouteKind::Local { 255 } else { 254 },
                kind,
                metric,
                mode,
                ..route(PREFIXES[at], hops)
            }
        })
}

fn step() -> impl Strategy<Value = Step> {
    let dump = prop_oneof![
        Just(Dump::Neighbours),
        Just(Dump::Routes(millrace_fib::Family::V4)),
        Just(Dump::Routes(millrace_fib::Family::V6)),
    ];
    prop_oneof![
        12 => any_route().prop_map(Step::There),
        6 => any_route().prop_map(Step::Gone),
        3 => (2u32..5, any::<bool>(), any::<bool>()).prop_map(|(a, b, c)| Step::Link(a, b, b && c)),
        1 => (2u32..5).prop_map(Step::LinkGone),
        6 => (2u32..5, 0..ADDRESSES.len(), 0u8..6).prop_map(|(a, b, c)| Step::Neighbour(a, b, c)),
        2 => (2u32..5, 0..ADDRESSES.len()).prop_map(|(a, b)| Step::NeighbourGone(a, b)),
        2 => (2u32..5, any::<bool>()).prop_map(|(a, b)| Step::Interface(a, b)),
        1 => dump.prop_map(Step::EmptyDump),
    ]
}

fn neighbour(ifindex: u32, at: usize, last: u8) -> Object {
    Object::Neighbour(Neighbour {
        ifindex,
        address: ip(ADDRESSES[at]),
        mac: (last != 0).then(|| mac(last)),
        state: if last == 0 {
            NeighbourState::Failed
        } else {
            NeighbourState::Reachable
        },
        managed: false,
        router: false,
    })
}

fn apply(world: &mut World, step: &Step) {
    match step.clone() {
        Step::There(route) => world.there(Object::Route(route)),
        Step::Gone(route) => world.gone(Object::Route(route)),
        Step::Link(ifindex, up, carrier) => world.there(Object::Link(link(ifindex, up, carrier))),
        Step::LinkGone(ifindex) => world.gone(Object::Link(link(ifindex, false, false))),
        Step::Neighbour(ifindex, at, last) => world.there(neighbour(ifindex, at, last)),
        Step::NeighbourGone(ifindex, at) => world.gone(neighbour(ifindex, at, 0)),
        Step::Interface(ifindex, true) => {
            world
                .rib
                .add_interface(world.vrf, NETNS, &format!("v{ifindex}"), 10 + ifindex as u16);
        }
        Step::Interface(ifindex, false) => world.rib.remove_interface(NETNS, &format!("v{ifindex}")),
        Step::EmptyDump(dump) => {
            world.kernel(Change::DumpBegins(dump));
            world.kernel(Change::DumpEnds(dump));
        }
    }
}

/// Returns the route that the kernel's rules choose: the table `local` first; the longest prefix; the lowest metric; the first.
/// IPv6 routes all of whose links are down are passed over.
fn chosen(routes: &[RouteView], address: IpAddr, is_down: impl Fn(&str) -> bool) -> Option<&RouteView> {
    let is_dead = |view: &RouteView| {
        let hops = view.kind == RouteKind::Unicast && !view.next_hops.is_empty();
        hops && view.next_hops.iter().all(|hop| is_down(&hop.link))
    };
    let usable = || {
        routes
            .iter()
            .filter(|view| view.prefix.contains(address) && !is_dead(view))
    };
    let best = |local: bool| {
        let rank = |view: &&RouteView| (view.prefix.len(), core::cmp::Reverse(view.metric));
        let of_table: Vec<&RouteView> = usable().filter(|view| view.is_local_table == local).collect();
        // Of several maxima, `max_by_key` returns the last.
        of_table.into_iter().rev().max_by_key(rank)
    };
    best(true).or_else(|| best(false))
}

/// Checks that pages of each size have the routes that packets follow, in order, each once.
fn pages_are_the_routes_in_order(world: &World, routes: &[RouteView]) -> Result<(), TestCaseError> {
    let is_shown = |view: &&RouteView| view.is_installed && view.kind != RouteKind::Multicast;
    for within in [None, Some(prefix("10.0.0.0/8")), Some(prefix("2001:db8:2::/64"))] {
        let is_within = |view: &&RouteView| within.is_none_or(|within| within.covers(&view.prefix));
        let mut expected: Vec<RouteView> = routes
            .iter()
            .filter(is_shown)
            .filter(is_within)
            .cloned()
            .collect();
        expected.sort_by_key(|view| view.prefix);
        for size in [1, 2, 5, 1000] {
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let page = world.rib.page(world.vrf, within.as_ref(), after.as_ref(), size);
                prop_assert!(page.len() <= size);
                let Some(last) = page.last() else { break };
                after = Some(last.prefix);
                read.extend(page);
            }
            prop_assert_eq!(&read, &expected, "pages of {} within {:?}", size, within);
        }
    }
    prop_assert!(world.rib.page(world.vrf, None, None, 0).is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_lookup_is_what_a_search_of_all_routes_finds(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(Source::Kernel);
        let mut down = [false; 5];
        for step in &steps {
            apply(&mut world, step);
            match step {
                Step::Link(ifindex, up, _) => down[*ifindex as usize] = !up,
                Step::LinkGone(ifindex) => down[*ifindex as usize] = false,
                _ => {}
            }
            let routes: Vec<RouteView> = world.rib.routes(world.vrf).collect();
            pages_are_the_routes_in_order(&world, &routes)?;
            let count = |family| {
                let of_family = routes.iter().filter(|view| view.prefix.family() == family);
                of_family.filter(|view| view.is_installed).count()
            };
            let counted = world.rib.summary(world.vrf).prefixes;
            prop_assert_eq!(counted, [count(Family::V4), count(Family::V6)]);
            let is_down = |name: &str| (2..5).any(|ifindex| down[ifindex] && name == format!("v{ifindex}"));
            for address in ADDRESSES {
                let expected = chosen(&routes, ip(address), is_down);
                let group = world.group(address);
                let is_host = world.rib.explain(world.vrf, ip(address)).is_none_or(|view| view.group != group);
                if !is_host || expected.is_none() {
                    prop_assert_eq!(group, expected.map_or(GroupId::NONE, |view| view.group), "{}: {:?}", address, expected);
                    continue;
                }
                // A neighbour, with a route of its own where the kernel sends packets to it itself.
                let view = expected.unwrap();
                let connected = view.next_hops.iter().filter(|hop| hop.spec.gateway.is_none());
                let links: Vec<u16> = connected.map(|hop| hop.spec.interface).collect();
                for (kind, interface, gateway, _) in world.seen(ip(address)) {
                    prop_assert_eq!(gateway, Some(ip(address)), "{}: {:?}", address, view);
                    prop_assert!(links.contains(&interface), "{}: {} {} of {:?}", address, kind, interface, view);
                }
            }
        }
        // Nothing is left of a namespace that is gone.
        world.kernel(Change::Closed);
        world.pass(Duration::from_secs(60));
        let usage = world.rib.usage();
        prop_assert_eq!((usage.groups, usage.next_hops, usage.nodes_size), (0, 0, 0));
        prop_assert!(world.group("10.0.2.7").is_none());
        prop_assert_eq!(world.rib.route(world.vrf, &Prefix::host(ip("10.0.2.7"))).len(), 0);
        prop_assert_eq!(world.rib.route(world.vrf, &prefix("::/0")).len(), 0);
    }
}
