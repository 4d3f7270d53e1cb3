//! ICMP errors: to whom they go, what they say, and when none is sent.

use std::net::Ipv6Addr;

use millrace_fib::{NextHopKind, NextHopSpec};
use millrace_pipeline::DropReason;
use millrace_router::ErrorClass;
use millrace_types::Mac;
use millrace_wire::ip::Pseudo;
use millrace_wire::{Builder, Frame, icmpv4, icmpv6, ipv4, ipv6};

use crate::harness::{Event, TestBed, datagram, fix_checksum, hop, host_mac, link};

/// Returns type, code, the word after the checksum, and the quotation of the error that a frame causes. Checks its other
/// fields.
fn error_about(bed: &mut TestBed, frame: &[u8], reason: DropReason) -> (u8, u8, u32, Vec<u8>) {
    let events = bed.one(frame);
    let [Event::Dropped(dropped), Event::Sent(0, sent)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*dropped, reason);
    assert_eq!(sent[..6], host_mac(0, 2).0);
    let body = &sent[14..];
    let parts = |icmp: &[u8]| {
        let rest = u32::from_be_bytes(icmp[4..8].try_into().unwrap());
        (icmp[0], icmp[1], rest, icmp[8..].to_vec())
    };
    if frame[12] == 8 {
        let ip = ipv4::View::new(body).unwrap();
        assert!(ip.checksum_is_right() && icmpv4::View::new(ip.payload()).unwrap().checksum_is_right());
        assert_eq!(
            (ip.src().octets(), ip.dst().octets(), ip.ttl()),
            ([10, 0, 0, 1], [10, 0, 0, 2], 64)
        );
        assert!(body.len() <= 576);
        parts(ip.payload())
    } else {
        let ip = ipv6::View::new(body).unwrap();
        let pseudo = Pseudo::V6 {
            src: ip.src(),
            dst: ip.dst(),
        };
        assert!(
            icmpv6::View::new(ip.payload())
                .unwrap()
                .checksum_is_right(&pseudo)
        );
        assert_eq!(ip.src(), "2001:db8::1".parse::<Ipv6Addr>().unwrap());
        assert!(body.len() <= 1280 && ip.hop_limit() == 64);
        parts(ip.payload())
    }
}

#[test]
fn each_cause_has_its_error_which_quotes_the_packet() {
    let mut bed = TestBed::new();
    for (prefix, kind) in [
        ("192.0.2.0/24", NextHopKind::Unreachable),
        ("198.51.100.0/24", NextHopKind::Prohibit),
        ("2001:db8:a::/48", NextHopKind::Unreachable),
        ("2001:db8:b::/48", NextHopKind::Prohibit),
    ] {
        bed.route(prefix, &[NextHopSpec::without_interface(kind)]);
    }
    let large = |dst| {
        let mut frame = datagram(dst, 64, 1450);
        if frame[12] == 8 {
            frame[20] |= 0x40;
            fix_checksum(&mut frame, 14);
        }
        frame
    };
    for (frame, reason, expected) in [
        (datagram("10.0.10.2", 1, 9), DropReason::RouteTtl, (11, 0, 0)),
        (datagram("10.0.10.2", 0, 9), DropReason::RouteTtl, (11, 0, 0)),
        (datagram("203.0.113.1", 64, 9), DropReason::RouteNone, (3, 0, 0)),
        (
            datagram("192.0.2.1", 64, 9),
            DropReason::RouteUnreachable,
            (3, 1, 0),
        ),
        (
            datagram("198.51.100.1", 64, 9),
            DropReason::RouteProhibited,
            (3, 13, 0),
        ),
        (large("10.0.10.2"), DropReason::RouteMtu, (3, 4, 1400)),
        (datagram("2001:db8:10::2", 1, 9), DropReason::RouteTtl, (3, 0, 0)),
        (datagram("2001:db8:ff::2", 9, 9), DropReason::RouteNone, (1, 0, 0)),
        (
            datagram("2001:db8:a::2", 9, 9),
            DropReason::RouteUnreachable,
            (1, 0, 0),
        ),
        (
            datagram("2001:db8:b::2", 9, 9),
            DropReason::RouteProhibited,
            (1, 1, 0),
        ),
        (large("2001:db8:10::2"), DropReason::RouteMtu, (2, 0, 1400)),
    ] {
        let (kind, code, rest, quoted) = error_about(&mut bed, &frame, reason);
        assert_eq!((kind, code, rest), expected);
        assert!(frame[14..].starts_with(&quoted), "the packet as it arrived");
        let most = if frame[12] == 8 { 548 } else { 1232 };
        assert_eq!(quoted.len(), (frame.len() - 14).min(most));
    }
    let stats = bed.stats(0);
    assert_eq!(stats.errors, [3, 2, 6, 0]);
}

