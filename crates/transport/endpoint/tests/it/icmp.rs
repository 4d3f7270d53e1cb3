//! ICMP: echo, errors that lower the path MTU or are reported, and forged ones.

use std::net::{IpAddr, SocketAddr};

use millrace_endpoint::limits::{ECHO_RATE, ERROR_RATE};
use millrace_endpoint::{DropReason, Event, Received, SendError, UnreachableReason};
use millrace_types::{Duration, Mac};
use millrace_wire::ip::Pseudo;
use millrace_wire::{Builder, icmpv4, icmpv6, ipv4};

use crate::link::{Link, mac};

const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0xfe]);

/// Returns an ICMPv4 message to host 0 in a frame.
fn icmp4(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    Builder::ethernet(mac(1), ROUTER)
        .ipv4([192, 0, 2, 254], [192, 0, 2, 1])
        .icmpv4(icmpv4::Repr {
            kind,
            code,
            rest_of_header: rest,
        })
        .payload(payload)
        .build()
}

/// Returns an ICMPv6 message to host 0 in a frame.
fn icmp6(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let (src, dst) = ("2001:db8::fe".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let body = [&rest[..], payload].concat();
    let mut message = Vec::new();
    icmpv6::Repr { kind, code }.emit(&Pseudo::V6 { src, dst }, &body, &mut message);
    let header = millrace_wire::ipv6::Repr {
        src,
        dst,
        next_header: millrace_wire::IpProto::ICMPV6,
        dscp: Default::default(),
        ecn: Default::default(),
        flow_label: Default::default(),
        hop_limit: 63,
        payload_size: message.len() as u16,
    };
    [
        &mac(1).0[..],
        &ROUTER.0,
        &[0x86, 0xdd],
        &header.to_bytes(),
        &message,
    ]
    .concat()
}

/// Returns a pair whose host 0 has sent datagrams of 1,400 bytes, and the IP packet of the last one.
fn after_sending(to: &str) -> (Link, Vec<u8>) {
    let mut link = Link::pair();
    for number in 0..3 {
        link.send(0, to, &[&[number; 1_400]], 1_400).unwrap();
    }
    let packet = link.seen.last().unwrap()[14..].to_vec();
    link.hosts[0].events.clear();
    (link, packet)
}

#[test]
fn echo_requests_are_answered_as_they_were_at_a_limited_rate() {
    let mut link = Link::pair();
    let payload: Vec<u8> = (0..1_000_u32).map(|at| at as u8).collect();
    let v4 = icmp4(icmpv4::ECHO_REQUEST, 0, [1, 2, 3, 4], &payload);
    assert_eq!(link.inject(0, &v4), Received::Handled);
    link.deliver();
    let answer = link.seen.pop().unwrap();
    let ip = ipv4::View::new(&answer[14..]).unwrap();
    let icmp = icmpv4::View::new(ip.payload()).unwrap();
    assert!(ip.checksum_is_right() && icmp.checksum_is_right());
    assert_eq!(
        (icmp.kind(), icmp.rest_of_header(), icmp.payload()),
        (icmpv4::ECHO_REPLY, [1, 2, 3, 4], &payload[..])
    );
    assert_eq!(answer[..6], ROUTER.0);

    assert_eq!(
        link.inject(0, &icmp6(icmpv6::ECHO_REQUEST, 0, [1, 2, 3, 4], &payload)),
        Received::Handled
    );
    link.deliver();
    let answer = link.seen.pop().unwrap();
    let ip = millrace_wire::ipv6::View::new(&answer[14..]).unwrap();
    let icmp = icmpv6::View::new(ip.payload()).unwrap();
    assert!(icmp.checksum_is_right(&ip.pseudo()));
    assert_eq!(
        (icmp.kind(), icmp.payload()),
        (icmpv6::ECHO_REPLY, &[&[1, 2, 3, 4], &payload[..]].concat()[..])
    );

    link.run(Duration::from_secs(1));
    let answered = (0..2 * ECHO_RATE)
        .filter(|_| link.inject(0, &v4) == Received::Handled)
        .count();
    assert_eq!(answered, ECHO_RATE as usize);
    assert_eq!(
        link.hosts[0].endpoint.counters().dropped(DropReason::RateLimit),
        u64::from(ECHO_RATE)
    );
}

#[test]
fn too_big_lowers_the_path_mtu_for_a_packet_that_was_sent() {
    let (mut link, packet) = after_sending("192.0.2.2:7800");
    let to: IpAddr = "192.0.2.2".parse().unwrap();
    assert_eq!(
        link.inject(0, &icmp4(3, 4, [0, 0, 5, 100], &packet[..28])),
        Received::Handled
    );
    link.deliver();
    assert_eq!(link.hosts[0].events, [Event::PathMtu { to, mtu: 1_380 }]);
    assert_eq!(link.hosts[0].endpoint.path_mtu(to), 1_380);
    let refused = link.send(0, "192.0.2.2:7800", &[&[0; 1_353]], 1_353);
    assert_eq!(
        refused,
        Err(SendError::TooBig {
            to,
            size: 1_381,
            mtu: 1_380
        })
    );
    assert_eq!(link.send(0, "192.0.2.2:7800", &[&[0; 1_352]], 1_352), Ok(1));
    link.run(Duration::from_secs(601));
    assert_eq!(link.hosts[0].endpoint.path_mtu(to), 1_500);

    let (mut link, packet) = after_sending("[2001:db8::2]:7800");
    let to: IpAddr = "2001:db8::2".parse().unwrap();
    let mtu = 1_300_u32.to_be_bytes();
    assert_eq!(
        link.inject(0, &icmp6(2, 0, mtu, &packet[..1_232])),
        Received::Handled
    );
    assert_eq!(link.hosts[0].endpoint.path_mtu(to), 1_300);
}

#[test]
fn forged_errors_change_nothing() {
    let refused = Received::Dropped(DropReason::Quotation);
    let (mut link, packet) = after_sending("192.0.2.2:7800");
    // Source and destination, identification, ports, UDP size and checksum; a fragment; options; another protocol.
    for at in [0, 4, 5, 7, 9, 15, 19, 21, 24, 25, 26, 27] {
        let mut forged = packet[..28].to_vec();
        forged[at] ^= 1;
        assert_eq!(
            link.inject(0, &icmp4(3, 4, [0, 0, 5, 0], &forged)),
            refused,
            "byte {at}"
        );
        assert_eq!(
            link.inject(0, &icmp4(3, 3, [0; 4], &forged)),
            refused,
            "byte {at}"
        );
    }
    for len in 0..28 {
        assert_eq!(
            link.inject(0, &icmp4(3, 4, [0, 0, 5, 0], &packet[..len])),
            refused
        );
    }
    // The path MTU falls neither below the size of the packet nor below the floor.
    assert_eq!(
        link.inject(0, &icmp4(3, 4, [0, 0, 5, 148], &packet[..28])),
        refused
    );
    let (mut link, packet) = after_sending("[2001:db8::2]:7800");
    for at in [1, 2, 3, 6, 23, 39, 41, 44, 45, 46, 47] {
        let mut forged = packet[..100].to_vec();
        forged[at] ^= 1;
        assert_eq!(
            link.inject(0, &icmp6(2, 0, 1_300_u32.to_be_bytes(), &forged)),
            refused,
            "byte {at}"
        );
    }
    assert_eq!(
        link.inject(0, &icmp6(2, 0, 1_279_u32.to_be_bytes(), &packet)),
        refused
    );
    assert!(link.hosts.iter().all(|host| {
        host.events
            .iter()
            .all(|event| !matches!(event, Event::PathMtu { .. }))
    }));
}

#[test]
fn unreachable_destinations_are_reported_with_the_reason() {
    use UnreachableReason as Reason;
    let (mut link, packet) = after_sending("192.0.2.2:7800");
    let cases = [
        (3, 0, Reason::Network),
        (3, 1, Reason::Host),
        (3, 2, Reason::Protocol),
        (3, 3, Reason::Port),
        (3, 13, Reason::Prohibited),
        (11, 0, Reason::HopLimit),
    ];
    for (kind, code, reason) in cases {
        link.inject(0, &icmp4(kind, code, [0; 4], &packet[..28]));
        link.deliver();
        let to: SocketAddr = "192.0.2.2:7800".parse().unwrap();
        assert_eq!(
            link.hosts[0].events.pop(),
            Some(Event::Unreachable { to, reason })
        );
    }
    let (mut link, packet) = after_sending("[2001:db8::2]:7800");
    let cases = [
        (1, 0, Reason::Network),
        (1, 1, Reason::Prohibited),
        (1, 3, Reason::Host),
        (1, 4, Reason::Port),
        (3, 0, Reason::HopLimit),
    ];
    for (kind, code, reason) in cases {
        link.inject(0, &icmp6(kind, code, [0; 4], &packet[..100]));
        link.deliver();
        let to: SocketAddr = "[2001:db8::2]:7800".parse().unwrap();
        assert_eq!(
            link.hosts[0].events.pop(),
            Some(Event::Unreachable { to, reason })
        );
    }
}

#[test]
fn a_port_without_a_listener_is_reported_to_the_sender_at_a_limited_rate() {
    for (to, number) in [("192.0.2.2:9", 40), ("[2001:db8::2]:9", 40)] {
        let mut link = Link::pair();
        for _ in 0..number {
            link.send(0, to, &[b"x"], 100).unwrap();
        }
        let unreachable = Event::Unreachable {
            to: to.parse().unwrap(),
            reason: UnreachableReason::Port,
        };
        let reported = link.hosts[0]
            .events
            .iter()
            .filter(|event| **event == unreachable)
            .count();
        assert_eq!(reported, ERROR_RATE as usize);
    }
}
