//! Packets from one interface to another.

use millrace_fib::NextHopKind;
use millrace_pipeline::DropReason;
use millrace_router::Arrival;
use millrace_router::{Acl, AclAction, AclRule, Glean, explain};
use millrace_wire::{Frame, ipv4};

use crate::harness::{
    Event, SEED, TestBed, datagram, fix_checksum, hop, host_mac, interface, link, router_mac,
};

#[test]
fn a_packet_leaves_to_its_next_hop_with_new_addresses_tag_and_ttl() {
    let mut bed = TestBed::new();
    bed.route("192.0.2.0/24", &[hop(1, 3, Some("10.0.10.3"))]);
    bed.route("2001:db8:f::/48", &[hop(2, 3, Some("2001:db8:20::3"))]);
    let frame = datagram("192.0.2.9", 64, 30);
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&host_mac(1, 3).0);
    expected[6..12].copy_from_slice(&router_mac(1).0);
    expected[22] = 63;
    fix_checksum(&mut expected, 14);
    expected.splice(12..12, [0x81, 0, 0, 10]);
    assert_eq!(bed.one(&frame), [Event::Sent(1, expected)]);
    let frame = datagram("2001:db8:f::9", 2, 30);
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&host_mac(2, 3).0);
    expected[6..12].copy_from_slice(&router_mac(2).0);
    expected[21] = 1;
    expected.splice(12..12, [0x81, 0, 0, 20]);
    assert_eq!(bed.one(&frame), [Event::Sent(2, expected)]);
    assert_eq!(
        (
            bed.stats(0).rx_packets,
            bed.stats(1).tx_packets,
            bed.stats(2).tx_packets
        ),
        (2, 1, 1)
    );
}

#[test]
fn padding_of_the_link_is_not_forwarded() {
    let mut bed = TestBed::new();
    let mut frame = datagram("10.0.10.2", 64, 4);
    let size = frame.len();
    frame.resize(60, 0xee);
    let Event::Sent(1, sent) = &bed.one(&frame)[0] else {
        panic!("sent");
    };
    assert_eq!(sent.len(), size + 4);
}

#[test]
fn flows_spread_over_next_hops_and_stay_when_another_one_dies() {
    let mut bed = TestBed::new();
    let (_, ids) = bed.route(
        "192.0.2.0/24",
        &[hop(1, 2, Some("10.0.10.2")), hop(2, 2, Some("10.0.20.2"))],
    );
    let frames: Vec<Vec<u8>> = (0..2000_u16)
        .map(|port| link(0).ipv4([10, 0, 0, 2], [192, 0, 2, 1]).udp(port, 9).build())
        .collect();
    let out = |events: &[Event]| -> Vec<u16> {
        let index = |event: &Event| match event {
            Event::Sent(index, _) => *index,
            other => panic!("{other:?}"),
        };
        events.iter().map(index).collect()
    };
    let before = out(&bed.receive(&frames));
    let first = before.iter().filter(|index| **index == 1).count();
    assert!((850..1150).contains(&first), "{first}");
    let mut dead = hop(1, 2, Some("10.0.10.2"));
    dead.kind = NextHopKind::Glean;
    bed.writer.set_next_hop(ids[0], &dead);
    assert!(out(&bed.receive(&frames)).iter().all(|index| *index == 2));
    bed.writer.set_next_hop(ids[0], &hop(1, 2, Some("10.0.10.2")));
    assert_eq!(out(&bed.receive(&frames)), before);
    let mut down = interface(1);
    down.is_up = false;
    bed.set(down);
    assert!(out(&bed.receive(&frames)).iter().all(|index| *index == 2));
}

#[test]
fn a_long_packet_is_fragmented_unless_it_forbids_that() {
    let mut bed = TestBed::new();
    let frame = datagram("10.0.10.2", 64, 1472);
    let events = bed.one(&frame);
    let mut data = Vec::new();
    for event in &events {
        let Event::Sent(1, bytes) = event else {
            panic!("{event:?}");
        };
        let view = ipv4::View::new(&bytes[18..]).unwrap();
        assert!(view.checksum_is_right() && bytes.len() - 18 <= 1400 && view.ttl() == 63);
        assert_eq!(usize::from(view.fragment_offset()) * 8, data.len());
        data.extend_from_slice(view.payload());
    }
    assert_eq!((events.len(), &data[..]), (2, &frame[34..]));
    assert_eq!(bed.stats(1).fragments, 2);
    let exact = datagram("10.0.10.2", 64, 1372);
    assert_eq!(bed.one(&exact).len(), 1);
}

#[test]
fn segments_of_a_gso_packet_are_what_the_mtu_limits() {
    let mut bed = TestBed::new();
    let tcp = millrace_wire::tcp::Repr::parse(
        &millrace_wire::tcp::View::new(&[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0])
            .unwrap(),
    );
    let bytes = link(0)
        .ipv4([10, 0, 0, 2], [10, 0, 10, 2])
        .tcp(tcp)
        .payload(&[7; 9000])
        .build();
    let gso = |size: u16| Frame::new(&bytes).to_gso(size.try_into().unwrap());
    let events = bed.receive_frames(vec![gso(1360)]);
    assert!(matches!(&events[..], [Event::Sent(1, sent)] if sent.len() == bytes.len() + 4));
    let events = bed.receive_frames(vec![gso(1400)]);
    assert_eq!(
        events.len(),
        2 * 6 + 1,
        "six segments of 1440 bytes in two, and the last one"
    );
}

