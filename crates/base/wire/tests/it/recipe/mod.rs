//! Descriptions of frames that proptest can generate and shrink, and that tests can change. All properties
//! use them.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unreachable_pub, reason = "the fields are those of the headers")]

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;
use millrace_wire::{
    Builder, Dscp, Ecn, EtherType, FlowLabel, IpProto, arp, icmpv4, icmpv6, ipv4, ipv6, tcp,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub struct Recipe {
    pub dst: Mac,
    pub src: Mac,
    /// TPID, identifier, priority.
    pub tags: Vec<(EtherType, u16, u8)>,
    pub inside: InnerPacket,
    pub padding: usize,
}

#[derive(Clone, Debug)]
pub enum InnerPacket {
    Arp(arp::Repr),
    Ipv4(Ip4),
    Ipv6(Ip6),
    /// Label, traffic class and TTL of each entry; then the payload.
    Mpls(Vec<(u32, u8, u8)>, Box<InnerPacket>),
    Pbb(u32, Mac, Mac, Box<InnerPacket>),
    Other(EtherType, Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Ip4 {
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub dscp: Dscp,
    pub ecn: Ecn,
    pub ttl: u8,
    pub fragment: u16,
    pub options: Vec<u8>,
    pub transport: Transport,
}

#[derive(Clone, Debug)]
pub struct Ip6 {
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
    pub dscp: Dscp,
    pub ecn: Ecn,
    pub hop_limit: u8,
    pub label: FlowLabel,
    pub extensions: Vec<(IpProto, Vec<u8>)>,
    pub transport: Transport,
}

#[derive(Clone, Debug)]
pub enum Transport {
    Tcp {
        src: u16,
        dst: u16,
        seq: u32,
        options: Vec<u8>,
        data: Vec<u8>,
    },
    Udp {
        src: u16,
        dst: u16,
        data: Vec<u8>,
    },
    Sctp {
        src: u16,
        dst: u16,
        tag: u32,
        data: Vec<u8>,
    },
    /// ICMP over IPv4, ICMPv6 over IPv6.
    Icmp {
        kind: u8,
        code: u8,
        data: Vec<u8>,
    },
    /// Neighbour discovery over IPv6. Over IPv4 it is an empty payload of protocol 253.
    Nd(icmpv6::NdRepr),
    Other(IpProto, Vec<u8>),
}

impl Recipe {
    pub fn build(&self) -> Vec<u8> {
        let mut builder = Builder::ethernet(self.dst, self.src);
        for (tpid, vid, pcp) in &self.tags {
            builder = builder.tag(*tpid, *vid, *pcp);
        }
        let mut frame = self.inside.build(builder).build();
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }
}

impl InnerPacket {
    fn build<'a>(&'a self, builder: Builder<'a>) -> Builder<'a> {
        match self {
            InnerPacket::Arp(repr) => builder.arp(*repr),
            InnerPacket::Ipv4(ip) => {
                let (proto, data) = ip.transport.raw();
                let builder = builder.ipv4_with(ipv4::Repr {
                    src: ip.src,
                    dst: ip.dst,
                    proto,
                    dscp: ip.dscp,
                    ecn: ip.ecn,
                    ttl: ip.ttl,
                    ident: 77,
                    dont_fragment: ip.fragment & ipv4::DONT_FRAGMENT != 0,
                    more_fragments: ip.fragment & ipv4::MORE_FRAGMENTS != 0,
                    fragment_offset: ip.fragment & ipv4::FRAGMENT_OFFSET,
                    options: ipv4::Options::new(&ip.options).unwrap(),
                    payload_size: 0,
                });
                ip.transport.build(builder, 4).payload(data)
            }
            InnerPacket::Ipv6(ip) => {
                let (proto, data) = ip.transport.raw();
                let mut builder = builder.ipv6_with(ipv6::Repr {
                    src: ip.src,
                    dst: ip.dst,
                    next_header: proto,
                    dscp: ip.dscp,
                    ecn: ip.ecn,
                    flow_label: ip.label,
                    hop_limit: ip.hop_limit,
                    payload_size: 0,
                });
                for (proto, bytes) in &ip.extensions {
                    builder = builder.extension(*proto, bytes);
                }
                ip.transport.build(builder, 6).payload(data)
            }
            InnerPacket::Mpls(entries, inside) => {
                let builder = entries.iter().fold(builder, |builder, (label, tc, ttl)| {
                    builder.mpls(*label, *tc, *ttl)
                });
                inside.build(builder)
            }
            InnerPacket::Pbb(isid, dst, src, inside) => inside.build(builder.pbb(*isid, *dst, *src)),
            InnerPacket::Other(ether_type, data) => builder.ether_type(*ether_type).payload(data),
        }
    }
}

impl Transport {
    fn raw(&self) -> (IpProto, &[u8]) {
        match self {
            Transport::Tcp { data, .. } => (IpProto::TCP, data),
            Transport::Udp { data, .. } => (IpProto::UDP, data),
            Transport::Sctp { data, .. } => (IpProto::SCTP, data),
            Transport::Icmp { data, .. } => (IpProto::ICMPV4, data),
            Transport::Nd(_) => (IpProto(253), &[]),
            Transport::Other(proto, data) => (*proto, data),
        }
    }

    fn build<'a>(&'a self, builder: Builder<'a>, version: u8) -> Builder<'a> {
        match self {
            Transport::Tcp {
                src,
                dst,
                seq,
                options,
                ..
            } => builder.tcp(tcp::Repr {
                src: *src,
                dst: *dst,
                seq: *seq,
                flags: tcp::flags::ACK,
                options: tcp::Options::new(options).unwrap(),
                ..tcp::Repr::default()
            }),
            Transport::Udp { src, dst, .. } => builder.udp(*src, *dst),
            Transport::Sctp { src, dst, tag, .. } => builder.sctp(*src, *dst, *tag),
            Transport::Icmp { kind, code, .. } if version == 4 => builder.icmpv4(icmpv4::Repr {
                kind: *kind,
                code: *code,
                rest_of_header: [1, 2, 3, 4],
            }),
            Transport::Icmp { kind, code, .. } => builder.icmpv6(*kind, *code),
            Transport::Nd(repr) if version == 6 => builder.neighbor(*repr),
            Transport::Nd(_) | Transport::Other(..) => builder,
        }
    }
}

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn words() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => Just(0usize), 1 => 0..=10usize].prop_map(|words| vec![1; words * 4])
}

fn class() -> impl Strategy<Value = (Dscp, Ecn)> {
    any::<(u8, u8)>().prop_map(|(dscp, ecn)| (Dscp::from_low_bits(dscp), Ecn::from_low_bits(ecn)))
}

pub fn transport() -> impl Strategy<Value = Transport> {
    let nd = (
        any::<bool>(),
        any::<u32>(),
        any::<[u8; 16]>(),
        proptest::option::of(mac()),
    );
    prop_oneof![
        (any::<(u16, u16, u32)>(), words(), data()).prop_map(|((src, dst, seq), options, data)| {
            Transport::Tcp {
                src,
                dst,
                seq,
                options,
                data,
            }
        }),
        (any::<(u16, u16)>(), data()).prop_map(|((src, dst), data)| Transport::Udp { src, dst, data }),
        (any::<(u16, u16, u32)>(), data()).prop_map(|((src, dst, tag), data)| Transport::Sctp {
            src,
            dst,
            tag,
            data
        }),
        (any::<(u8, u8)>(), data()).prop_map(|((kind, code), data)| Transport::Icmp { kind, code, data }),
        nd.prop_map(|(advert, flags, target, lla)| {
            let kind = if advert {
                icmpv6::NEIGHBOR_ADVERT
            } else {
                icmpv6::NEIGHBOR_SOLICIT
            };
            Transport::Nd(icmpv6::NdRepr {
                kind,
                flags,
                target: target.into(),
                lla,
            })
        }),
        (any::<u8>(), data()).prop_map(|(proto, data)| Transport::Other(IpProto(proto), data)),
    ]
}

pub fn ip4() -> impl Strategy<Value = Ip4> {
    let fragment = prop_oneof![4 => Just(0), 1 => Just(ipv4::DONT_FRAGMENT), 2 => any::<u16>()];
    (
        any::<([u8; 4], [u8; 4])>(),
        class(),
        any::<u8>(),
        fragment,
        words(),
        transport(),
    )
        .prop_map(|((src, dst), (dscp, ecn), ttl, fragment, options, transport)| {
            let (src, dst) = (src.into(), dst.into());
            Ip4 {
                src,
                dst,
                dscp,
                ecn,
                ttl,
                fragment,
                options,
                transport,
            }
        })
}

/// Returns a complete extension header of any type; a routing header has no segments left.
fn extension() -> impl Strategy<Value = (IpProto, Vec<u8>)> {
    let options = |proto| {
        (0u8..3).prop_map(move |units| {
            let mut bytes = vec![0; 8 + usize::from(units) * 8];
            bytes[1] = units;
            (proto, bytes)
        })
    };
    let ah = (0u8..5).prop_map(|words| {
        let mut bytes = vec![0; 8 + usize::from(words) * 4];
        bytes[1] = words;
        (IpProto::AH, bytes)
    });
    let fragment = prop_oneof![Just(0u16), Just(1), any::<u16>()].prop_map(|field| {
        let [high, low] = field.to_be_bytes();
        (IpProto::FRAGMENT, vec![0, 0, high, low, 1, 2, 3, 4])
    });
    prop_oneof![
        options(IpProto::HOP_BY_HOP),
        options(IpProto::DEST_OPTIONS),
        options(IpProto::ROUTING),
        ah,
        fragment
    ]
}

pub fn ip6() -> impl Strategy<Value = Ip6> {
    let extensions = prop_oneof![2 => Just(Vec::new()), 3 => vec(extension(), 1..6)];
    (
        any::<([u8; 16], [u8; 16])>(),
        class(),
        any::<(u8, u32)>(),
        extensions,
        transport(),
    )
        .prop_map(
            |((src, dst), (dscp, ecn), (hop_limit, label), extensions, transport)| Ip6 {
                src: src.into(),
                dst: dst.into(),
                dscp,
                ecn,
                hop_limit,
                label: FlowLabel::from_low_bits(label),
                extensions,
                transport,
            },
        )
}

fn ip() -> impl Strategy<Value = InnerPacket> {
    prop_oneof![
        ip4().prop_map(InnerPacket::Ipv4),
        ip6().prop_map(InnerPacket::Ipv6)
    ]
}

fn other() -> impl Strategy<Value = InnerPacket> {
    let ether_type = prop_oneof![
        Just(EtherType(0x0027)),
        Just(EtherType::VLAN),
        Just(EtherType::MPLS),
        Just(EtherType::PBB),
        Just(EtherType::IPV4),
        any::<u16>().prop_map(EtherType)
    ];
    let snap = vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let bytes = prop_oneof![data(), data().prop_map(move |data| [snap.clone(), data].concat())];
    (ether_type, bytes).prop_map(|(ether_type, bytes)| InnerPacket::Other(ether_type, bytes))
}

pub fn inside() -> impl Strategy<Value = InnerPacket> {
    let arp = (any::<u16>(), mac(), any::<[u8; 4]>(), mac(), any::<[u8; 4]>()).prop_map(
        |(op, sha, spa, tha, tpa)| {
            InnerPacket::Arp(arp::Repr {
                op,
                sha,
                spa: spa.into(),
                tha,
                tpa: tpa.into(),
            })
        },
    );
    let mpls = (vec(any::<(u32, u8, u8)>(), 1..4), prop_oneof![ip(), other()])
        .prop_map(|(entries, inside)| InnerPacket::Mpls(entries, Box::new(inside)));
    let pbb = (any::<u32>(), mac(), mac(), ip())
        .prop_map(|(isid, dst, src, inside)| InnerPacket::Pbb(isid, dst, src, Box::new(inside)));
    prop_oneof![1 => arp, 8 => ip(), 2 => mpls, 1 => pbb, 2 => other()]
}

/// Returns a frame with correct lengths and checksums.
pub fn recipe() -> impl Strategy<Value = Recipe> {
    let tag = (
        prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)],
        0u16..4096,
        0u8..8,
    );
    (mac(), mac(), vec(tag, 0..4), inside(), 0usize..20).prop_map(|(dst, src, tags, inside, padding)| {
        Recipe {
            dst,
            src,
            tags,
            inside,
            padding,
        }
    })
}

/// Returns a frame truncated, or with a few bytes changed, so that its lengths are plausible but wrong.
pub fn damaged_frame() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (
        recipe(),
        vec(change, 0..4),
        proptest::option::of(any::<prop::sample::Index>()),
    )
        .prop_map(|(recipe, changes, cut)| {
            let mut frame = recipe.build();
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len() + 1));
            }
            frame
        })
}
