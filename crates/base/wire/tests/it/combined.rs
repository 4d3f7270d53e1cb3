//! A compiled rewrite gives the same bytes as setting its fields one after the other, in any order, and does not
//! change packets of another layout.

use std::net::Ipv4Addr;

use millrace_types::{Mac, Pcp, Vid};
use millrace_wire::rewrite::{self, HeaderField, HeaderRewrite, Ttl};
use millrace_wire::{
    Builder, Depth, Dscp, Ecn, EtherType, Fragment, IpProto, L3, L4, Layers, ipv4, tcp, udp,
};
use proptest::prelude::*;

use crate::recipe::{self, InnerPacket, Ip4, Recipe, Transport};

/// Returns any word, but often 0 or 0xffff, the two zeros of one's complement arithmetic.
fn word() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0_u16), Just(0xffff), any::<u16>()]
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    (word(), word()).prop_map(|(high, low)| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()]
}

fn field(l4: L4) -> impl Strategy<Value = HeaderField> {
    let mac = || any::<[u8; 6]>().prop_map(Mac);
    prop_oneof![
        mac().prop_map(HeaderField::EthDst),
        mac().prop_map(HeaderField::EthSrc),
        any::<u16>().prop_map(|tci| HeaderField::VlanVid(Vid::from_tci(tci))),
        (0..8_u8).prop_map(|pcp| HeaderField::VlanPcp(Pcp::new(pcp).unwrap())),
        byte().prop_map(|bits| HeaderField::Dscp(Dscp::from_low_bits(bits))),
        byte().prop_map(|bits| HeaderField::Ecn(Ecn::from_low_bits(bits))),
        byte().prop_map(HeaderField::Ttl),
        Just(HeaderField::DecTtl),
        address().prop_map(HeaderField::Ipv4Src),
        address().prop_map(HeaderField::Ipv4Dst),
        word().prop_map(move |port| HeaderField::L4Src(l4, port)),
        word().prop_map(move |port| HeaderField::L4Dst(l4, port)),
    ]
}

/// Returns fields to set, in any order. All port fields are of one protocol, TCP or UDP.
fn fields() -> impl Strategy<Value = Vec<HeaderField>> {
    prop::sample::select(vec![L4::Tcp, L4::Udp]).prop_flat_map(|l4| prop::collection::vec(field(l4), 0..8))
}

/// Sets one field after the other; this is the oracle. Returns false if a TTL expires, which ends a list of
/// actions.
fn one_by_one(fields: &[HeaderField], head: &mut [u8], layers: &Layers) -> bool {
    for field in fields {
        match *field {
            HeaderField::EthDst(mac) => rewrite::eth_dst(head, mac),
            HeaderField::EthSrc(mac) => rewrite::eth_src(head, mac),
            HeaderField::VlanVid(vid) => rewrite::vlan_vid(head, vid),
            HeaderField::VlanPcp(pcp) => rewrite::vlan_pcp(head, pcp),
            HeaderField::Dscp(dscp) => rewrite::ip_dscp(head, layers, dscp),
            HeaderField::Ecn(ecn) => rewrite::ip_ecn(head, layers, ecn),
            HeaderField::Ttl(ttl) => rewrite::ip_ttl(head, layers, ttl),
            HeaderField::DecTtl => match rewrite::dec_ip_ttl(head, layers) {
                Ttl::Expired => return false,
                Ttl::Changed | Ttl::Absent => true,
            },
            HeaderField::Ipv4Src(address) => rewrite::ipv4_src(head, layers, address),
            HeaderField::Ipv4Dst(address) => rewrite::ipv4_dst(head, layers, address),
            HeaderField::L4Src(l4, port) => rewrite::l4_src(head, layers, l4, port),
            HeaderField::L4Dst(l4, port) => rewrite::l4_dst(head, layers, l4, port),
        };
    }
    true
}

fn compiled(fields: &[HeaderField]) -> Option<HeaderRewrite> {
    let mut all = HeaderRewrite::NONE;
    fields.iter().all(|field| all.set(*field)).then_some(all)
}

