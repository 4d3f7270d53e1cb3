//! Packets: the one-pass parser, every view, and every rewrite.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::{Mac, Pcp, Vid};
use millrace_wire::{
    Depth, Dscp, Ecn, EtherType, FlowLabel, Fragment, Frame, IpProto, Isid, L3, L4, Layers, MplsLabel,
    Packet, Tc, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, mpls, pbb, rewrite, sctp, tcp, udp, vlan,
};

/// Parses a frame to every depth, in one and in two segments, and through every view.
///
/// Properties: every offset lies within the parsed bytes; a lower depth finds no other headers; the headers of a
/// truncated frame are those of the whole one.
pub(crate) fn layers(bytes: &[u8]) {
    let all = Layers::parse(bytes, Depth::All);
    assert!(all.end() <= bytes.len());
    for depth in [Depth::L2, Depth::L3, Depth::L4] {
        let less = Layers::parse(bytes, depth);
        assert!(less.end() <= bytes.len());
        assert_eq!(
            (less.ether_type(), less.l3_offset()),
            (all.ether_type(), all.l3_offset())
        );
        assert!(less.l3() == all.l3() || depth < Depth::L3);
        assert!(less.l4() == all.l4() || depth < Depth::L4);
    }
    let head_size = bytes
        .first()
        .map_or(0, |byte| usize::from(*byte))
        .min(bytes.len());
    let part = Layers::of(&Frame::segmented(bytes, head_size), Depth::All);
    assert!(part.end() <= head_size);
    assert!(part.l3() == L3::None || (part.l3(), part.l3_offset()) == (all.l3(), all.l3_offset()));
    assert!(part.l4() == L4::None || (part.l4(), part.l4_offset()) == (all.l4(), all.l4_offset()));
    for at in [
        0,
        all.l3_offset(),
        all.l4_offset(),
        all.mpls_payload().unwrap_or(0),
    ] {
        read_all(&bytes[at..]);
    }
}

/// Parses `bytes` as every header; none may panic.
fn read_all(bytes: &[u8]) {
    let _ = ethernet::View::new(bytes).map(|view| ethernet::Repr::parse(&view));
    let _ = ethernet::snap(bytes);
    let _ = vlan::View::new(bytes).map(|view| vlan::Repr::parse(&view));
    let _ = pbb::View::new(bytes).map(|view| pbb::Repr::parse(&view));
    for view in mpls::stack(bytes) {
        let _ = mpls::Repr::parse(&view);
    }
    let _ = arp::View::new(bytes).map(|view| arp::Repr::parse(&view));
    let _ = ipv6::View::new(bytes).map(|view| (ipv6::Repr::parse(&view), view.walk()));
    let _ = udp::View::new(bytes).map(|view| udp::Repr::parse(&view));
    let _ = sctp::View::new(bytes).map(|view| (sctp::Repr::parse(&view), view.checksum_is_right()));
    let _ = icmpv4::View::new(bytes).map(|view| (icmpv4::Repr::parse(&view), view.checksum_is_right()));
    if let Ok(view) = icmpv6::View::new(bytes) {
        let _ = view.neighbor().map(|neighbor| icmpv6::NdRepr::parse(&neighbor));
    }
    // These two can be emitted again, and equal the input except for reserved bits.
    if let Ok(view) = ipv4::View::new(bytes) {
        let repr = ipv4::Repr::parse(&view);
        let mut out = Vec::new();
        repr.emit(&mut out);
        out.extend_from_slice(view.payload());
        assert_eq!(ipv4::Repr::parse(&ipv4::View::new(&out).unwrap()), repr);
    }
    if let Ok(view) = tcp::View::new(bytes) {
        let repr = tcp::Repr::parse(&view);
        let pseudo = millrace_wire::ip::Pseudo::V4 {
            src: Ipv4Addr::LOCALHOST,
            dst: Ipv4Addr::LOCALHOST,
        };
        let mut out = Vec::new();
        repr.emit(&pseudo, view.payload(), &mut out);
        assert_eq!(tcp::Repr::parse(&tcp::View::new(&out).unwrap()), repr);
    }
}

/// Rewrites one field of a frame: the first byte selects it, the next sixteen are the value.
///
/// Properties: the size is unchanged, correct checksums stay correct, and a packet without the field is unchanged.
pub(crate) fn rewrites(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Some((value, frame)) = rest.split_first_chunk::<16>() else {
        return;
    };
    let layers = Layers::parse(frame, Depth::All);
    let mut packet = Frame::new(frame);
    let before = Checksums::of(frame, &layers);
    let changed = rewrite_one(*which, value, packet.head_mut(), &layers);
    assert_eq!(packet.len(), frame.len());
    assert!(changed || packet.bytes() == frame);
    let after = Checksums::of(packet.bytes(), &layers);
    assert!(!before.ipv4 || after.ipv4, "the IPv4 header checksum broke");
    assert!(
        !before.transport || after.transport,
        "the transport checksum broke"
    );
}

