//! Compares the one-pass parser with a slow, obvious one that uses the views of the protocols.

use crate::recipe::{damaged_frame, recipe};
use millrace_wire::{
    Depth, EtherType, ExtHeaders, Fragment, Frame, IpProto, L3, L4, Layers, arp, ethernet, icmpv4, icmpv6,
    ipv4, ipv6, mpls, pbb, sctp, tcp, udp, vlan,
};
use proptest::prelude::*;

/// The result of a parser.
#[derive(PartialEq, Debug, Default)]
struct Found {
    ether_type: EtherType,
    vlan_count: usize,
    l3: L3,
    l3_offset: usize,
    ip_proto: IpProto,
    fragment: Fragment,
    ext_headers: ExtHeaders,
    routed: bool,
    l4: L4,
    l4_offset: usize,
    l4_size: usize,
    mpls_count: usize,
    mpls_payload: Option<usize>,
    mpls_inner: L3,
    nd_target: Option<usize>,
    nd_sll: Option<usize>,
    nd_tll: Option<usize>,
}

impl From<Layers> for Found {
    fn from(layers: Layers) -> Found {
        Found {
            ether_type: layers.ether_type(),
            vlan_count: layers.vlan_count(),
            l3: layers.l3(),
            l3_offset: layers.l3_offset(),
            ip_proto: layers.ip_proto(),
            fragment: layers.fragment(),
            ext_headers: layers.ext_headers(),
            routed: layers.is_routed(),
            l4: layers.l4(),
            l4_offset: layers.l4_offset(),
            l4_size: layers.l4_size(),
            mpls_count: layers.mpls_count(),
            mpls_payload: layers.mpls_payload(),
            mpls_inner: layers.mpls_inner(),
            nd_target: layers.nd_target(),
            nd_sll: layers.nd_sll(),
            nd_tll: layers.nd_tll(),
        }
    }
}

/// Returns the offset of `part` in `frame`.
fn offset(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - frame.as_ptr() as usize
}

fn oracle(frame: &[u8]) -> Found {
    let mut found = Found::default();
    let Ok(eth) = ethernet::View::new(frame) else {
        return found;
    };
    found.ether_type = eth.ether_type();
    let mut payload = eth.payload();
    while found.ether_type == EtherType::VLAN || found.ether_type == EtherType::QINQ {
        let Ok(tag) = vlan::View::new(payload) else { break };
        found.vlan_count += 1;
        found.ether_type = tag.ether_type();
        payload = tag.payload();
    }
    if found.ether_type.0 < 0x600 {
        found.ether_type = EtherType(0x5ff);
        if let Some(ether_type) = ethernet::snap(payload) {
            found.ether_type = ether_type;
            payload = &payload[8..];
        }
    }
    found.l3_offset = offset(frame, payload);
    match found.ether_type {
        EtherType::ARP if arp::View::new(payload).is_ok() => found.l3 = L3::Arp,
        EtherType::PBB if pbb::View::new(payload).is_ok() => found.l3 = L3::Pbb,
        EtherType::MPLS | EtherType::MPLS_MULTICAST => oracle_mpls(frame, payload, &mut found),
        EtherType::IPV4 => oracle_ipv4(frame, payload, &mut found),
        EtherType::IPV6 => oracle_ipv6(frame, payload, &mut found),
        _ => {}
    }
    found
}

fn oracle_mpls(frame: &[u8], payload: &[u8], found: &mut Found) {
    let stack: Vec<mpls::View<'_>> = mpls::stack(payload).collect();
    let Some(last) = stack.last() else { return };
    found.l3 = L3::Mpls;
    found.mpls_count = stack.len();
    if last.bos() {
        found.mpls_payload = Some(offset(frame, last.payload()));
        found.mpls_inner = match last.payload() {
            ip if ip.len() >= 20 && ip[0] >> 4 == 4 => L3::Ipv4,
            ip if ip.len() >= 40 && ip[0] >> 4 == 6 => L3::Ipv6,
            _ => L3::None,
        };
    }
}

fn oracle_ipv4(frame: &[u8], payload: &[u8], found: &mut Found) {
    let Ok(ip) = ipv4::View::new(payload) else { return };
    found.l3 = L3::Ipv4;
    found.ip_proto = ip.proto();
    found.fragment = match (ip.fragment_offset(), ip.more_fragments()) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    };
    found.l4_offset = offset(frame, ip.payload());
    found.l4_size = ip.payload().len();
    if found.fragment != Fragment::Later {
        found.l4 = match ip.proto() {
            IpProto::ICMPV4 if icmpv4::View::new(ip.payload()).is_ok() => L4::Icmpv4,
            proto => oracle_transport(proto, ip.payload(), found.fragment),
        };
    }
}