#[test]
fn options_that_are_wrong_are_pointed_at() {
    let mut bed = TestBed::new();
    let plain = datagram("10.0.10.2", 9, 0);
    let repr = ipv4::Repr::parse(&ipv4::View::new(&plain[14..]).unwrap());
    let with = |options: &'static [u8]| {
        let options = ipv4::Options::new(options).unwrap();
        link(0)
            .ipv4_with(ipv4::Repr { options, ..repr })
            .udp(1, 2)
            .build()
    };
    let (kind, code, rest, _) = error_about(&mut bed, &with(&[1, 7, 3, 3]), DropReason::RouteOptions);
    assert_eq!((kind, code, rest), (12, 0, 23 << 24));
    let routed = with(&[131, 7, 4, 10, 0, 20, 1, 0]);
    assert_eq!(bed.one(&routed), [Event::Dropped(DropReason::RouteOptions)]);
    let recorded = bed.one(&with(&[7, 7, 4, 0, 0, 0, 0, 0]));
    let [Event::Sent(1, sent)] = &recorded[..] else {
        panic!("{recorded:?}");
    };
    assert_eq!(
        sent[38..45],
        [7, 7, 8, 10, 0, 10, 1],
        "the address of the egress interface"
    );
    assert!(ipv4::View::new(&sent[18..]).unwrap().checksum_is_right());
    let mut hop_by_hop = datagram("2001:db8:10::2", 9, 8);
    hop_by_hop[20] = 0;
    hop_by_hop[54..62].copy_from_slice(&[59, 0, 0x80, 4, 0, 0, 0, 0]);
    let (kind, code, rest, _) = error_about(&mut bed, &hop_by_hop, DropReason::RouteOptions);
    assert_eq!((kind, code, rest), (4, 2, 42));
}

#[test]
fn no_error_is_sent_about_errors_groups_later_fragments_and_nobody() {
    let mut bed = TestBed::new();
    let icmp = |kind, code| {
        let repr = icmpv4::Repr {
            kind,
            code,
            rest_of_header: [0; 4],
        };
        link(0)
            .ipv4([10, 0, 0, 2], [203, 0, 113, 1])
            .icmpv4(repr)
            .payload(&[0; 28])
            .build()
    };
    let mut later = datagram("203.0.113.1", 9, 9);
    later[21] = 1;
    fix_checksum(&mut later, 14);
    let mut to_group = datagram("203.0.113.1", 9, 9);
    to_group[..6].copy_from_slice(&Mac::BROADCAST.0);
    let unknown6 = "2001:db8:ff::1".parse::<Ipv6Addr>().unwrap();
    let error6 = link(0).ipv6("2001:db8::2".parse::<Ipv6Addr>().unwrap(), unknown6);
    for frame in [
        icmp(3, 1),
        icmp(11, 0),
        icmp(12, 0),
        icmp(5, 1),
        icmp(99, 0),
        later,
        to_group,
    ] {
        assert_eq!(bed.one(&frame), [Event::Dropped(DropReason::RouteNone)]);
    }
    for kind in [1, 2, 3, 4, 127, 137] {
        let frame = error6.clone().icmpv6(kind, 0).payload(&[0; 8]).build();
        assert_eq!(
            bed.one(&frame),
            [Event::Dropped(DropReason::RouteNone)],
            "type {kind}"
        );
    }
    assert_eq!(bed.one(&icmp(8, 0)).len(), 2, "an echo request is no error");
    assert_eq!(bed.one(&error6.icmpv6(128, 0).payload(&[0; 4]).build()).len(), 2);
}

#[test]
fn a_source_of_the_link_does_not_leave_it() {
    let mut bed = TestBed::new();
    bed.route("fe80::/64", &[hop(0, 2, None)]);
    let of_link: Ipv6Addr = "fe80::2".parse().unwrap();
    let frame = link(0)
        .ipv6(of_link, "2001:db8:10::2".parse::<Ipv6Addr>().unwrap())
        .udp(1, 2)
        .build();
    let events = bed.one(&frame);
    let [Event::Dropped(DropReason::RouteScope), Event::Sent(0, sent)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(sent[54..56], [1, 2]);
    let frame = link(0)
        .ipv6("2001:db8::2".parse::<Ipv6Addr>().unwrap(), of_link)
        .udp(1, 2)
        .build();
    assert_eq!(bed.one(&frame), [Event::Dropped(DropReason::RouteScope)]);
}

#[test]
fn errors_have_a_rate_and_the_packets_beyond_it_are_still_dropped_by_name() {
    let mut bed = TestBed::new();
    let frame = datagram("10.0.10.2", 1, 9);
    let events = bed.receive(&vec![frame; 1000]);
    let sent = events
        .iter()
        .filter(|event| matches!(event, Event::Sent(..)))
        .count();
    let dropped = events
        .iter()
        .filter(|event| **event == Event::Dropped(DropReason::RouteTtl))
        .count();
    assert_eq!((sent, dropped), (50, 1000));
    let stats = bed.stats(0);
    assert_eq!(stats.errors[ErrorClass::TimeExceeded as usize], 50);
    assert_eq!(stats.errors_limited[ErrorClass::TimeExceeded as usize], 950);
    let other = bed.one(&datagram("203.0.113.1", 64, 9));
    assert_eq!(other.len(), 2, "another class has a rate of its own");
}

#[test]
fn an_error_about_a_packet_in_several_segments_quotes_all_of_them() {
    let mut bed = TestBed::new();
    let bytes = datagram("10.0.10.2", 1, 900);
    for head in [34, 60, 400, 700] {
        let events = bed.receive_frames(vec![Frame::segmented(&bytes, head)]);
        let [_, Event::Sent(0, sent)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(sent[42..], bytes[14..562]);
        assert!(icmpv4::View::new(&sent[34..]).unwrap().checksum_is_right());
    }
}

#[test]
fn a_sender_whose_address_is_not_known_is_asked_for() {
    let mut bed = TestBed::new();
    let frame = Builder::ethernet(crate::harness::router_mac(0), host_mac(0, 9));
    let mut frame = frame.ipv4([10, 0, 0, 9], [10, 0, 10, 2]).udp(1, 2).build();
    frame[22] = 1;
    fix_checksum(&mut frame, 14);
    let events = bed.one(&frame);
    assert!(
        matches!(&events[..], [Event::Dropped(DropReason::RouteTtl), Event::Probe(glean)] if glean.interface == 0)
    );
}