/// Returns true if a compiled rewrite of these fields supports the layout of a packet.
fn is_of_layout(layers: &Layers, head: &[u8], fields: &[HeaderField]) -> bool {
    let one_tag = layers.vlan_count() == 1 && head[12..14] == EtherType::VLAN.0.to_be_bytes();
    let is_tagged_or_plain = layers.vlan_count() == 0 || one_tag;
    if layers.l3() == L3::Ipv6 {
        return is_tagged_or_plain && layers.mpls_count() == 0 && fields.iter().all(is_of_router);
    }
    is_tagged_or_plain
        && layers.l3() == L3::Ipv4
        && layers.l4_offset() == layers.l3_offset() + ipv4::MIN_SIZE
        && layers.fragment() == Fragment::Whole
        && matches!(layers.l4(), L4::Tcp | L4::Udp)
        && head.len() >= layers.l4_offset() + tcp::MIN_SIZE
}

/// Returns true if a router changes this field, whatever the version of IP.
fn is_of_router(field: &HeaderField) -> bool {
    match field {
        HeaderField::EthDst(_)
        | HeaderField::EthSrc(_)
        | HeaderField::VlanVid(_)
        | HeaderField::VlanPcp(_)
        | HeaderField::Ttl(_)
        | HeaderField::DecTtl => true,
        HeaderField::Dscp(_)
        | HeaderField::Ecn(_)
        | HeaderField::Ipv4Src(_)
        | HeaderField::Ipv4Dst(_)
        | HeaderField::L4Src(..)
        | HeaderField::L4Dst(..) => false,
    }
}

/// Returns an IPv4 packet without options, with TCP or UDP and at most one tag.
fn plain() -> impl Strategy<Value = Recipe> {
    let tags = prop_oneof![
        Just(vec![]),
        Just(vec![(EtherType::VLAN, 5, 3)]),
        Just(vec![(EtherType::QINQ, 6, 2)]),
    ];
    let transport = prop_oneof![
        (word(), word(), any::<u32>()).prop_map(|(src, dst, seq)| Transport::Tcp {
            src,
            dst,
            seq,
            options: vec![],
            data: vec![9; 20],
        }),
        (word(), word()).prop_map(|(src, dst)| Transport::Udp {
            src,
            dst,
            data: vec![8; 40],
        }),
    ];
    (tags, address(), address(), byte(), byte(), transport).prop_map(
        |(tags, src, dst, ttl, class, transport)| Recipe {
            dst: Mac([2, 0, 0, 0, 0, 2]),
            src: Mac([2, 0, 0, 0, 0, 1]),
            tags,
            inside: InnerPacket::Ipv4(Ip4 {
                src,
                dst,
                dscp: Dscp::from_low_bits(class >> 2),
                ecn: Ecn::from_low_bits(class),
                ttl,
                fragment: 0,
                options: vec![],
                transport,
            }),
            padding: 0,
        },
    )
}