#[test]
fn a_packet_to_an_unknown_neighbour_waits_as_it_arrived() {
    let mut bed = TestBed::new();
    let frame = datagram("10.0.20.77", 64, 30);
    let glean = Glean {
        interface: 2,
        neighbour: "10.0.20.77".parse().unwrap(),
    };
    assert_eq!(bed.one(&frame), [Event::Waits(glean, frame.clone())]);
    bed.out.is_full = true;
    assert_eq!(bed.one(&frame), [Event::Dropped(DropReason::RouteNeighbour)]);
    bed.out.is_full = false;
    let mut via = hop(2, 9, Some("10.0.20.9"));
    via.kind = NextHopKind::Glean;
    bed.route("198.51.100.0/24", &[via]);
    let frame = datagram("198.51.100.1", 64, 30);
    let glean = Glean {
        interface: 2,
        neighbour: "10.0.20.9".parse().unwrap(),
    };
    assert_eq!(bed.one(&frame), [Event::Waits(glean, frame)]);
}

#[test]
fn access_lists_of_both_sides_decide() {
    let mut bed = TestBed::new();
    let rule = |action, text: &str| AclRule {
        match_: text.parse().unwrap(),
        action,
    };
    let acl = |rules: &[AclRule]| Some(Acl::new(rules, 1).into());
    let mut v0 = interface(0);
    v0.acl_in = acl(&[
        rule(AclAction::Deny, "ip,nw_dst=10.0.10.3"),
        rule(AclAction::Permit, "ip"),
    ]);
    bed.set(v0);
    let mut v10 = interface(1);
    v10.acl_out = acl(&[rule(AclAction::Permit, "udp,tp_dst=2001")]);
    bed.set(v10);
    let drop = |reason| [Event::Dropped(reason)];
    assert_eq!(
        bed.one(&datagram("10.0.10.3", 64, 1)),
        drop(DropReason::RouteAclIn)
    );
    assert_eq!(
        bed.one(&datagram("10.0.10.2", 64, 1)),
        drop(DropReason::RouteAclOut)
    );
    assert!(matches!(
        &bed.one(&datagram("10.0.20.2", 64, 1))[..],
        [Event::Sent(2, _)]
    ));
    assert_eq!(
        bed.one(&datagram("2001:db8:10::2", 64, 1)),
        drop(DropReason::RouteAclIn)
    );
}

#[test]
fn vrfs_with_the_same_addresses_are_apart() {
    let mut bed = TestBed::new();
    let frame = link(3).ipv4([10, 0, 10, 2], [10, 0, 10, 3]).udp(1, 2).build();
    assert!(matches!(&bed.one(&frame)[..], [Event::Sent(3, _)]));
    let frame = link(3).ipv4([10, 0, 10, 2], [10, 0, 20, 2]).udp(1, 2).build();
    let events = bed.one(&frame);
    assert_eq!(events[0], Event::Dropped(DropReason::RouteNone));
}

#[test]
fn an_explanation_names_route_next_hop_ttl_and_error() {
    let mut bed = TestBed::new();
    let arrival = Arrival::of_bridge(0);
    let text = |bed: &TestBed, frame: &[u8]| explain(&bed.state, arrival, frame, SEED, bed.now).to_string();
    let forwarded = text(&bed, &datagram("10.0.10.2", 64, 1));
    for part in [
        "received at interface v0, VRF 0",
        "next-hop group",
        "neighbour 02:00:00:01:01:02",
        "MTU 1400",
        "64 -> 63",
        "-> interface v10",
    ] {
        assert!(forwarded.contains(part), "{part} in\n{forwarded}");
    }
    let expired = text(&bed, &datagram("10.0.10.2", 1, 1));
    assert!(
        expired.contains("ICMP error from 10.0.0.1: time exceeded"),
        "{expired}"
    );
    assert!(expired.contains("dropped: route_ttl."), "{expired}");
    let long = text(&bed, &datagram("2001:db8:10::2", 64, 1440));
    assert!(long.contains("packet too big, MTU 1400"), "{long}");
    let local = text(&bed, &datagram("10.0.10.1", 64, 1));
    assert!(local.contains("-> kernel, interface v0, class local"), "{local}");
    let waits = text(&bed, &datagram("10.0.10.99", 64, 1));
    assert!(waits.contains("asked for 10.0.10.99 at v10"), "{waits}");
    assert_eq!(bed.stats(0).rx_packets, 0, "an explanation counts nothing");
    bed.one(&datagram("10.0.10.2", 64, 1));
    assert_eq!(bed.stats(0).rx_packets, 1);
}
