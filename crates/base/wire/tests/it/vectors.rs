//! Frames that scapy built, before and after one change: an independent implementation gives the expected bytes.
//! `vectors/make.py` creates them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use millrace_types::{Pcp, Vid};
use millrace_wire::{
    Depth, Dscp, Ecn, FlowLabel, L3, L4, Layers, MplsLabel, Tc, arp, icmpv4, icmpv6, ipv4, ipv6, mpls,
    rewrite, sctp, tcp, udp,
};

struct Vector<'a> {
    name: &'a str,
    field: &'a str,
    value: &'a str,
    before: Vec<u8>,
    after: Vec<u8>,
}

fn vectors() -> Vec<Vector<'static>> {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
            .collect()
    };
    let lines = include_str!("vectors/scapy.txt").lines();
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (field, value) = words[1].split_once('=').unwrap();
            Vector {
                name: words[0],
                field,
                value,
                before: bytes(words[2]),
                after: bytes(words[3]),
            }
        })
        .collect()
}

fn set(field: &str, value: &str, head: &mut [u8], layers: &Layers) -> bool {
    let number = || value.parse::<u32>().unwrap();
    let mac = || value.parse().unwrap();
    match field {
        "none" => true,
        "eth_src" => rewrite::eth_src(head, mac()),
        "eth_dst" => rewrite::eth_dst(head, mac()),
        "vlan_vid" => rewrite::vlan_vid(head, Vid::new(number() as u16).unwrap()),
        "vlan_pcp" => rewrite::vlan_pcp(head, Pcp::new(number() as u8).unwrap()),
        "mpls_label" => rewrite::mpls_label(head, layers, MplsLabel::new(number()).unwrap()),
        "mpls_tc" => rewrite::mpls_tc(head, layers, Tc::new(number() as u8).unwrap()),
        "mpls_ttl" => rewrite::mpls_ttl(head, layers, number() as u8),
        "ipv4_src" => rewrite::ipv4_src(head, layers, value.parse().unwrap()),
        "ipv4_dst" => rewrite::ipv4_dst(head, layers, value.parse().unwrap()),
        "ipv6_src" => rewrite::ipv6_src(head, layers, value.parse().unwrap()),
        "ipv6_dst" => rewrite::ipv6_dst(head, layers, value.parse().unwrap()),
        "ipv6_flow_label" => rewrite::ipv6_flow_label(head, layers, FlowLabel::new(number()).unwrap()),
        "ip_dscp" => rewrite::ip_dscp(head, layers, Dscp::new(number() as u8).unwrap()),
        "ip_ecn" => rewrite::ip_ecn(head, layers, Ecn::new(number() as u8).unwrap()),
        "ip_ttl" => rewrite::ip_ttl(head, layers, number() as u8),
        "l4_src" => rewrite::l4_src(head, layers, layers.l4(), number() as u16),
        "l4_dst" => rewrite::l4_dst(head, layers, layers.l4(), number() as u16),
        "icmpv4_type" => rewrite::icmpv4_type(head, layers, number() as u8),
        "icmpv4_code" => rewrite::icmpv4_code(head, layers, number() as u8),
        "icmpv6_type" => rewrite::icmpv6_type(head, layers, number() as u8),
        "icmpv6_code" => rewrite::icmpv6_code(head, layers, number() as u8),
        "nd_target" => rewrite::nd_target(head, layers, value.parse().unwrap()),
        "nd_sll" => rewrite::nd_sll(head, layers, mac()),
        "nd_tll" => rewrite::nd_tll(head, layers, mac()),
        "arp_op" => rewrite::arp_op(head, layers, number() as u16),
        "arp_spa" => rewrite::arp_spa(head, layers, value.parse().unwrap()),
        "arp_tpa" => rewrite::arp_tpa(head, layers, value.parse().unwrap()),
        "arp_sha" => rewrite::arp_sha(head, layers, mac()),
        "arp_tha" => rewrite::arp_tha(head, layers, mac()),
        other => panic!("vectors/make.py knows the field {other} and this test does not"),
    }
}