fn check(frame: &[u8], head_size: usize, fields: &[HeaderField]) -> Result<(), TestCaseError> {
    let Some(all) = compiled(fields) else {
        return Ok(());
    };
    let head = &frame[..head_size.min(frame.len())];
    let layers = Layers::parse_head(head, frame.len(), Depth::L4);
    let (mut at_once, mut in_turn) = (head.to_vec(), head.to_vec());
    let is_applied = all.apply(&mut at_once, frame.len());
    let runs_out = !one_by_one(fields, &mut in_turn, &layers);
    if is_applied {
        prop_assert!(!runs_out && is_of_layout(&layers, head, fields));
        prop_assert_eq!(at_once, in_turn);
    } else {
        prop_assert_eq!(&at_once, head);
        let other_ports = fields.iter().any(|field| {
            matches!(*field, HeaderField::L4Src(l4, _) | HeaderField::L4Dst(l4, _) if l4 != layers.l4())
        });
        prop_assert!(runs_out || other_ports || !is_of_layout(&layers, head, fields));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn fields_set_at_once_are_fields_set_one_by_one(
        recipe in plain(),
        fields in fields(),
        // Each checksum is correct, or is replaced by any value.
        checksums in (prop::option::of(word()), prop::option::of(word())),
        head_size in prop_oneof![5 => Just(1500_usize), 1 => 0..80_usize],
    ) {
        let mut frame = recipe.build();
        let layers = Layers::parse(&frame, Depth::L4);
        let l4 = layers.l4_offset() + if layers.l4() == L4::Udp { 6 } else { 16 };
        for (at, checksum) in [(layers.l3_offset() + 10, checksums.0), (l4, checksums.1)] {
            if let Some(checksum) = checksum {
                frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
            }
        }
        check(&frame, head_size, &fields)?;
    }

    #[test]
    fn no_frame_of_another_layout_is_touched(
        frame in recipe::damaged_frame(),
        fields in fields(),
        head_size in prop_oneof![3 => Just(1500_usize), 1 => 0..80_usize],
    ) {
        check(&frame, head_size, &fields)?;
    }
}

fn packet(proto: IpProto) -> Vec<u8> {
    let builder = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    match proto {
        IpProto::UDP => builder.udp(1000, 2000).payload(&[7; 31]).build(),
        _ => {
            let repr = tcp::Repr {
                src: 1000,
                dst: 2000,
                ..tcp::Repr::default()
            };
            builder.tcp(repr).payload(&[7; 31]).build()
        }
    }
}

fn nat(l4: L4) -> Vec<HeaderField> {
    vec![
        HeaderField::EthSrc(Mac([6, 0, 0, 0, 0, 1])),
        HeaderField::EthDst(Mac([6, 0, 0, 0, 0, 2])),
        HeaderField::Ipv4Src(Ipv4Addr::new(192, 0, 2, 1)),
        HeaderField::L4Src(l4, 40_000),
        HeaderField::DecTtl,
    ]
}

#[test]
fn a_translated_packet_has_right_checksums() {
    for (proto, l4) in [(IpProto::TCP, L4::Tcp), (IpProto::UDP, L4::Udp)] {
        let mut frame = packet(proto);
        let before = ipv4::View::new(&frame[14..]).unwrap().ttl();
        assert!(compiled(&nat(l4)).unwrap().apply(&mut frame, usize::MAX));
        let ip = ipv4::View::new(&frame[14..]).unwrap();
        assert!(ip.checksum_is_right());
        assert_eq!((ip.src(), ip.ttl()), (Ipv4Addr::new(192, 0, 2, 1), before - 1));
        assert_eq!(frame[..12], [6, 0, 0, 0, 0, 2, 6, 0, 0, 0, 0, 1]);
        assert_eq!(frame[34..36], 40_000_u16.to_be_bytes());
    }
}

#[test]
fn an_absent_udp_checksum_stays_absent_and_no_other_becomes_zero() {
    let mut frame = packet(IpProto::UDP);
    frame[40..42].fill(0);
    assert!(compiled(&nat(L4::Udp)).unwrap().apply(&mut frame, 1500));
    assert_eq!(frame[40..42], [0, 0]);
    // One of these source ports makes the sum of all words 0xffff.
    let frame = packet(IpProto::UDP);
    let is_never_zero = (0..=u16::MAX).all(|port| {
        let mut frame = frame.clone();
        let fields = [HeaderField::L4Src(L4::Udp, port)];
        assert!(compiled(&fields).unwrap().apply(&mut frame, 1500));
        let udp = udp::View::new(&frame[34..]).unwrap();
        udp.checksum() != 0
    });
    assert!(is_never_zero);
}

#[test]
fn a_rewrite_takes_each_value_once_and_ports_of_one_protocol() {
    let address = HeaderField::Ipv4Dst(Ipv4Addr::LOCALHOST);
    for fields in [
        [address, address],
        [HeaderField::Ttl(3), HeaderField::DecTtl],
        [HeaderField::DecTtl, HeaderField::DecTtl],
        [HeaderField::L4Src(L4::Tcp, 1), HeaderField::L4Dst(L4::Udp, 1)],
        [HeaderField::L4Src(L4::Tcp, 1), HeaderField::L4Src(L4::Tcp, 2)],
        [HeaderField::L4Src(L4::Sctp, 1), HeaderField::DecTtl],
    ] {
        assert_eq!(compiled(&fields), None, "{fields:?}");
    }
    let tags = [
        HeaderField::VlanVid(Vid::from_tci(7)),
        HeaderField::VlanVid(Vid::from_tci(8)),
    ];
    assert_eq!(compiled(&tags), compiled(&tags[1..]));
}

#[test]
fn a_rewrite_fills_one_cache_line() {
    assert_eq!(
        (size_of::<HeaderRewrite>(), align_of::<HeaderRewrite>()),
        (64, 64)
    );
}
