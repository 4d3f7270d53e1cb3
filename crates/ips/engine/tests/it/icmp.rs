//! The payload of ICMP messages, as rules see it.

use millrace_ips_engine::Mode;
use millrace_wire::{Dscp, Ecn, FlowLabel, IpProto, ipv6};

use crate::bed::{TestBed, datagram, fragments};

/// Returns a packet of IPv6.
fn packet(next_header: IpProto, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Repr {
        src: "fe80::1".parse().unwrap(),
        dst: "ff02::1".parse().unwrap(),
        next_header,
        dscp: Dscp::from_low_bits(0),
        ecn: Ecn::from_low_bits(0),
        flow_label: FlowLabel::from_low_bits(0),
        hop_limit: 1,
        payload_size: payload.len() as u16,
    };
    [&header.to_bytes()[..], payload].concat()
}

#[test]
fn the_payload_of_listener_discovery_begins_behind_the_checksum() {
    let rule = r#"alert ip any any -> any any (msg:"m"; content:"|00 64 00 00|"; startswith; sid:1;)"#;
    // Query and reports of versions 1 and 2, and an echo request, whose payload begins after its number.
    for (kind, is_found) in [(130, true), (131, true), (143, true), (128, false)] {
        let message = [&[kind, 0, 0, 0, 0, 100, 0, 0][..], &[0xff; 16]].concat();
        let mut bed = TestBed::new(Mode::Ids, rule);
        bed.send(packet(IpProto::ICMPV6, &message));
        assert_eq!(bed.is_attack_found(), is_found, "{kind}");
    }
}

#[test]
fn the_last_eight_bytes_of_discovery_are_not_shown() {
    let rule = r#"alert ip any any -> any any (msg:"m"; content:"attack"; sid:1;)"#;
    // A neighbour solicitation, and an echo request.
    for (kind, is_found) in [(135, false), (128, true)] {
        let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0; 16], b"\x01\x01attack"].concat();
        let mut bed = TestBed::new(Mode::Ids, rule);
        bed.send(packet(IpProto::ICMPV6, &message));
        assert_eq!(bed.is_attack_found(), is_found, "{kind}");
    }
    // A router solicitation without options has no payload.
    let rule = r#"alert ip any any -> any any (msg:"m"; dsize:0; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.send(packet(IpProto::ICMPV6, &[133, 0, 0, 0, 0, 0, 0, 0]));
    assert!(bed.is_attack_found());
}

#[test]
fn fragbits_are_those_of_ipv4() {
    let rule = r#"alert ip any any -> any any (msg:"m"; fragbits:M; sid:1;)"#;
    // A fragment header (RFC 8200, section 4.5): UDP, offset 0, more fragments.
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 1][..], &[0; 16]].concat();
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.send(packet(IpProto(44), &fragment));
    assert!(!bed.is_attack_found());
    bed.send_all(fragments(&datagram(&[0; 100]), 64));
    assert!(bed.is_attack_found());
}
