//! Objects of the kernel as events, by dump and by notification.

use std::net::IpAddr;

use millrace_fib::Family;
use millrace_netlink::{Kernel, Namespace, NamespaceError, Settings};
use millrace_rib::Action;
use millrace_rib::event::{
    Change, Dump, Hop, Hops, LinkKind, NeighbourState, NextHopObjectKind, Object, Route, RouteKind, RouteMode,
};

use crate::bed::{ALL_DUMPS, Consumer, NETNS, Neighbour, apart, batch, dump, ip, open, prefix, wait_for};

const MAIN: u32 = 254;

fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn cable() {
    batch(
        "link add a0 address 02:00:00:00:00:0a mtu 1400 type veth peer name b0\n\
         link set a0 up\n\
         link set b0 up\n\
         address add 10.0.0.1/24 dev a0\n\
         address add 10.9.0.1 peer 10.9.0.2/32 dev a0\n\
         address add 2001:db8::1/64 dev a0 nodad\n\
         neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev a0\n",
    );
}

const ROUTES: &str = "\
    nexthop add id 11 via 10.0.0.2 dev a0\n\
    nexthop add id 12 via 2001:db8::2 dev a0\n\
    nexthop add id 13 blackhole\n\
    nexthop add id 14 dev a0\n\
    nexthop add id 21 group 11,200/14,1\n\
    nexthop add id 22 group 11/14 type resilient buckets 32\n\
    route add 192.0.2.0/25 via 10.0.0.2 metric 7 proto 188 mtu 1280 src 10.0.0.1\n\
    route add 192.0.2.128/25 via 10.0.0.3 dev a0 onlink table 1000\n\
    route add 198.51.100.0/24 via inet6 2001:db8::2 dev a0\n\
    route add 203.0.113.0/24 nexthop via 10.0.0.2 weight 3 nexthop via inet6 2001:db8::2 dev a0 weight 256\n\
    route add 10.1.0.0/16 nhid 21\n\
    route add 10.8.0.0/16 nhid 13\n\
    route add 10.2.0.0/16 dev a0\n\
    route add blackhole 10.3.0.0/16\n\
    route add unreachable 10.4.0.0/16\n\
    route add prohibit 10.5.0.0/16\n\
    route add 0.0.0.0/0 via 10.0.0.2\n\
    route add 10.6.0.0/16 tos 0x10 via 10.0.0.2\n\
    route add 2001:db8:1::/48 via 2001:db8::2\n\
    route add 2001:db8:2::/48 nexthop via 2001:db8::2 weight 2 nexthop via 2001:db8::3\n\
    route add 2001:db8:3::/48 nhid 12\n\
    route add ::/0 from 2001:db8:9::/48 via 2001:db8::2\n";