/// Returns the types of the extension headers in order, and their conformance to the order of RFC 2460.
fn oracle_ext_headers(kinds: &[IpProto]) -> ExtHeaders {
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    let mut bits = ExtHeaders(0);
    for (kind, bit, expected) in [
        (IpProto::ESP, ExtHeaders::ESP, 1),
        (IpProto::AH, ExtHeaders::AUTH, 1),
        (IpProto::DEST_OPTIONS, ExtHeaders::DEST, 2),
        (IpProto::FRAGMENT, ExtHeaders::FRAG, 1),
        (IpProto::ROUTING, ExtHeaders::ROUTER, 1),
        (IpProto::HOP_BY_HOP, ExtHeaders(0), 1),
        (IpProto::NO_NEXT, ExtHeaders::NO_NEXT, 1),
    ] {
        if count(kind) > 0 {
            bits |= bit;
        }
        if count(kind) > expected {
            bits |= ExtHeaders::UNREP;
        }
    }
    if kinds.first() == Some(&IpProto::HOP_BY_HOP) {
        bits |= ExtHeaders::HOP;
    }
    // The headers are in order if the first destination options can be taken as the early or as the late ones so that
    // the ranks never decrease. All other destination options are the late ones.
    let ordered = [1, 6].iter().any(|first_dest| {
        let mut dests = 0;
        let places: Vec<u8> = kinds
            .iter()
            .map(|kind| match *kind {
                IpProto::HOP_BY_HOP => 0,
                IpProto::DEST_OPTIONS => {
                    dests += 1;
                    if dests == 1 { *first_dest } else { 6 }
                }
                IpProto::ROUTING => 2,
                IpProto::FRAGMENT => 3,
                IpProto::AH => 4,
                IpProto::ESP => 5,
                _ => 7,
            })
            .collect();
        places.is_sorted()
    });
    if !ordered || kinds.iter().skip(1).any(|kind| *kind == IpProto::HOP_BY_HOP) {
        bits |= ExtHeaders::UNSEQ;
    }
    bits
}

fn oracle_ipv6(frame: &[u8], payload: &[u8], found: &mut Found) {
    let Ok(ip) = ipv6::View::new(payload) else { return };
    found.l3 = L3::Ipv6;
    let mut proto = ip.next_header();
    let mut rest = ip.payload();
    let mut kinds = Vec::new();
    let mut complete = true;
    loop {
        let is_extension = [0, 43, 44, 51, 60].contains(&proto.0);
        if proto == IpProto::NO_NEXT || proto == IpProto::ESP {
            kinds.push(proto);
        }
        if !is_extension {
            break;
        }
        let size = match (proto, rest.get(1)) {
            (_, None) => usize::MAX,
            (IpProto::FRAGMENT, _) => 8,
            (IpProto::AH, Some(words)) => (usize::from(*words) + 2) * 4,
            (_, Some(units)) => (usize::from(*units) + 1) * 8,
        };
        if rest.len() < size {
            complete = false;
            break;
        }
        let (header, after) = rest.split_at(size);
        kinds.push(proto);
        if proto == IpProto::ROUTING && header[3] > 0 {
            found.routed = true;
        }
        let is_fragment_header = proto == IpProto::FRAGMENT;
        proto = IpProto(header[0]);
        rest = after;
        if is_fragment_header {
            let field = u16::from_be_bytes([header[2], header[3]]);
            if field >> 3 > 0 {
                found.fragment = Fragment::Later;
                break;
            }
            if field & 1 == 1 {
                found.fragment = Fragment::First;
            }
        }
    }
    found.ip_proto = proto;
    found.ext_headers = oracle_ext_headers(&kinds);
    found.l4_offset = offset(frame, rest);
    found.l4_size = rest.len();
    if !complete || found.fragment == Fragment::Later {
        return;
    }
    found.l4 = match icmpv6::View::new(rest) {
        Ok(message) if proto == IpProto::ICMPV6 => {
            if let Ok(neighbor) = message.neighbor() {
                found.nd_target = Some(found.l4_offset + 8);
                let lla = neighbor.options().find(|(kind, option)| {
                    option.len() == 8 && u16::from(*kind) + 134 == u16::from(message.kind())
                });
                let place = lla.map(|(_, option)| offset(frame, option) + 2);
                if message.kind() == 135 {
                    found.nd_sll = place;
                } else {
                    found.nd_tll = place;
                }
            }
            L4::Icmpv6
        }
        _ => oracle_transport(proto, rest, found.fragment),
    };
}

fn oracle_transport(proto: IpProto, payload: &[u8], fragment: Fragment) -> L4 {
    // The UDP length of a first fragment is that of the whole datagram, so the oracle extends the data to the
    // maximum length.
    let mut datagram = payload.to_vec();
    if fragment == Fragment::First && payload.len() >= 8 {
        datagram.resize(usize::from(u16::MAX), 0);
    }
    match proto {
        IpProto::TCP if tcp::View::new(payload).is_ok() => L4::Tcp,
        IpProto::UDP if udp::View::new(&datagram).is_ok() => L4::Udp,
        IpProto::SCTP if sctp::View::new(payload).is_ok() => L4::Sctp,
        _ => L4::None,
    }
}

