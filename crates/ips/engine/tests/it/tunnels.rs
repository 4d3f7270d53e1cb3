//! Changes of packets inside tunnels: the checksum of the header around the packet is corrected.
//!
//! Changes of a segment with a right checksum leave the sum of its bytes as it was. Data that are removed stay in the frame after
//! the segment, so that the sum changes.

use millrace_ips_engine::Verdict;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::SYN;
use millrace_wire::{IpProto, checksum, ipv4, udp};

use crate::bed::{CLIENT, Segment, TestBed, ip, vxlan};

/// Sends a SYN with data, which the normaliser removes, in a tunnel; returns the packet that is forwarded.
fn changed(encapsulate: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut bed = TestBed::inline();
    let syn = Segment {
        flags: SYN,
        seq: CLIENT,
        ack: 0,
        data: b"harmless",
        ..Segment::default()
    };
    let sent = bed.send(encapsulate(&syn.packet()));
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
fn the_checksum_of_udp_around_a_syn_that_loses_its_data_is_corrected() {
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
fn the_checksum_of_gre_around_a_syn_that_loses_its_data_is_corrected() {
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