/// Checks what the routes of [`ROUTES`] are as events.
fn check_routes(consumer: &Consumer, mode: RouteMode) {
    let a0 = index("a0");
    let via = |gateway: &str| Hop {
        ifindex: a0,
        gateway: Some(address(gateway)),
        weight: 1,
        onlink: false,
    };
    let weighted = |gateway, weight| Hop {
        weight,
        ..via(gateway)
    };
    let direct = Hop {
        ifindex: a0,
        gateway: None,
        weight: 1,
        onlink: false,
    };
    let route = |text: &str, hops: Hops| Route {
        table: MAIN,
        prefix: prefix(text),
        kind: RouteKind::Unicast,
        metric: if text.contains(':') { 1024 } else { 0 },
        tos: 0,
        protocol: 3,
        source: None,
        mtu: 0,
        hops,
        mode,
    };
    let of_kind = |text: &str, kind| Route {
        kind,
        ..route(text, Hops::None)
    };
    let expected = [
        Route {
            metric: 7,
            protocol: 188,
            mtu: 1280,
            source: Some(address("10.0.0.1")),
            ..route("192.0.2.0/25", Hops::One(via("10.0.0.2")))
        },
        Route {
            table: 1000,
            ..route(
                "192.0.2.128/25",
                Hops::One(Hop {
                    onlink: true,
                    ..via("10.0.0.3")
                }),
            )
        },
        route("198.51.100.0/24", Hops::One(via("2001:db8::2"))),
        route(
            "203.0.113.0/24",
            Hops::Many(vec![weighted("10.0.0.2", 3), weighted("2001:db8::2", 256)]),
        ),
        route("10.1.0.0/16", Hops::Object(21)),
        route("10.8.0.0/16", Hops::Object(13)),
        route("10.2.0.0/16", Hops::One(direct)),
        of_kind("10.3.0.0/16", RouteKind::Blackhole),
        of_kind("10.4.0.0/16", RouteKind::Unreachable),
        of_kind("10.5.0.0/16", RouteKind::Prohibit),
        route("0.0.0.0/0", Hops::One(via("10.0.0.2"))),
        Route {
            tos: 0x10,
            ..route("10.6.0.0/16", Hops::One(via("10.0.0.2")))
        },
        route("2001:db8:1::/48", Hops::One(via("2001:db8::2"))),
        route(
            "2001:db8:2::/48",
            Hops::Many(vec![weighted("2001:db8::2", 2), weighted("2001:db8::3", 1)]),
        ),
        route("2001:db8:3::/48", Hops::Object(12)),
    ];
    for route in expected {
        let key = (route.table, route.prefix, route.metric);
        assert_eq!(consumer.routes.get(&key), Some(&route));
    }
    assert!(
        !consumer.routes.contains_key(&(MAIN, prefix("::/0"), 1024)),
        "a route of one source is no route of all"
    );
    let objects = [
        (11, NextHopObjectKind::Hop(via("10.0.0.2"))),
        (12, NextHopObjectKind::Hop(via("2001:db8::2"))),
        (13, NextHopObjectKind::Blackhole),
        (14, NextHopObjectKind::Hop(direct)),
        (21, NextHopObjectKind::Group(vec![(11, 200), (14, 1)])),
        (22, NextHopObjectKind::Group(vec![(11, 1), (14, 1)])),
    ];
    for (id, kind) in objects {
        assert_eq!(consumer.nexthops.get(&id), Some(&kind), "nexthop {id}");
    }
}

#[test]
fn a_dump_tells_what_the_kernel_has_and_notifications_what_it_gets() {
    for is_dumped in [true, false] {
        let test = move || {
            let Some(namespace) = apart() else {
                return;
            };
            cable();
            let mut consumer = Consumer::new(100);
            if is_dumped {
                batch(ROUTES);
            }
            let kernel = open(&namespace, &consumer);
            let mode = if is_dumped {
                dump(&kernel, &mut consumer, &ALL_DUMPS);
                RouteMode::Append
            } else {
                batch(ROUTES);
                let last = (MAIN, prefix("2001:db8:3::/48"), 1024);
                consumer.until("the last route is there", |consumer| {
                    consumer.routes.contains_key(&last)
                });
                RouteMode::Add
            };
            check_routes(&consumer, mode);
            let ignored = kernel.status().ignored;
            assert_eq!((ignored.malformed, ignored.encapsulated), (0, 0));
            wait_for("the counters are published", || {
                kernel.status().ignored.by_source == 1
            });
        };
        std::thread::spawn(test).join().unwrap();
    }
}

