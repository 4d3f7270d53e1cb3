//! Each rule of the kernel by itself.

use millrace_fib::Family;

use crate::bed::{Bed, ip};

/// Makes a route by each way: one hop, two hops, a source address, an object, a group; of both families.
fn routes() {
    ip(&[
        "route add 192.0.2.0/24 via 10.0.2.9",
        "route add 192.0.3.0/24 nexthop via 10.0.2.9 weight 1 nexthop via 10.0.3.9 weight 2",
        "route add 192.0.4.0/24 via 10.0.3.9 src 10.0.2.1",
        "nexthop add id 1 via 10.0.2.9 dev v2",
        "nexthop add id 2 via 10.0.3.9 dev v3",
        "nexthop add id 3 via 2001:db8:2::9 dev v2",
        "nexthop add id 10 group 1/2",
        "nexthop add id 11 group 1",
        "route add 192.0.5.0/24 nhid 10",
        "route add 192.0.6.0/24 nhid 1",
        "route add 192.0.7.0/24 nhid 11",
        "route add 192.0.8.0/24 via inet6 2001:db8:2::9 dev v2",
        "route add blackhole 192.0.9.0/24",
        "route add 192.0.10.0/24 dev v2",
        "route add 2001:db8:1000::/64 via 2001:db8:2::9",
        "route add 2001:db8:1001::/64 nhid 3",
        "route add 2001:db8:1002::/64 nexthop via 2001:db8:2::9 nexthop via 2001:db8:3::9",
    ]);
}

/// Executes steps, and compares after each.
fn compared_after(steps: &[&[&str]]) {
    let Some(mut bed) = Bed::new() else {
        return;
    };
    routes();
    bed.compare(&[]);
    assert!(bed.len(Family::V4) >= 12, "{}", bed.len(Family::V4));
    for step in steps {
        ip(step);
        bed.compare(&[]);
    }
}

#[test]
fn carrier_is_lost_and_comes_back() {
    compared_after(&[&["link set w2 down"], &["link set w2 up"]]);
}

#[test]
fn a_link_goes_down_and_up() {
    compared_after(&[
        &["link set v2 down"],
        &["link set v2 up"],
        &["link set v3 down", "link set v2 down"],
        &["link set v3 up"],
    ]);
}

#[test]
fn a_link_is_deleted() {
    compared_after(&[&["link del v3"], &["link del v2"]]);
}

#[test]
fn addresses_are_deleted_and_added_again() {
    compared_after(&[
        &["addr add 10.9.0.1/24 dev v2"],
        &["addr del 10.0.2.1/24 dev v2"],
        &["addr del 10.9.0.1/24 dev v2"],
        &["addr add 10.0.2.1/24 dev v2"],
        &["addr del 2001:db8:2::1/64 dev v2"],
    ]);
}

#[test]
fn nexthop_objects_are_deleted_and_replaced() {
    compared_after(&[
        &["nexthop replace id 10 group 2"],
        &["nexthop replace id 1 via 10.0.4.9 dev v4"],
        &["nexthop del id 2"],
        &[
            "nexthop add id 2 via 10.0.3.8 dev v3",
            "nexthop replace id 11 group 1/2",
        ],
        &["nexthop del id 1"],
        &["nexthop del id 3"],
        &["nexthop flush"],
    ]);
}

#[test]
fn routes_of_one_prefix_are_ordered_by_metric_and_by_coming() {
    compared_after(&[
        &[
            "route add 192.0.2.0/24 via 10.0.3.9 metric 10",
            "route append 192.0.2.0/24 via 10.0.4.9",
        ],
        &["route prepend 192.0.2.0/24 via 10.0.4.8"],
        &["route replace 192.0.2.0/24 via 10.0.4.7"],
        &["route del 192.0.2.0/24 via 10.0.4.7"],
        &["route append 2001:db8:1000::/64 via 2001:db8:3::9"],
        &["route append 2001:db8:1000::/64 via 2001:db8:4::9"],
        &["route del 2001:db8:1000::/64 via 2001:db8:3::9"],
        &["route replace 2001:db8:1000::/64 via 2001:db8:4::8"],
        &["route add 2001:db8:1000::/64 via 2001:db8:3::9 metric 10"],
        &["route del 2001:db8:1002::/64"],
    ]);
}
