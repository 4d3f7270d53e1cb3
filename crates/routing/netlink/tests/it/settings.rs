//! The kernel's settings in the namespace of a VRF.

use std::fs;

use millrace_fib::Family;
use millrace_rib::event::{Change, Object};

use crate::bed::{Consumer, Neighbour, apart, batch, ip, open, run, wait_for};

fn read(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/net/{name}"))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn the_kernel_does_not_forward_in_the_namespace_and_a_daemon_cannot_make_it() {
    let Some(namespace) = apart() else {
        return;
    };
    fs::write("/proc/sys/net/ipv4/conf/all/forwarding", "1").unwrap();
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    let mut consumer = Consumer::new(100);
    let kernel = open(&namespace, &consumer);
    for round in 1..=2 {
        for family in ["ipv4", "ipv6"] {
            wait_for("forwarding is off", || {
                read(&format!("{family}/conf/all/forwarding")) == "0"
            });
        }
        assert_eq!(read("ipv4/conf/lo/forwarding"), "0");
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        wait_for("it was turned off again", || {
            kernel.status().forwarding_resets >= 2 * round
        });
    }
    assert!(
        kernel.status().last_error.contains("forwarding on"),
        "{}",
        kernel.status().last_error
    );
    assert_eq!(read("ipv4/nexthop_compat_mode"), "0");
    assert_eq!(read("ipv6/conf/default/accept_ra"), "0");
    consumer.poll();
}

#[test]
fn the_replacement_of_a_group_is_one_message() {
    let Some(namespace) = apart() else {
        return;
    };
    let mut consumer = Consumer::new(100);
    let _kernel = open(&namespace, &consumer);
    batch(
        "link add a0 type veth peer name b0\n\
         link set a0 up\n\
         link set b0 up\n\
         address add 10.0.0.1/24 dev a0\n\
         nexthop add id 1 via 10.0.0.2 dev a0\n\
         nexthop add id 2 via 10.0.0.3 dev a0\n\
         nexthop add id 3 group 1\n",
    );
    let routes: String = (0..50)
        .map(|number| format!("route add 10.1.{number}.0/24 nhid 3\n"))
        .collect();
    batch(&routes);
    consumer.until("the routes are there", |consumer| {
        consumer.count(254, Family::V4, 3) == 50
    });
    consumer.take();
    ip("nexthop replace id 3 group 1/2");
    ip("nexthop add id 4 blackhole");
    consumer.until("the last object is there", |consumer| {
        consumer.nexthops.contains_key(&4)
    });
    let changes = consumer.take();
    assert!(
        changes
            .iter()
            .all(|change| matches!(change, Change::There(Object::NextHop(_)))),
        "{changes:?}"
    );
    assert_eq!(changes.len(), 2);
}

#[test]
fn hosts_see_a_router_in_neighbour_advertisements_and_it_forwards_nothing() {
    let Some(namespace) = apart() else {
        return;
    };
    batch(
        "link add a0 type veth peer name b0\n\
         link add c0 type veth peer name d0\n",
    );
    let consumer = Consumer::new(100);
    let _kernel = open(&namespace, &consumer);
    batch(
        "address add 2001:db8::1/64 dev a0 nodad\n\
         address add 2001:db8:1::1/64 dev c0 nodad\n\
         link set a0 up\n\
         link set c0 up\n",
    );
    let host = Neighbour::start(
        "b0",
        "link set b0 up\naddress add 2001:db8::2/64 dev b0 nodad\nroute add ::/0 via 2001:db8::1\n",
    );
    let far = Neighbour::start(
        "d0",
        "link set d0 up\naddress add 2001:db8:1::2/64 dev d0 nodad\nroute add ::/0 via 2001:db8:1::1\n",
    );
    let ping = |to: &'static str| {
        move || {
            std::process::Command::new("ping")
                .args(["-6", "-c", "1", "-W", "1", to])
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap()
                .success()
        }
    };
    host.on(move || wait_for("the router answers", ping("2001:db8::1")));
    let entry = host.on(|| run("ip", &["-6", "neigh", "show", "2001:db8::1"]));
    assert!(entry.contains("router"), "{entry}");
    far.on(move || wait_for("the router answers the other host", ping("2001:db8:1::1")));
    assert!(!host.on(ping("2001:db8:1::2")), "the kernel forwarded");
}
