//! Outer headers that encapsulation adds are parsed again. Only invalid outer headers are rejected.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use core::net::IpAddr;

use millrace_types::Mac;
use millrace_wire::checksum::Sum;
use millrace_wire::tunnel::{Outer, OuterError, OuterFields, OuterHeaders, TunnelKind, entropy};
use millrace_wire::{Builder, EtherType, Frame, Packet};
use proptest::prelude::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PORTS: [(u16, TunnelKind); 4] = [
    (0, TunnelKind::Gre),
    (4789, TunnelKind::Vxlan),
    (2152, TunnelKind::GtpU),
    (6635, TunnelKind::MplsUdp),
];

fn find(frame: &[u8]) -> Option<Result<Outer, OuterError>> {
    Outer::find(frame, frame.len(), &PORTS, |_| true)
}

fn ends(kind: TunnelKind, is_v6: bool, has_key: bool, checksum: bool) -> OuterFields {
    let address = |last: u16| -> IpAddr {
        let text = if is_v6 {
            format!("fd00::{last}")
        } else {
            format!("192.0.2.{last}")
        };
        text.parse().unwrap()
    };
    OuterFields {
        kind,
        src_mac: A,
        dst_mac: B,
        local: address(1),
        remote: address(2),
        udp_port: kind.udp_port().unwrap_or(0),
        has_key,
        ttl: 64,
        checksum,
    }
}

/// Returns an inner packet of the type that the tunnel carries.
fn inside(kind: TunnelKind) -> Vec<u8> {
    let frame = Builder::ethernet(B, A)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(7, 8)
        .payload(b"inside!")
        .build();
    match kind {
        TunnelKind::Vxlan | TunnelKind::Gre => frame,
        TunnelKind::GtpU => frame[14..].to_vec(),
        TunnelKind::MplsUdp => [&[0, 2, 0x11, 64][..], &frame[14..]].concat(),
    }
}

fn enclosed(ends: &OuterFields, key: u32, tos: u8) -> Vec<u8> {
    let outer_headers = OuterHeaders::new(ends).unwrap();
    let inside = inside(ends.kind);
    let mut frame = vec![0xee; outer_headers.len()];
    let entropy = entropy(&inside, inside.len());
    outer_headers
        .write(&mut frame, inside.len(), key, tos, entropy, Sum::of(&inside))
        .unwrap();
    frame.extend(inside);
    frame
}

proptest! {
    #[test]
    fn what_was_put_around_is_found(
        kind in prop::sample::select(TunnelKind::ALL.to_vec()),
        is_v6 in any::<bool>(),
        has_key in any::<bool>(),
        checksum in any::<bool>(),
        key in any::<u32>(),
        tos in any::<u8>(),
    ) {
        let key = key & kind.key_max();
        let frame = enclosed(&ends(kind, is_v6, has_key, checksum), key, tos);
        let outer = find(&frame).unwrap().unwrap();
        prop_assert_eq!(outer.kind, kind);
        prop_assert_eq!(&frame[outer.size..], &inside(kind)[..]);
        prop_assert_eq!((outer.end, outer.ecn), (frame.len(), tos & 3));
        let wanted = match kind {
            TunnelKind::MplsUdp => None,
            TunnelKind::Gre => has_key.then_some(key),
            TunnelKind::Vxlan | TunnelKind::GtpU => Some(key),
        };
        prop_assert_eq!(outer.key, wanted);
        prop_assert_eq!(outer.checksum.is_some(), checksum);
        let kind_inside = match kind {
            TunnelKind::Vxlan | TunnelKind::Gre => None,
            TunnelKind::GtpU => Some(EtherType::IPV4),
            TunnelKind::MplsUdp => Some(EtherType::MPLS),
        };
        prop_assert_eq!(outer.inside, kind_inside);
    }

    #[test]
    fn noise_in_an_envelope_never_panics_and_its_headers_lie_in_the_frame(
        kind in prop::sample::select(TunnelKind::ALL.to_vec()),
        is_v6 in any::<bool>(),
        noise in prop::collection::vec((0usize..120, any::<u8>()), 0..12),
        cut in 0usize..160,
    ) {
        let mut frame = enclosed(&ends(kind, is_v6, true, true), 7, 0);
        for (at, byte) in noise {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut.max(1));
        if let Some(Ok(outer)) = find(&frame) {
            prop_assert!(outer.size < frame.len() && outer.end <= frame.len());
        }
    }

    #[test]
    fn a_sum_over_a_part_is_that_of_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), begin in 0usize..90, size in 0usize..90) {
        let frame = Frame::new(&bytes);
        let end = (begin + size).min(bytes.len());
        prop_assert_eq!(frame.sum(begin, size).folded(), Sum::of(bytes.get(begin..end).unwrap_or_default()).folded());
    }
}