/// Returns the layers whose checksums are correct. Truncated ones count as incorrect.
struct Checksums {
    ipv4: bool,
    transport: bool,
}

impl Checksums {
    fn of(frame: &[u8], layers: &Layers) -> Checksums {
        let packet = &frame[layers.l3_offset()..];
        let (pseudo, ipv4) = match layers.l3() {
            L3::Ipv4 => {
                let view = ipv4::View::new(packet).unwrap();
                (view.pseudo(), view.checksum_is_right())
            }
            L3::Ipv6 => (ipv6::View::new(packet).unwrap().pseudo(), false),
            _ => {
                return Checksums {
                    ipv4: false,
                    transport: false,
                };
            }
        };
        let is_whole = layers.fragment() == Fragment::Whole && !layers.is_routed();
        let bytes = &frame[layers.l4_offset()..layers.l4_offset() + layers.l4_size()];
        let transport = match layers.l4() {
            L4::None => false,
            _ if !is_whole => false,
            L4::Tcp => tcp::View::new(bytes).unwrap().checksum_is_right(&pseudo),
            L4::Udp => udp::View::new(bytes).unwrap().checksum_is_right(&pseudo),
            L4::Sctp => sctp::View::new(bytes).unwrap().checksum_is_right(),
            L4::Icmpv4 => icmpv4::View::new(bytes).unwrap().checksum_is_right(),
            L4::Icmpv6 => icmpv6::View::new(bytes).unwrap().checksum_is_right(&pseudo),
        };
        Checksums { ipv4, transport }
    }
}

fn rewrite_one(which: u8, value: &[u8; 16], head: &mut [u8], layers: &Layers) -> bool {
    let [a, b, c, d, ..] = *value;
    let word = u16::from_be_bytes([a, b]);
    let long = u32::from_be_bytes([a, b, c, d]);
    let mac = Mac([a, b, c, d, value[4], value[5]]);
    let (v4, v6) = (Ipv4Addr::from(long), Ipv6Addr::from(*value));
    match which {
        0 => rewrite::eth_dst(head, mac),
        1 => rewrite::eth_src(head, mac),
        2 => rewrite::eth_type(head, layers, EtherType(word)),
        3 => rewrite::vlan_vid(head, Vid::from_tci(word)),
        4 => rewrite::vlan_pcp(head, Pcp::from_tci(word)),
        5 => rewrite::pbb_isid(head, layers, Isid::from_low_bits(long)),
        6 => rewrite::mpls_label(head, layers, MplsLabel::from_low_bits(long)),
        7 => rewrite::mpls_tc(head, layers, Tc::from_low_bits(a)),
        8 => rewrite::mpls_bos(head, layers, a != 0),
        9 => rewrite::mpls_ttl(head, layers, a),
        10 => rewrite::dec_mpls_ttl(head, layers) == rewrite::Ttl::Changed,
        11 => rewrite::copy_ttl_in(head, layers),
        12 => rewrite::copy_ttl_out(head, layers),
        13 => rewrite::ip_ttl(head, layers, a),
        14 => rewrite::dec_ip_ttl(head, layers) == rewrite::Ttl::Changed,
        15 => rewrite::ip_dscp(head, layers, Dscp::from_low_bits(a)),
        16 => rewrite::ip_ecn(head, layers, Ecn::from_low_bits(a)),
        17 => rewrite::ipv4_src(head, layers, v4),
        18 => rewrite::ipv4_dst(head, layers, v4),
        19 => rewrite::ipv6_src(head, layers, v6),
        20 => rewrite::ipv6_dst(head, layers, v6),
        21 => rewrite::ipv6_flow_label(head, layers, FlowLabel::from_low_bits(long)),
        22 => rewrite::l4_src(head, layers, layers.l4(), word),
        23 => rewrite::l4_dst(head, layers, layers.l4(), word),
        24 => rewrite::icmpv4_type(head, layers, a),
        25 => rewrite::icmpv4_code(head, layers, a),
        26 => rewrite::icmpv6_type(head, layers, a),
        27 => rewrite::icmpv6_code(head, layers, a),
        28 => rewrite::nd_target(head, layers, v6),
        29 => rewrite::nd_sll(head, layers, mac),
        30 => rewrite::nd_tll(head, layers, mac),
        31 => rewrite::arp_op(head, layers, word),
        32 => rewrite::arp_spa(head, layers, v4),
        33 => rewrite::arp_tpa(head, layers, v4),
        34 => rewrite::arp_sha(head, layers, mac),
        35 => rewrite::arp_tha(head, layers, mac),
        36 => {
            // The pseudo-header contains the payload's protocol, which the layers do not show: only the absence of
            // panics is checked.
            let mut copy = head.to_vec();
            rewrite::ip_proto(&mut copy, layers, IpProto(a));
            false
        }
        _ => false,
    }
}