/// Generates any bytes, mostly with an EtherType that the parser knows.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let ether_type = prop_oneof![
        Just([0x08, 0x00]),
        Just([0x86, 0xdd]),
        Just([0x08, 0x06]),
        Just([0x81, 0x00]),
        Just([0x88, 0x47]),
        Just([0x88, 0xe7]),
        any::<[u8; 2]>()
    ];
    (prop::collection::vec(any::<u8>(), 0..200), ether_type).prop_map(|(mut bytes, ether_type)| {
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(&ether_type);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn good_frames_are_parsed_as_by_the_oracle(recipe in recipe()) {
        let frame = recipe.build();
        prop_assert_eq!(Found::from(Layers::parse(&frame, Depth::All)), oracle(&frame));
    }

    #[test]
    fn damaged_frames_are_parsed_as_by_the_oracle(frame in damaged_frame()) {
        prop_assert_eq!(Found::from(Layers::parse(&frame, Depth::All)), oracle(&frame));
    }

    #[test]
    fn any_bytes_are_parsed_as_by_the_oracle_and_within_bounds(bytes in any_bytes()) {
        let layers = Layers::parse(&bytes, Depth::All);
        prop_assert!(layers.end() <= bytes.len());
        prop_assert_eq!(Found::from(layers), oracle(&bytes));
    }

    #[test]
    fn less_depth_finds_less_and_nothing_else(frame in damaged_frame()) {
        let all = Found::from(Layers::parse(&frame, Depth::All));
        let l4 = Found { nd_target: None, nd_sll: None, nd_tll: None, ..all };
        prop_assert_eq!(&Found::from(Layers::parse(&frame, Depth::L4)), &l4);
        let l3 = Found { l4: L4::None, ..l4 };
        prop_assert_eq!(&Found::from(Layers::parse(&frame, Depth::L3)), &l3);
        let l2 = Found {
            ether_type: l3.ether_type, vlan_count: l3.vlan_count, l3_offset: l3.l3_offset,
            ..Found::default()
        };
        prop_assert_eq!(Found::from(Layers::parse(&frame, Depth::L2)), l2);
    }

    #[test]
    fn of_a_packet_in_segments_the_headers_in_its_head_are_found(
        frame in damaged_frame(), at in any::<prop::sample::Index>(),
    ) {
        let whole = Layers::parse(&frame, Depth::All);
        let head_size = at.index(frame.len() + 1);
        let part = Layers::of(&Frame::segmented(&frame, head_size), Depth::All);
        prop_assert!(part.end() <= head_size);
        // Every header that the parser finds in the head is a header of the whole frame.
        if part.l3() != L3::None {
            prop_assert_eq!((part.l3(), part.l3_offset()), (whole.l3(), whole.l3_offset()));
        }
        if part.l4() != L4::None {
            prop_assert_eq!((part.l4(), part.l4_offset()), (whole.l4(), whole.l4_offset()));
            prop_assert_eq!(part.l4_size(), whole.l4_size());
        }
        // The parser finds a transport header if 60 bytes of it are in the head: no header is longer.
        if whole.l4() != L4::None && whole.l4_offset() + 60 <= head_size {
            prop_assert_eq!(part.l4(), whole.l4());
        }
    }
}

#[test]
fn a_packet_that_claims_more_bytes_than_the_frame_has_is_no_ip_packet() {
    use millrace_types::Mac;
    let builder = millrace_wire::Builder::ethernet(Mac::ZERO, Mac::ZERO)
        .ipv4([1; 4], [2; 4])
        .udp(1, 2);
    let frame = builder.payload(&[0; 10]).build();
    let cut = Layers::parse(&frame[..frame.len() - 1], Depth::All);
    assert_eq!(
        (cut.ether_type(), cut.l3(), cut.l4()),
        (EtherType::IPV4, L3::None, L4::None)
    );
    // The same bytes are valid if the last byte is in another segment.
    let segmented = Layers::of(&Frame::segmented(&frame, frame.len() - 1), Depth::All);
    assert_eq!((segmented.l3(), segmented.l4()), (L3::Ipv4, L4::Udp));
}

#[test]
fn a_first_fragment_holds_the_length_of_the_whole_datagram() {
    use millrace_types::Mac;
    let builder = millrace_wire::Builder::ethernet(Mac::ZERO, Mac::ZERO)
        .ipv4([1; 4], [2; 4])
        .udp(1, 2);
    let mut frame = builder.payload(&[0; 8]).build();
    frame[39] = 100;
    assert_eq!(Layers::parse(&frame, Depth::L4).l4(), L4::None);
    frame[20] = 0x20;
    let layers = Layers::parse(&frame, Depth::L4);
    assert_eq!((layers.fragment(), layers.l4()), (Fragment::First, L4::Udp));
}

#[test]
fn a_head_beyond_sixteen_bits_of_offset_is_looked_at_so_far() {
    // A packet with 70,000 bytes of VLAN tags.
    let mut frame = vec![0; 12];
    frame.extend([0x81, 0x00, 0x00, 0x01].repeat(17_500));
    let layers = Layers::parse(&frame, Depth::All);
    assert_eq!(layers.ether_type(), EtherType::VLAN);
    assert!(layers.end() <= usize::from(u16::MAX));
}