#[test]
fn a_rewritten_frame_is_the_one_that_scapy_builds() {
    let vectors = vectors();
    assert!(vectors.len() > 100);
    for Vector {
        name,
        field,
        value,
        before,
        after,
    } in vectors
    {
        let mut frame = before.clone();
        let layers = Layers::parse(&frame, Depth::All);
        assert!(
            set(field, value, &mut frame, &layers),
            "{name}: {field} is not there"
        );
        assert_eq!(frame, after, "{name}: {field}={value}");
    }
}

#[test]
fn the_checksums_of_scapy_are_right() {
    // After an authentication header, scapy leaves the checksum zero.
    for Vector { name, after, .. } in vectors().into_iter().filter(|it| it.name != "tcp_authenticated") {
        let layers = Layers::parse(&after, Depth::All);
        let (packet, bytes) = (&after[layers.l3_offset()..], &after[layers.l4_offset()..]);
        let pseudo = match layers.l3() {
            L3::Ipv4 => {
                let view = ipv4::View::new(packet).unwrap();
                assert!(view.checksum_is_right(), "{name}");
                view.pseudo()
            }
            L3::Ipv6 => ipv6::View::new(packet).unwrap().pseudo(),
            _ => continue,
        };
        let is_right = match layers.l4() {
            L4::None => panic!("{name} has no transport"),
            L4::Tcp => tcp::View::new(bytes).unwrap().checksum_is_right(&pseudo),
            L4::Udp => udp::View::new(bytes).unwrap().checksum_is_right(&pseudo),
            L4::Sctp => sctp::View::new(bytes).unwrap().checksum_is_right(),
            L4::Icmpv4 => icmpv4::View::new(bytes).unwrap().checksum_is_right(),
            L4::Icmpv6 => icmpv6::View::new(bytes).unwrap().checksum_is_right(&pseudo),
        };
        assert!(is_right, "{name}: the checksum of {:?}", layers.l4());
    }
}

#[test]
fn the_values_that_scapy_was_given_are_read() {
    let find = |name: &str| {
        vectors()
            .into_iter()
            .find(|vector| vector.name == name)
            .unwrap()
            .before
    };
    let layers = |frame: &[u8]| Layers::parse(frame, Depth::All);

    let frame = find("arp");
    let arp = arp::Repr::parse(&arp::View::new(&frame[14..]).unwrap());
    assert_eq!(
        (arp.op, arp.spa.octets(), arp.tpa.octets()),
        (arp::REQUEST, [10, 1, 2, 3], [10, 4, 5, 6])
    );

    let frame = find("mpls");
    let labels: Vec<_> = mpls::stack(&frame[14..])
        .map(|entry| (entry.label().raw(), entry.ttl()))
        .collect();
    assert_eq!(labels, [(16, 9), (17, 8)]);
    assert_eq!(layers(&frame).mpls_inner(), L3::Ipv4);

    let frame = find("qinq_udp");
    assert_eq!((layers(&frame).vlan_count(), layers(&frame).l4()), (2, L4::Udp));

    let frame = find("udp6_extensions");
    let headers = layers(&frame).ext_headers();
    assert_eq!(headers, ipv6::ExtHeaders::HOP | ipv6::ExtHeaders::DEST);

    let frame = find("tcp_authenticated");
    assert_eq!(
        (layers(&frame).ext_headers(), layers(&frame).l4()),
        (ipv6::ExtHeaders::AUTH, L4::Tcp)
    );

    let frame = find("tcp6");
    let ip = ipv6::View::new(&frame[14..]).unwrap();
    assert_eq!(
        (ip.flow_label().raw(), ip.dscp().raw(), ip.ecn().raw()),
        (0x12345, 0x0a, 2)
    );
    let segment = tcp::View::new(ip.payload()).unwrap();
    assert_eq!(
        (segment.seq(), segment.ack(), segment.flags()),
        (1, 2, tcp::flags::PSH | tcp::flags::ACK)
    );
    assert_eq!(segment.payload().len(), 37);
}