#[test]
fn links_addresses_and_neighbours_are_those_of_the_kernel() {
    let Some(namespace) = apart() else {
        return;
    };
    cable();
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    dump(&kernel, &mut consumer, &ALL_DUMPS);
    let changes = consumer.take();
    assert_eq!(changes.first(), Some(&Change::Opened));
    let begins: Vec<&Change> = changes
        .iter()
        .filter(|change| matches!(change, Change::DumpBegins(_)))
        .collect();
    let expected = ALL_DUMPS.map(Change::DumpBegins);
    assert_eq!(begins, expected.iter().collect::<Vec<_>>());

    let link = changes
        .iter()
        .find_map(|change| match change {
            Change::There(Object::Link(link)) if link.name == "a0" => Some(link),
            _ => None,
        })
        .unwrap();
    let (a0, b0) = (index("a0"), index("b0"));
    assert_eq!(
        (link.ifindex, link.mtu, link.up, link.carrier),
        (a0, 1400, true, true)
    );
    assert_eq!((link.mac.0, link.kind), ([2, 0, 0, 0, 0, 10], LinkKind::Other));
    let addresses: Vec<(IpAddr, u8, Option<IpAddr>)> = changes
        .iter()
        .filter_map(|change| match change {
            Change::There(Object::Address(at)) if at.ifindex == a0 => {
                Some((at.address, at.prefix_len, at.peer))
            }
            _ => None,
        })
        .collect();
    for expected in [
        (address("10.0.0.1"), 24, None),
        (address("10.9.0.1"), 32, Some(address("10.9.0.2"))),
        (address("2001:db8::1"), 64, None),
    ] {
        assert!(
            addresses.contains(&expected),
            "{expected:?} is not in {addresses:?}"
        );
    }
    assert!(changes.iter().any(|change| matches!(change,
        Change::There(Object::Neighbour(at)) if at.address == address("10.0.0.2")
            && at.mac.is_some_and(|mac| mac.0 == [2, 0, 0, 0, 0, 2]) && at.state == NeighbourState::Permanent)));
    assert!(changes.iter().any(|change| matches!(change,
        Change::There(Object::Link(link)) if link.kind == LinkKind::Loopback && link.name == "lo")));

    ip("link add link a0 name m0 type macvlan");
    consumer.until_change("a macvlan and its lower link", |change| {
        matches!(change, Change::There(Object::Link(link)) if link.name == "m0" && link.kind == LinkKind::Macvlan { lower: a0 })
    });
    // The lower link is in another namespace, whose numbers mean nothing here.
    let far = Neighbour::start("m0", "link set m0 up\n");
    let mut of_far = Consumer::new(100);
    let far_kernel = Kernel::open(NETNS, &far.namespace, Settings::default(), of_far.sender.clone()).unwrap();
    dump(&far_kernel, &mut of_far, &[Dump::Links]);
    assert!(of_far.changes.iter().any(|change| matches!(change,
        Change::There(Object::Link(link)) if link.name == "m0" && link.kind == LinkKind::Macvlan { lower: 0 })));
    ip("link set b0 down");
    consumer.until_change("the carrier is lost", |change| {
        matches!(change, Change::There(Object::Link(link)) if link.ifindex == a0 && link.up && !link.carrier)
    });
    ip("address del 2001:db8::1/64 dev a0");
    consumer.until_change(
        "the address is gone",
        |change| matches!(change, Change::Gone(Object::Address(at)) if at.address == address("2001:db8::1")),
    );
    ip("neigh del 10.0.0.2 dev a0");
    consumer.until_change("the neighbour is gone", |change| match change {
        Change::Gone(Object::Neighbour(at)) => at.address == address("10.0.0.2"),
        _ => false,
    });
    ip("link del a0");
    consumer.until_change(
        "the link is gone",
        |change| matches!(change, Change::Gone(Object::Link(link)) if link.ifindex == b0),
    );
}

#[test]
fn ports_of_a_kernel_bridge_and_its_table_are_no_links_and_no_neighbours() {
    let Some(namespace) = apart() else {
        return;
    };
    batch(
        "link add brg0 type bridge\n\
         link add a0 type veth peer name b0\n\
         link set a0 up master brg0\n",
    );
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    dump(&kernel, &mut consumer, &ALL_DUMPS);
    consumer.take();
    // The port leaves the bridge (RTM_DELLINK of AF_BRIDGE), and the link stays.
    ip("link set a0 nomaster");
    ip("link set a0 mtu 1300");
    consumer.until_change(
        "the MTU is told",
        |change| matches!(change, Change::There(Object::Link(link)) if link.mtu == 1300),
    );
    assert!(
        !consumer
            .changes
            .iter()
            .any(|change| matches!(change, Change::Gone(Object::Link(_))))
    );
    wait_for("the messages of the bridge are counted", || {
        kernel.status().ignored.others > 0
    });
}