#[test]
fn hostile_headers_have_their_errors() {
    let base = |kind| enclosed(&ends(kind, false, true, false), 7, 0);
    let changed = |kind, at: usize, byte: u8| {
        let mut frame = base(kind);
        frame[at] = byte;
        frame
    };
    let l4 = 34;
    // Without the I flag; GRE version 1; GRE with each of the bits 1, 4 and 5; GTP'; a GTP echo request.
    for (kind, at, byte) in [
        (TunnelKind::Vxlan, l4 + 8, 0),
        (TunnelKind::Gre, l4 + 1, 1),
        (TunnelKind::Gre, l4, 0x60),
        (TunnelKind::Gre, l4, 0x28),
        (TunnelKind::Gre, l4, 0x24),
        (TunnelKind::GtpU, l4 + 8, 0x20),
        (TunnelKind::GtpU, l4 + 9, 1),
    ] {
        let found = find(&changed(kind, at, byte)).unwrap();
        assert!(
            matches!(found, Err(OuterError::Header { .. })),
            "{kind}: {found:?}"
        );
    }
    assert!(matches!(
        find(&changed(TunnelKind::Gre, l4 + 2, 8)).unwrap(),
        Err(OuterError::Inside { .. })
    ));
    // An extension header of length zero would make an endless loop.
    let mut endless = changed(TunnelKind::GtpU, l4 + 8, 0x34);
    endless[l4 + 16..l4 + 22].copy_from_slice(&[0, 0, 0, 0x85, 0, 0x85]);
    assert!(matches!(
        find(&endless).unwrap(),
        Err(OuterError::Truncated { .. })
    ));
    // Other ports and tagged frames do not belong to a tunnel.
    assert_eq!(find(&changed(TunnelKind::Vxlan, l4 + 3, 1)), None);
    let fragment = {
        let mut frame = base(TunnelKind::Gre);
        frame[20] = 0x20;
        frame
    };
    assert_eq!(find(&fragment).unwrap(), Err(OuterError::Fragment));
    for kind in TunnelKind::ALL {
        let mut frame = base(kind);
        frame[15] ^= 4;
        assert_eq!(find(&frame).unwrap(), Err(OuterError::Checksum), "{kind}");
    }
}

#[test]
fn packets_in_transit_and_of_other_encapsulations_belong_to_no_tunnel_however_wrong_they_are() {
    for kind in TunnelKind::ALL {
        let mut frame = enclosed(&ends(kind, false, true, false), 7, 0);
        for is_wrong in [false, true] {
            if is_wrong {
                frame[15] ^= 4;
            }
            let of = |ports: &[(u16, TunnelKind)], is_local| {
                Outer::find(&frame, frame.len(), ports, |dst| {
                    assert_eq!(dst, IpAddr::from([192, 0, 2, 2]));
                    is_local
                })
            };
            let others: Vec<_> = PORTS.into_iter().filter(|(_, other)| *other != kind).collect();
            assert!(of(&PORTS, true).is_some(), "{kind}");
            assert_eq!(of(&PORTS, false), None, "{kind}");
            assert_eq!(of(&others, true), None, "{kind}");
        }
    }
}

#[test]
fn bits_6_to_12_of_a_gre_header_are_ignored() {
    for (first, second) in [(0x22, 0), (0x21, 0), (0x23, 0xf8)] {
        let mut frame = enclosed(&ends(TunnelKind::Gre, false, true, false), 7, 0);
        frame[34..36].copy_from_slice(&[first, second]);
        let outer = find(&frame).unwrap().unwrap();
        assert_eq!(
            (outer.key, &frame[outer.size..]),
            (Some(7), &inside(TunnelKind::Gre)[..])
        );
    }
}

#[test]
fn an_outer_udp_datagram_ends_where_its_length_says() {
    for kind in TunnelKind::ALL
        .into_iter()
        .filter(|kind| *kind != TunnelKind::Gre)
    {
        for is_v6 in [false, true] {
            let mut frame = enclosed(&ends(kind, is_v6, true, true), 7, 0);
            let end = frame.len();
            // The IP packet has eight more bytes than the UDP datagram.
            frame.extend([0xee; 8]);
            let (at, before_ip) = if is_v6 { (18, 54) } else { (16, 14) };
            let size = (frame.len() - before_ip) as u16;
            frame[at..at + 2].copy_from_slice(&size.to_be_bytes());
            if !is_v6 {
                frame[24..26].fill(0);
                let sum = Sum::of(&frame[14..34]).checksum();
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let outer = find(&frame).unwrap().unwrap();
            assert_eq!(outer.end, end, "{kind}");
        }
    }
}

#[test]
fn mpls_packets_spread_by_all_bits_of_their_label() {
    let of = |label: u32, ttl: u8| {
        let entry = (label << 12 | 1 << 8).to_be_bytes();
        let mut frame = [&B.0[..], &A.0[..], &[0x88, 0x47], &entry, &[0x45; 40]].concat();
        frame[17] = ttl;
        format!("{:?}", entropy(&frame, frame.len()))
    };
    let ports: std::collections::HashSet<String> = (16..32).map(|label| of(label, 64)).collect();
    assert!(ports.len() > 12, "{}", ports.len());
    assert_eq!(of(16, 64), of(16, 3));
}

#[test]
fn packets_of_one_connection_share_their_source_port_and_others_spread() {
    let frame = |port: u16, ttl: u8| {
        let mut frame = Builder::ethernet(B, A)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(port, 8)
            .payload(b"x")
            .build();
        frame[22] = ttl;
        frame
    };
    let of = |bytes: &[u8]| entropy(bytes, bytes.len());
    assert_eq!(of(&frame(7, 64)), of(&frame(7, 3)));
    let ports: std::collections::HashSet<String> = (0..200)
        .map(|port| format!("{:?}", of(&frame(port, 64))))
        .collect();
    assert!(ports.len() > 190, "{}", ports.len());
}
