//! Changes of packets inside tunnels: the checksum of the header around the packet is corrected.

use millrace_ips_engine::Verdict;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, URG};
use millrace_wire::{IpProto, checksum, ipv4, udp};

use crate::bed::{Segment, TestBed, handshake, ip, vxlan};

/// Returns data with an urgent pointer, which the normaliser clears.
fn urgent() -> Vec<u8> {
    let segment = Segment {
        flags: ACK | URG,
        urgent: 3,
        data: b"harmless",
        ..Segment::default()
    };
    segment.packet()
}

/// Sends a handshake and urgent data in a tunnel; returns the data as they are forwarded.
fn changed(encapsulate: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut bed = TestBed::inline();
    for packet in handshake() {
        assert_eq!(bed.send(encapsulate(&packet)).verdict, Verdict::Pass);
    }
    let sent = bed.send(encapsulate(&urgent()));
    assert_eq!(sent.verdict, Verdict::Rewritten);
    sent.bytes
}

/// Asserts that a packet is UDP with a right checksum, and returns its payload.
fn payload_of_udp(packet: &[u8]) -> &[u8] {
    let view = ipv4::View::new(packet).unwrap();
    let pseudo = Pseudo::V4 {
        src: view.src(),
        dst: view.dst(),
    };
    let datagram = udp::View::new(view.payload()).unwrap();
    assert!(datagram.checksum() != 0 && datagram.checksum_is_right(&pseudo));
    datagram.payload()
}

#[test]
fn the_checksum_of_udp_around_a_changed_segment_is_corrected() {
    payload_of_udp(&changed(vxlan));
    let nested = changed(|packet| vxlan(&vxlan(packet)));
    // Headers of VXLAN and Ethernet.
    payload_of_udp(&payload_of_udp(&nested)[22..]);
    let without = changed(|packet| {
        let mut packet = vxlan(packet);
        packet[26..28].fill(0);
        packet
    });
    assert_eq!(without[26..28], [0, 0]);
}

#[test]
fn the_checksum_of_gre_around_a_changed_segment_is_corrected() {
    let packet = changed(|packet| {
        let mut payload = [&[0x80, 0, 8, 0, 0, 0, 0, 0], packet].concat();
        let sum = checksum::internet(&payload);
        payload[4..6].copy_from_slice(&sum.to_be_bytes());
        ip(
            ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
            IpProto(47),
            &payload,
        )
    });
    assert_eq!(checksum::internet(&packet[20..]), 0);
}