#[test]
fn a_replaced_route_says_so_and_an_appended_one_too() {
    let Some(namespace) = apart() else {
        return;
    };
    cable();
    let mut consumer = Consumer::new(100);
    let _kernel = open(&namespace, &consumer);
    ip("route add 192.0.2.0/24 via 10.0.0.2");
    ip("route replace 192.0.2.0/24 via 10.0.0.3");
    ip("route append 192.0.2.0/24 via 10.0.0.4");
    ip("route del 192.0.2.0/24 via 10.0.0.3");
    consumer.until_change("the removal is told", |change| {
        matches!(change, Change::Gone(Object::Route(_)))
    });
    let seen: Vec<(Option<RouteMode>, Hops)> = consumer
        .take()
        .into_iter()
        .filter_map(|change| match change {
            Change::There(Object::Route(route)) if route.prefix == prefix("192.0.2.0/24") => {
                Some((Some(route.mode), route.hops))
            }
            Change::Gone(Object::Route(route)) => Some((None, route.hops)),
            _ => None,
        })
        .collect();
    let one = |gateway| {
        Hops::One(Hop {
            ifindex: index("a0"),
            gateway: Some(address(gateway)),
            weight: 1,
            onlink: false,
        })
    };
    let expected = [
        (Some(RouteMode::Add), one("10.0.0.2")),
        (Some(RouteMode::Replace), one("10.0.0.3")),
        (Some(RouteMode::Append), one("10.0.0.4")),
        (None, one("10.0.0.3")),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn packets_that_only_an_encapsulation_could_take_are_refused_and_counted() {
    let Some(namespace) = apart() else {
        return;
    };
    cable();
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    batch(
        "route add 192.0.2.0/25 encap ip id 7 dst 10.0.0.2 dev a0\n\
         route add 192.0.2.128/25 nexthop encap ip id 7 dst 10.0.0.2 dev a0 nexthop via 10.0.0.3 weight 2\n\
         nexthop add id 1 encap ip id 7 dst 10.0.0.2 dev a0\n",
    );
    consumer.until("the object is there", |consumer| {
        consumer.nexthops.contains_key(&1)
    });
    let route = |text| &consumer.routes[&(MAIN, prefix(text), 0)];
    let only = route("192.0.2.0/25");
    assert_eq!((only.kind, &only.hops), (RouteKind::Unreachable, &Hops::None));
    let some = route("192.0.2.128/25");
    assert_eq!(some.kind, RouteKind::Unicast);
    assert!(
        matches!(&some.hops, Hops::Many(hops) if hops.len() == 1 && hops[0].gateway == Some(address("10.0.0.3")))
    );
    assert_eq!(consumer.nexthops[&1], NextHopObjectKind::Blackhole);
    wait_for("they are counted by name", || {
        kernel.status().ignored.by_reason().contains(&("encapsulated", 3))
    });
}

#[test]
fn managed_neighbours_stay_managed_when_they_are_probed() {
    let Some(namespace) = apart() else {
        return;
    };
    cable();
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    let (netns, ifindex) = (NETNS, index("a0"));
    for host in ["10.0.0.77", "2001:db8::77"].map(address) {
        let manage = |managed| Action::Manage {
            netns,
            ifindex,
            address: host,
            managed,
        };
        let is_of_host = |change: &Change, managed| matches!(change, Change::There(Object::Neighbour(at)) if at.address == host && at.managed == managed);
        kernel.execute(&manage(true));
        // The kernel asks at once, without traffic.
        consumer.until_change("the kernel asks for a managed neighbour", |change| {
            is_of_host(change, true)
        });
        consumer.take();
        kernel.execute(&Action::Probe {
            netns,
            ifindex,
            address: host,
        });
        consumer.until_change("nobody answers", |change| {
            is_of_host(change, true)
                && matches!(change, Change::There(Object::Neighbour(at)) if at.state == NeighbourState::Failed)
        });
        assert!(!consumer.changes.iter().any(|change| is_of_host(change, false)));
        let family = if host.is_ipv4() { "-4" } else { "-6" };
        assert!(ip(&format!("{family} neigh show {host}")).contains("managed"));
        kernel.execute(&manage(false));
        consumer.until_change("the neighbour is managed no longer", |change| {
            is_of_host(change, false)
        });
        consumer.take();
    }
    kernel.execute(&Action::Probe {
        netns,
        ifindex: 9999,
        address: address("10.0.0.1"),
    });
    wait_for("a request that the kernel refuses is counted", || {
        kernel.status().refused_requests == 1
    });
    assert!(
        kernel.status().last_error.contains("No such device"),
        "{}",
        kernel.status().last_error
    );
}

#[test]
fn static_neighbours_stay_as_they_are_whatever_is_asked_about_them() {
    let Some(namespace) = apart() else {
        return;
    };
    cable();
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    let (netns, ifindex) = (NETNS, index("a0"));
    let hosts = ["10.0.0.77", "2001:db8::77"].map(address);
    for host in hosts {
        batch(&format!(
            "neigh replace {host} lladdr 02:00:00:00:00:77 nud permanent dev a0\n"
        ));
        let manage = |managed| Action::Manage {
            netns,
            ifindex,
            address: host,
            managed,
        };
        let probe = Action::Probe {
            netns,
            ifindex,
            address: host,
        };
        for action in [manage(true), probe, manage(false), probe] {
            kernel.execute(&action);
        }
    }
    // Requests are executed in order: one that shows comes after them all.
    kernel.execute(&Action::Probe {
        netns,
        ifindex,
        address: address("10.0.0.78"),
    });
    consumer.until_change(
        "the last request is executed",
        |change| matches!(change, Change::There(Object::Neighbour(at)) if at.address == address("10.0.0.78")),
    );
    let shown = ip("neigh show nud permanent dev a0");
    for host in hosts {
        assert!(
            shown.contains(&format!("{host} lladdr 02:00:00:00:00:77")),
            "{shown}"
        );
    }
    // A neighbour that is static no longer is managed when it is asked for.
    batch("neigh replace 10.0.0.77 lladdr 02:00:00:00:00:77 nud stale dev a0\n");
    kernel.execute(&Action::Manage {
        netns,
        ifindex,
        address: hosts[0],
        managed: true,
    });
    consumer.until_change("the neighbour is managed", |change| {
        matches!(change, Change::There(Object::Neighbour(at)) if at.address == hosts[0] && at.managed)
    });
}

#[test]
fn a_probe_finds_the_mac_address_of_a_host() {
    let Some(namespace) = apart() else {
        return;
    };
    cable();
    let host = Neighbour::start(
        "b0",
        "address add 10.0.0.9/24 dev b0\nlink set b0 address 02:00:00:00:00:09 up\n",
    );
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    kernel.execute(&Action::Probe {
        netns: NETNS,
        ifindex: index("a0"),
        address: address("10.0.0.9"),
    });
    consumer.until_change("the host answers", |change| {
        matches!(change, Change::There(Object::Neighbour(at)) if at.address == address("10.0.0.9")
            && at.state == NeighbourState::Reachable && at.mac.is_some_and(|mac| mac.0 == [2, 0, 0, 0, 0, 9]))
    });
    drop(host);
}

#[test]
fn the_end_of_a_namespace_is_told_and_one_that_is_missing_is_named() {
    let Some(_here) = apart() else {
        return;
    };
    let name = format!("mr-gone-{}", std::process::id());
    let namespace = Namespace::named(&name);
    let mut consumer = Consumer::new(100);
    let error = Kernel::open(NETNS, &namespace, Settings::default(), consumer.sender.clone())
        .err()
        .unwrap();
    assert!(matches!(error, NamespaceError::Enter { .. }));
    assert!(
        error.to_string().contains(&format!("ip netns add {name}")),
        "{error}"
    );

    ip(&format!("netns add {name}"));
    let kernel = open(&namespace, &consumer);
    consumer.until_change("the namespace is open", |change| *change == Change::Opened);
    assert!(kernel.status().is_open);
    ip(&format!("netns del {name}"));
    consumer.until_change("the namespace is gone", |change| *change == Change::Closed);
    wait_for("the state says so", || !kernel.status().is_open);
    assert_eq!(kernel.status().last_error, "the namespace is gone");
}

#[test]
fn the_reader_ends_with_its_handle_and_asks_nothing_of_a_consumer_that_is_gone() {
    let Some(namespace) = apart() else {
        return;
    };
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    dump(&kernel, &mut consumer, &[Dump::Routes(Family::V4)]);
    drop(kernel);
    consumer.until_change("the reader ended", |change| *change == Change::Closed);
    let kernel = open(&namespace, &consumer);
    drop(consumer);
    kernel.execute(&Action::Dump {
        netns: NETNS,
        dump: Dump::Links,
    });
    wait_for("the reader ended", || !kernel.status().is_open);
}
