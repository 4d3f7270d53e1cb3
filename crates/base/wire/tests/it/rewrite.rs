//! Rewriting a field of a frame gives the same bytes as building the frame with the new value: only the field
//! and the checksums change.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::recipe::{InnerPacket, Ip4, Ip6, Recipe, Transport, recipe};
use millrace_types::{Mac, Pcp, Vid};
use millrace_wire::rewrite::{self, Ttl};
use millrace_wire::{
    Builder, Depth, Dscp, Ecn, EtherType, FlowLabel, Fragment, IpProto, Isid, L3, L4, Layers, MplsLabel, Tc,
    arp, icmpv4, ipv4, ipv6, sctp, tcp, udp,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Edit {
    EthDst(Mac),
    EthSrc(Mac),
    Vid(u16),
    Pcp(u8),
    Isid(u32),
    Label(u32),
    Tc(u8),
    MplsTtl(u8),
    Dscp(u8),
    Ecn(u8),
    Ttl(u8),
    Ipv4Src(Ipv4Addr),
    Ipv4Dst(Ipv4Addr),
    Ipv6Src(Ipv6Addr),
    Ipv6Dst(Ipv6Addr),
    FlowLabel(u32),
    L4Src(u16),
    L4Dst(u16),
    IcmpType(u8),
    IcmpCode(u8),
    NdTarget(Ipv6Addr),
    NdLla(Mac),
    ArpOp(u16),
    ArpSpa(Ipv4Addr),
    ArpTpa(Ipv4Addr),
    ArpSha(Mac),
    ArpTha(Mac),
}

fn edit() -> impl Strategy<Value = Edit> {
    let mac = || any::<[u8; 6]>().prop_map(Mac);
    let v4 = || any::<[u8; 4]>().prop_map(Ipv4Addr::from);
    let v6 = || any::<[u8; 16]>().prop_map(Ipv6Addr::from);
    let outer = prop_oneof![
        mac().prop_map(Edit::EthDst),
        mac().prop_map(Edit::EthSrc),
        (0u16..4096).prop_map(Edit::Vid),
        (0u8..8).prop_map(Edit::Pcp),
        any::<u32>().prop_map(Edit::Isid),
        any::<u32>().prop_map(Edit::Label),
        (0u8..8).prop_map(Edit::Tc),
        any::<u8>().prop_map(Edit::MplsTtl),
        any::<u16>().prop_map(Edit::ArpOp),
        v4().prop_map(Edit::ArpSpa),
        v4().prop_map(Edit::ArpTpa),
        mac().prop_map(Edit::ArpSha),
        mac().prop_map(Edit::ArpTha),
    ];
    let inner = prop_oneof![
        (0u8..64).prop_map(Edit::Dscp),
        (0u8..4).prop_map(Edit::Ecn),
        any::<u8>().prop_map(Edit::Ttl),
        v4().prop_map(Edit::Ipv4Src),
        v4().prop_map(Edit::Ipv4Dst),
        v6().prop_map(Edit::Ipv6Src),
        v6().prop_map(Edit::Ipv6Dst),
        any::<u32>().prop_map(Edit::FlowLabel),
        any::<u16>().prop_map(Edit::L4Src),
        any::<u16>().prop_map(Edit::L4Dst),
        any::<u8>().prop_map(Edit::IcmpType),
        any::<u8>().prop_map(Edit::IcmpCode),
        v6().prop_map(Edit::NdTarget),
        mac().prop_map(Edit::NdLla),
    ];
    prop_oneof![outer, inner]
}

impl Edit {
    fn rewrite(&self, head: &mut [u8], layers: &Layers) -> bool {
        match *self {
            Edit::EthDst(mac) => rewrite::eth_dst(head, mac),
            Edit::EthSrc(mac) => rewrite::eth_src(head, mac),
            Edit::Vid(vid) => rewrite::vlan_vid(head, Vid::from_tci(vid)),
            Edit::Pcp(pcp) => rewrite::vlan_pcp(head, Pcp::new(pcp).unwrap()),
            Edit::Isid(isid) => rewrite::pbb_isid(head, layers, Isid::from_low_bits(isid)),
            Edit::Label(label) => rewrite::mpls_label(head, layers, MplsLabel::from_low_bits(label)),
            Edit::Tc(tc) => rewrite::mpls_tc(head, layers, Tc::from_low_bits(tc)),
            Edit::MplsTtl(ttl) => rewrite::mpls_ttl(head, layers, ttl),
            Edit::Dscp(dscp) => rewrite::ip_dscp(head, layers, Dscp::from_low_bits(dscp)),
            Edit::Ecn(ecn) => rewrite::ip_ecn(head, layers, Ecn::from_low_bits(ecn)),
            Edit::Ttl(ttl) => rewrite::ip_ttl(head, layers, ttl),
            Edit::Ipv4Src(address) => rewrite::ipv4_src(head, layers, address),
            Edit::Ipv4Dst(address) => rewrite::ipv4_dst(head, layers, address),
            Edit::Ipv6Src(address) => rewrite::ipv6_src(head, layers, address),
            Edit::Ipv6Dst(address) => rewrite::ipv6_dst(head, layers, address),
            Edit::FlowLabel(label) => rewrite::ipv6_flow_label(head, layers, FlowLabel::from_low_bits(label)),
            Edit::L4Src(port) => rewrite::l4_src(head, layers, layers.l4(), port),
            Edit::L4Dst(port) => rewrite::l4_dst(head, layers, layers.l4(), port),
            Edit::IcmpType(kind) => {
                rewrite::icmpv4_type(head, layers, kind) || rewrite::icmpv6_type(head, layers, kind)
            }
            Edit::IcmpCode(code) => {
                rewrite::icmpv4_code(head, layers, code) || rewrite::icmpv6_code(head, layers, code)
            }
            Edit::NdTarget(address) => rewrite::nd_target(head, layers, address),
            Edit::NdLla(mac) => rewrite::nd_sll(head, layers, mac) || rewrite::nd_tll(head, layers, mac),
            Edit::ArpOp(op) => rewrite::arp_op(head, layers, op),
            Edit::ArpSpa(address) => rewrite::arp_spa(head, layers, address),
            Edit::ArpTpa(address) => rewrite::arp_tpa(head, layers, address),
            Edit::ArpSha(mac) => rewrite::arp_sha(head, layers, mac),
            Edit::ArpTha(mac) => rewrite::arp_tha(head, layers, mac),
        }
    }

    fn is_of_transport(&self) -> bool {
        matches!(
            self,
            Edit::L4Src(_)
                | Edit::L4Dst(_)
                | Edit::IcmpType(_)
                | Edit::IcmpCode(_)
                | Edit::NdTarget(_)
                | Edit::NdLla(_)
        )
    }

    /// Makes the same change in the recipe, if it has the field.
    fn change(&self, recipe: &mut Recipe) -> bool {
        match (self, &mut recipe.inside) {
            (Edit::EthDst(mac), _) => recipe.dst = *mac,
            (Edit::EthSrc(mac), _) => recipe.src = *mac,
            (Edit::Vid(vid), _) => return recipe.tags.first_mut().map(|tag| tag.1 = *vid).is_some(),
            (Edit::Pcp(pcp), _) => return recipe.tags.first_mut().map(|tag| tag.2 = *pcp).is_some(),
            (Edit::Isid(new), InnerPacket::Pbb(isid, ..)) => *isid = *new,
            (Edit::Label(label), InnerPacket::Mpls(entries, _)) => entries[0].0 = *label,
            (Edit::Tc(tc), InnerPacket::Mpls(entries, _)) => entries[0].1 = *tc,
            (Edit::MplsTtl(ttl), InnerPacket::Mpls(entries, _)) => entries[0].2 = *ttl,
            (Edit::ArpOp(op), InnerPacket::Arp(arp)) => arp.op = *op,
            (Edit::ArpSpa(address), InnerPacket::Arp(arp)) => arp.spa = *address,
            (Edit::ArpTpa(address), InnerPacket::Arp(arp)) => arp.tpa = *address,
            (Edit::ArpSha(mac), InnerPacket::Arp(arp)) => arp.sha = *mac,
            (Edit::ArpTha(mac), InnerPacket::Arp(arp)) => arp.tha = *mac,
            (_, InnerPacket::Ipv4(ip)) => return self.change_ipv4(ip),
            (_, InnerPacket::Ipv6(ip)) => return self.change_ipv6(ip),
            _ => return false,
        }
        true
    }

    fn change_ipv4(&self, ip: &mut Ip4) -> bool {
        match self {
            Edit::Dscp(dscp) => ip.dscp = Dscp::from_low_bits(*dscp),
            Edit::Ecn(ecn) => ip.ecn = Ecn::from_low_bits(*ecn),
            Edit::Ttl(ttl) => ip.ttl = *ttl,
            Edit::Ipv4Src(address) => ip.src = *address,
            Edit::Ipv4Dst(address) => ip.dst = *address,
            _ if matches!(ip.transport, Transport::Nd(_)) => return false,
            _ => return self.change_transport(&mut ip.transport),
        }
        true
    }

    fn change_ipv6(&self, ip: &mut Ip6) -> bool {
        match self {
            Edit::Dscp(dscp) => ip.dscp = Dscp::from_low_bits(*dscp),
            Edit::Ecn(ecn) => ip.ecn = Ecn::from_low_bits(*ecn),
            Edit::Ttl(ttl) => ip.hop_limit = *ttl,
            Edit::Ipv6Src(address) => ip.src = *address,
            Edit::Ipv6Dst(address) => ip.dst = *address,
            Edit::FlowLabel(label) => ip.label = FlowLabel::from_low_bits(*label),
            _ => return self.change_transport(&mut ip.transport),
        }
        true
    }

    fn change_transport(&self, transport: &mut Transport) -> bool {
        match (self, transport) {
            (
                Edit::L4Src(port),
                Transport::Tcp { src, .. } | Transport::Udp { src, .. } | Transport::Sctp { src, .. },
            ) => *src = *port,
            (
                Edit::L4Dst(port),
                Transport::Tcp { dst, .. } | Transport::Udp { dst, .. } | Transport::Sctp { dst, .. },
            ) => *dst = *port,
            (Edit::IcmpType(new), Transport::Icmp { kind, .. }) => *kind = *new,
            (Edit::IcmpCode(new), Transport::Icmp { code, .. }) => *code = *new,
            (Edit::NdTarget(address), Transport::Nd(repr)) => repr.target = *address,
            (Edit::NdLla(mac), Transport::Nd(repr)) if repr.lla.is_some() => repr.lla = Some(*mac),
            _ => return false,
        }
        true
    }
}

/// Returns true if the parser finds the transport header of the recipe. A later fragment hides it, and a
/// payload can resemble another transport header.
fn transport_is_known(recipe: &Recipe, layers: &Layers) -> bool {
    match &recipe.inside {
        InnerPacket::Ipv4(Ip4 { transport, .. }) | InnerPacket::Ipv6(Ip6 { transport, .. }) => {
            match transport {
                Transport::Other(..) => layers.l4() == L4::None && layers.fragment() != Fragment::Later,
                Transport::Nd(_) if layers.l3() == L3::Ipv4 => true,
                _ => layers.l4() != L4::None,
            }
        }
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2048,
        max_global_rejects: 1 << 20,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_rewritten_frame_is_the_frame_built_with_the_new_value(recipe in recipe(), edit in edit()) {
        let original = recipe.build();
        let layers = Layers::parse(&original, Depth::All);
        prop_assume!(transport_is_known(&recipe, &layers));
        let mut changed = recipe.clone();
        let has_field = edit.change(&mut changed);
        let mut frame = original.clone();
        let is_set = edit.rewrite(&mut frame, &layers);

        let first_of_sctp = layers.l4() == L4::Sctp && layers.fragment() == Fragment::First;
        if first_of_sctp && edit.is_of_transport() {
            prop_assert!(!is_set);
            prop_assert_eq!(frame, original);
        } else if has_field {
            prop_assert!(is_set);
            prop_assert_eq!(frame, changed.build());
        } else if !is_set {
            prop_assert_eq!(frame, original);
        } else {
            // The parser finds a field that the recipe does not describe: bytes of a payload that form a
            // valid header, an ICMPv6 message that forms neighbour discovery, or the type of a neighbour
            // discovery message.
            let is_payload = matches!(recipe.inside, InnerPacket::Other(..));
            prop_assert!(is_payload || layers.l4() == L4::Icmpv6 && edit.is_of_transport());
        }
    }

    #[test]
    fn a_damaged_checksum_stays_damaged(recipe in recipe(), edit in edit(), damage in 1u8..=255) {
        let frame = recipe.build();
        let layers = Layers::parse(&frame, Depth::All);
        prop_assume!(matches!(layers.l4(), L4::Tcp | L4::Sctp) && transport_is_known(&recipe, &layers));
        prop_assume!(!edit.is_of_transport() || layers.fragment() == Fragment::Whole);
        let mut right = frame.clone();
        edit.rewrite(&mut right, &layers);
        // The last byte of the transport is covered by its checksum, and no edit touches it.
        let last = layers.l4_offset() + layers.l4_size() - 1;
        prop_assume!(layers.l4_size() > 32);
        let mut damaged = frame;
        damaged[last] ^= damage;
        edit.rewrite(&mut damaged, &layers);
        damaged[last] ^= damage;
        prop_assert_eq!(damaged, right);
    }

    #[test]
    fn an_ip_protocol_is_set_where_it_is_announced(recipe in recipe(), proto in any::<u8>()) {
        let mut frame = recipe.build();
        let layers = Layers::parse(&frame, Depth::All);
        let proto = IpProto(proto);
        // Extension headers are left out: the parser would continue with the payload.
        let is_extension = matches!(proto.0, 0 | 43 | 44 | 50 | 51 | 59 | 60);
        prop_assume!(layers.is_ip() && !is_extension);
        prop_assert!(rewrite::ip_proto(&mut frame, &layers, proto));
        let after = Layers::parse(&frame, Depth::All);
        prop_assert_eq!((after.l3(), after.ip_proto()), (layers.l3(), proto));
        prop_assert_eq!((after.l4_offset(), after.fragment()), (layers.l4_offset(), layers.fragment()));
        if layers.l3() == L3::Ipv4 {
            prop_assert!(ipv4::View::new(&frame[layers.l3_offset()..]).unwrap().checksum_is_right());
        }
    }

    #[test]
    fn rewrites_of_any_frame_never_panic_with_its_map(frame in crate::recipe::damaged_frame(), edit in edit()) {
        let layers = Layers::parse(&frame, Depth::All);
        edit.rewrite(&mut frame.clone(), &layers);
        rewrite::ip_proto(&mut frame.clone(), &layers, IpProto::TCP);
        rewrite::eth_type(&mut frame.clone(), &layers, EtherType::IPV4);
        rewrite::dec_ip_ttl(&mut frame.clone(), &layers);
        rewrite::copy_ttl_in(&mut frame.clone(), &layers);
        rewrite::copy_ttl_out(&mut frame.clone(), &layers);
        // Layers of another, shorter or longer packet are an error of the caller, and must not panic.
        edit.rewrite(&mut frame[..frame.len() / 2].to_vec(), &layers);
        rewrite::ip_proto(&mut frame[..frame.len() / 2].to_vec(), &layers, IpProto::TCP);
    }
}

fn frame() -> Builder<'static> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
}

fn map(frame: &[u8]) -> Layers {
    Layers::parse(frame, Depth::All)
}

#[test]
fn an_absent_udp_checksum_stays_absent() {
    for built in [frame().ipv4([1; 4], [2; 4]), frame().ipv6([1; 16], [2; 16])] {
        let mut bytes = built.udp(53, 53).payload(&[1, 2, 3]).build();
        let layers = map(&bytes);
        let at = layers.l4_offset() + 6;
        bytes[at..at + 2].fill(0);
        rewrite::ipv4_src(&mut bytes, &layers, Ipv4Addr::LOCALHOST);
        rewrite::ipv6_src(&mut bytes, &layers, Ipv6Addr::LOCALHOST);
        assert!(rewrite::l4_dst(&mut bytes, &layers, L4::Udp, 99));
        assert_eq!(bytes[at..at + 2], [0, 0]);
        assert_eq!(udp::View::new(&bytes[layers.l4_offset()..]).unwrap().dst(), 99);
    }
}

#[test]
fn a_later_fragment_has_no_transport_to_mend() {
    let later = ipv4::Repr {
        src: [1; 4].into(),
        dst: [2; 4].into(),
        proto: IpProto::TCP,
        dscp: Dscp::default(),
        ecn: Ecn::default(),
        ttl: 64,
        ident: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 100,
        options: ipv4::Options::default(),
        payload_size: 0,
    };
    let mut bytes = frame().ipv4_with(later).payload(&[7; 40]).build();
    let layers = map(&bytes);
    assert_eq!(
        (layers.fragment(), layers.ip_proto()),
        (Fragment::Later, IpProto::TCP)
    );
    assert!(rewrite::ipv4_dst(&mut bytes, &layers, Ipv4Addr::BROADCAST));
    assert!(!rewrite::l4_src(&mut bytes, &layers, L4::Tcp, 1));
    assert!(ipv4::View::new(&bytes[14..]).unwrap().checksum_is_right());
    assert_eq!(bytes[34..], [7; 40]);
}

#[test]
fn the_ports_of_another_transport_are_not_set() {
    let original = frame().ipv4([1; 4], [2; 4]).udp(1, 2).build();
    let mut bytes = original.clone();
    let layers = map(&bytes);
    assert!(!rewrite::l4_src(&mut bytes, &layers, L4::Tcp, 9));
    assert!(!rewrite::icmpv4_type(&mut bytes, &layers, 9));
    assert_eq!(bytes, original);
}

#[test]
fn a_destination_with_segments_left_is_not_in_the_transports_checksum() {
    let routing = [0, 0, 4, 1, 0, 0, 0, 0];
    let ack = tcp::Repr {
        src: 1,
        dst: 2,
        ..tcp::Repr::default()
    };
    let mut bytes = frame()
        .ipv6([1; 16], [2; 16])
        .extension(IpProto::ROUTING, &routing)
        .tcp(ack)
        .build();
    let layers = map(&bytes);
    let checksum = |bytes: &[u8]| tcp::View::new(&bytes[layers.l4_offset()..]).unwrap().checksum();
    let before = checksum(&bytes);
    assert!(layers.is_routed() && rewrite::ipv6_dst(&mut bytes, &layers, Ipv6Addr::LOCALHOST));
    assert_eq!(checksum(&bytes), before);
    assert!(rewrite::ipv6_src(&mut bytes, &layers, Ipv6Addr::LOCALHOST));
    assert_ne!(checksum(&bytes), before);
}

#[test]
fn an_sctp_packet_in_segments_gets_the_crc_of_all_of_it() {
    use millrace_wire::{Frame, Packet};
    let whole = frame()
        .ipv4([1; 4], [2; 4])
        .sctp(1, 2, 3)
        .payload(&[9; 500])
        .build();
    let mut packet = Frame::segmented(&whole, 60);
    let layers = Layers::of(&packet, Depth::L4);
    assert!(rewrite::l4_src(packet.head_mut(), &layers, L4::Sctp, 4000));
    let sctp = sctp::View::new(&packet.bytes()[layers.l4_offset()..]).unwrap();
    assert!(sctp.checksum_is_right());
    assert_eq!((sctp.src(), sctp.dst()), (4000, 2));
}

#[test]
fn a_time_to_live_of_one_expires_and_is_left_alone() {
    for (ttl, outcome, after) in [
        (0, Ttl::Expired, 0),
        (1, Ttl::Expired, 1),
        (2, Ttl::Changed, 1),
        (255, Ttl::Changed, 254),
    ] {
        let mut ip = frame().ipv4([1; 4], [2; 4]).udp(1, 2).build();
        let layers = map(&ip);
        rewrite::ip_ttl(&mut ip, &layers, ttl);
        assert_eq!(rewrite::dec_ip_ttl(&mut ip, &layers), outcome);
        let view = ipv4::View::new(&ip[14..]).unwrap();
        assert!(view.ttl() == after && view.checksum_is_right());

        let mut mpls = frame().mpls(16, 0, ttl).build();
        let layers = map(&mpls);
        assert_eq!(rewrite::dec_mpls_ttl(&mut mpls, &layers), outcome);
        assert_eq!(mpls[17], after);
        assert_eq!(rewrite::dec_ip_ttl(&mut mpls, &layers), Ttl::Absent);
    }
}

#[test]
fn a_time_to_live_is_copied_between_the_outermost_label_and_what_is_behind_it() {
    let ttl_of_ip = |bytes: &[u8], at: usize| ipv4::View::new(&bytes[at..]).unwrap().ttl();
    // From label to label; IP follows them.
    let mut bytes = frame()
        .mpls(1, 0, 200)
        .mpls(2, 0, 100)
        .ipv4([1; 4], [2; 4])
        .udp(1, 2)
        .build();
    let layers = map(&bytes);
    assert!(rewrite::copy_ttl_in(&mut bytes, &layers));
    assert_eq!((bytes[17], bytes[21], ttl_of_ip(&bytes, 22)), (200, 200, 64));
    // From label to IP, with its checksum, and back.
    let mut bytes = frame().mpls(1, 0, 200).ipv4([1; 4], [2; 4]).udp(1, 2).build();
    let layers = map(&bytes);
    assert!(rewrite::copy_ttl_in(&mut bytes, &layers));
    assert_eq!(ttl_of_ip(&bytes, 18), 200);
    assert!(ipv4::View::new(&bytes[18..]).unwrap().checksum_is_right());
    rewrite::mpls_ttl(&mut bytes, &layers, 9);
    assert!(rewrite::copy_ttl_out(&mut bytes, &layers));
    assert_eq!(bytes[17], 200);
    let mut bytes = frame().mpls(1, 0, 200).ipv6([1; 16], [2; 16]).udp(1, 2).build();
    let layers = map(&bytes);
    assert!(rewrite::copy_ttl_out(&mut bytes, &layers));
    assert_eq!(
        (bytes[17], ipv6::View::new(&bytes[18..]).unwrap().hop_limit()),
        (64, 64)
    );
    // Packets without a TTL.
    let mut bytes = frame().mpls(1, 0, 200).payload(&[0xff; 40]).build();
    let layers = map(&bytes);
    assert!(!rewrite::copy_ttl_in(&mut bytes, &layers) && !rewrite::copy_ttl_out(&mut bytes, &layers));
}

#[test]
fn the_ether_type_is_that_after_all_tags_and_not_a_length() {
    let mut bytes = frame().vlan(1, 0).vlan(2, 0).ipv4([1; 4], [2; 4]).build();
    let layers = map(&bytes);
    assert!(rewrite::eth_type(&mut bytes, &layers, EtherType::ARP));
    assert_eq!(map(&bytes).ether_type(), EtherType::ARP);
    assert_eq!(map(&bytes).vlan_count(), 2);
    let mut length = frame().ether_type(EtherType(3)).payload(&[0x42, 0x42, 3]).build();
    let layers = map(&length);
    assert!(!rewrite::eth_type(&mut length, &layers, EtherType::ARP));
}

#[test]
fn a_message_that_becomes_all_zeros_has_a_checksum_of_ones() {
    let request = frame()
        .ipv4([1; 4], [2; 4])
        .icmpv4(icmpv4::Repr::echo_request(0, 0))
        .payload(&[0; 8]);
    let reply = frame()
        .ipv4([1; 4], [2; 4])
        .icmpv4(icmpv4::Repr::default())
        .payload(&[0; 8]);
    let mut bytes = request.build();
    let layers = map(&bytes);
    assert!(rewrite::icmpv4_type(&mut bytes, &layers, icmpv4::ECHO_REPLY));
    assert_eq!(bytes, reply.build());
    assert_eq!(bytes[36..38], [0xff, 0xff]);
}

#[test]
fn icmp_over_ipv4_does_not_cover_addresses() {
    let echo = icmpv4::Repr::echo_request(1, 2);
    let mut bytes = frame().ipv4([1; 4], [2; 4]).icmpv4(echo).payload(b"ping").build();
    let layers = map(&bytes);
    assert!(rewrite::ipv4_src(&mut bytes, &layers, Ipv4Addr::LOCALHOST));
    assert!(icmpv4::View::new(&bytes[34..]).unwrap().checksum_is_right());
    let mut request = frame()
        .arp(arp::Repr {
            op: arp::REQUEST,
            sha: Mac::ZERO,
            spa: [1; 4].into(),
            tha: Mac::ZERO,
            tpa: [2; 4].into(),
        })
        .build();
    let layers = map(&request);
    assert!(!rewrite::ipv4_src(&mut request, &layers, Ipv4Addr::LOCALHOST));
}
