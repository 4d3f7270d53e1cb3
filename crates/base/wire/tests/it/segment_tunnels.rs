//! Segmentation inside of a kernel's tunnels gives the frames that the kernel would have sent if it had segmented the packet
//! itself: those of the builder, wrapped by hand.

#![allow(clippy::unwrap_used, reason = "a test")]

use core::num::NonZeroU16;
use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;
use millrace_wire::checksum::{Sum, internet};
use millrace_wire::segment::GsoLayout;
use millrace_wire::virtio_net::{Accepted, Header};
use millrace_wire::{Builder, Dscp, Ecn, EtherType, FlowLabel, Frame, IpProto, ipv4, ipv6, tcp};
use proptest::prelude::*;

const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THERE: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// The segment size, in bytes.
const SEGMENT: usize = 1000;

/// The tunnels of Linux, and what lies between their outer IP header and the inner Ethernet or IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Vxlan,
    VxlanWithChecksum,
    GeneveWithOption,
    /// Generic UDP encapsulation of IP, without a header of its own (FOU).
    Fou,
    Gre,
    GreWithChecksumAndKey,
    GreTap,
    IpInIp,
    /// VXLAN inside of GRE.
    VxlanInGre,
}

const KINDS: [Kind; 9] = [
    Kind::Vxlan,
    Kind::VxlanWithChecksum,
    Kind::GeneveWithOption,
    Kind::Fou,
    Kind::Gre,
    Kind::GreWithChecksumAndKey,
    Kind::GreTap,
    Kind::IpInIp,
    Kind::VxlanInGre,
];

/// A packet in a tunnel.
#[derive(Clone, Debug)]
struct Tunnelled {
    kind: Kind,
    outer_ipv6: bool,
    inner_ipv6: bool,
    is_udp: bool,
    outer_tags: usize,
    inner_tags: usize,
    data: Vec<u8>,
}

impl Tunnelled {
    fn has_inner_ethernet(&self) -> bool {
        matches!(
            self.kind,
            Kind::Vxlan | Kind::VxlanWithChecksum | Kind::GeneveWithOption | Kind::GreTap | Kind::VxlanInGre
        )
    }

    /// Returns the inner frame with a part of the data, and the offset of its IP header.
    fn inner(&self, number: usize, begin: usize, data: &[u8], is_last: bool) -> (Vec<u8>, usize) {
        let mut builder = Builder::ethernet(THERE, HERE);
        let tags = if self.has_inner_ethernet() {
            self.inner_tags
        } else {
            0
        };
        for vid in 0..tags {
            builder = builder.tag(EtherType::VLAN, 100 + vid as u16, 0);
        }
        let builder = ip(
            builder,
            self.inner_ipv6,
            300 + number as u16,
            if self.is_udp { 17 } else { 6 },
        );
        let builder = match self.is_udp {
            true => builder.udp(1024, 443),
            false => builder.tcp(tcp::Repr {
                src: 1024,
                dst: 80,
                seq: 9 + begin as u32,
                flags: tcp::flags::ACK | if is_last { tcp::flags::PSH } else { 0 },
                ..tcp::Repr::default()
            }),
        };
        (builder.payload(data).build(), 14 + 4 * tags)
    }

    /// Wraps an inner frame.
    fn wrapped(&self, number: usize, inner: &[u8], ip_at: usize) -> Vec<u8> {
        let inside = if self.has_inner_ethernet() {
            inner
        } else {
            &inner[ip_at..]
        };
        let ether_type: u16 = match (self.has_inner_ethernet(), self.inner_ipv6) {
            (true, _) => 0x6558,
            (false, false) => 0x0800,
            (false, true) => 0x86dd,
        };
        let [e0, e1] = ether_type.to_be_bytes();
        let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
        let udp = |header: &[u8], port: u16, has_checksum: bool| {
            let body = [header, inside].concat();
            let mut builder = Builder::ethernet(THERE, HERE);
            for vid in 0..self.outer_tags {
                builder = builder.tag(EtherType::VLAN, 5 + vid as u16, 0);
            }
            let mut bytes = ip(builder, self.outer_ipv6, 70 + number as u16, 17)
                .udp(40000, port)
                .payload(&body)
                .build();
            if !has_checksum {
                let at = bytes.len() - body.len() - 2;
                bytes[at..at + 2].fill(0);
            }
            bytes
        };
        let over_ip = |proto: u8, body: &[u8]| {
            let mut builder = Builder::ethernet(THERE, HERE);
            for vid in 0..self.outer_tags {
                builder = builder.tag(EtherType::VLAN, 5 + vid as u16, 0);
            }
            ip(builder, self.outer_ipv6, 70 + number as u16, proto)
                .payload(body)
                .build()
        };
        match self.kind {
            Kind::Vxlan => udp(&vxlan, 4789, false),
            Kind::VxlanWithChecksum => udp(&vxlan, 8472, true),
            Kind::GeneveWithOption => udp(
                &[2, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 1, 4, 5, 6, 7],
                6081,
                false,
            ),
            Kind::Fou => udp(&[], 5555, true),
            Kind::Gre | Kind::GreTap => over_ip(47, &[&[0, 0, e0, e1], inside].concat()),
            Kind::GreWithChecksumAndKey => {
                let mut body = [&[0xa0, 0, e0, e1, 0, 0, 0, 0, 0, 0, 0, 42], inside].concat();
                let checksum = internet(&body).to_be_bytes();
                body[4..6].copy_from_slice(&checksum);
                over_ip(47, &body)
            }
            Kind::IpInIp => over_ip(if self.inner_ipv6 { 41 } else { 4 }, inside),
            Kind::VxlanInGre => {
                let middle = udp(&vxlan, 4789, true);
                let at = 14 + 4 * self.outer_tags;
                let kind = if self.outer_ipv6 { [0x86, 0xdd] } else { [8, 0] };
                over_ip(47, &[&[0, 0, kind[0], kind[1]], &middle[at..]].concat())
            }
        }
    }

    /// Returns the GSO packet as a kernel hands it over, and the offset of the inner transport header.
    fn packet(&self, head_size: usize) -> (Frame, usize) {
        let (mut inner, ip_at) = self.inner(0, 0, &self.data, true);
        let l4_at = ip_at + if self.inner_ipv6 { 40 } else { 20 };
        let size = inner.len() - l4_at;
        let addresses = if self.inner_ipv6 { ip_at + 8 } else { ip_at + 12 };
        let pseudo = Sum::of(&inner[addresses..l4_at])
            .add16(if self.is_udp { 17 } else { 6 })
            .add32(size as u32);
        let field = l4_at + if self.is_udp { 6 } else { 16 };
        inner[field..field + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
        let bytes = self.wrapped(0, &inner, ip_at);
        let at = bytes.len() - size;
        let segment_size = NonZeroU16::new(SEGMENT as u16).unwrap();
        (Frame::segmented(&bytes, head_size).to_gso(segment_size), at)
    }

    /// Returns the frames that the kernel sends if it segments the packet.
    fn segments(&self) -> Vec<Vec<u8>> {
        let parts = self.data.chunks(SEGMENT).enumerate();
        let segment = |(number, part): (usize, &[u8])| {
            let begin = number * SEGMENT;
            let is_last = begin + part.len() == self.data.len();
            let (inner, ip_at) = self.inner(number, begin, part, is_last);
            self.wrapped(number, &inner, ip_at)
        };
        parts.map(segment).collect()
    }
}

fn ip(builder: Builder<'_>, is_ipv6: bool, ident: u16, proto: u8) -> Builder<'_> {
    if is_ipv6 {
        return builder.ipv6_with(ipv6::Repr {
            src: Ipv6Addr::from(5),
            dst: Ipv6Addr::from(9),
            next_header: IpProto(proto),
            dscp: Dscp::default(),
            ecn: Ecn::default(),
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            payload_size: 0,
        });
    }
    builder.ipv4_with(ipv4::Repr {
        ident,
        proto: IpProto(proto),
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        ttl: 64,
        dscp: Dscp::from_low_bits(0),
        ecn: Ecn::from_low_bits(0),
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        options: ipv4::Options::new(&[]).unwrap(),
        payload_size: 0,
    })
}

prop_compose! {
    fn tunnelled()(
        kind in prop::sample::select(&KINDS[..]),
        (outer_ipv6, inner_ipv6, is_udp) in any::<(bool, bool, bool)>(),
        (outer_tags, inner_tags) in (0_usize..3, 0_usize..3),
        size in SEGMENT + 1..40_000,
        seed: u8,
    ) -> Tunnelled {
        let data = (0..size).map(|at| (at * 7 + at / 251) as u8 ^ seed).collect();
        Tunnelled { kind, outer_ipv6, inner_ipv6, is_udp, outer_tags, inner_tags, data }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_segments_are_the_frames_of_a_kernel_that_segments_itself(
        tunnelled in tunnelled(), head_size in 256_usize..3000,
    ) {
        let (packet, at) = tunnelled.packet(head_size);
        let gso = GsoLayout::of(&packet).unwrap();
        prop_assert!(!gso.is_plain());
        prop_assert_eq!(gso.layers()[0] + gso.layers()[1], at);
        let wanted = tunnelled.segments();
        prop_assert_eq!(gso.count(), wanted.len());
        let front = 14 + 4 * tunnelled.outer_tags;
        prop_assert_eq!(gso.packet_size(), wanted[0].len() - front, "the MTU of the outer packet");
        for (number, wanted) in wanted.iter().enumerate() {
            let segment = gso.segment(&packet, number).unwrap();
            prop_assert_eq!(segment.bytes(), &wanted[..], "segment {} of {}", number, gso.count());
        }
    }
}

#[test]
fn a_header_of_the_kernel_is_accepted_if_its_checksum_is_the_inner_one() {
    let accepted = Accepted {
        tcpv4: true,
        tcpv6: true,
        udp: true,
        frame_size: usize::MAX,
        mtu: 1500,
    };
    let tunnelled = Tunnelled {
        kind: Kind::Vxlan,
        outer_ipv6: false,
        inner_ipv6: true,
        is_udp: false,
        outer_tags: 0,
        inner_tags: 1,
        data: vec![5; 20_000],
    };
    let (packet, at) = tunnelled.packet(usize::MAX);
    // VIRTIO_NET_HDR_F_NEEDS_CSUM; the type of TCP over IPv6, or over IPv4.
    let finishes = |kind: u8, at: usize, bytes: &[u8]| {
        let [s0, s1] = (SEGMENT as u16).to_le_bytes();
        let [a0, a1] = (at as u16).to_le_bytes();
        let header = Header::from_bytes([1, kind, 0, 0, s0, s1, a0, a1, 16, 0]);
        header.finish(&mut Frame::new(bytes), &accepted)
    };
    assert!(finishes(4, at, packet.bytes()));
    assert!(!finishes(1, at, packet.bytes()), "the inner version counts");
    assert!(!finishes(4, at - 2, packet.bytes()));
    // An inner packet that does not reach the end of the frame is not that of the header.
    let mut shorter = packet.bytes().to_vec();
    shorter[at - 40 + 5] ^= 1;
    assert!(!finishes(4, at, &shorter));
}

#[test]
fn a_train_of_vxlan_datagrams_stays_a_train() {
    // Each datagram has an inner packet of its own, which does not reach the end of the train.
    let tunnelled = Tunnelled {
        kind: Kind::Vxlan,
        outer_ipv6: false,
        inner_ipv6: false,
        is_udp: false,
        outer_tags: 0,
        inner_tags: 0,
        data: vec![5; 900],
    };
    let (inner, ip_at) = tunnelled.inner(0, 0, &tunnelled.data, true);
    let one = tunnelled.wrapped(0, &inner, ip_at)[42..].to_vec();
    let train = ip(Builder::ethernet(THERE, HERE), false, 1, 17)
        .udp(40000, 4789)
        .payload(&one.repeat(5))
        .build();
    let size = NonZeroU16::new(one.len() as u16).unwrap();
    let gso = GsoLayout::of(&Frame::new(&train).to_gso(size)).unwrap();
    assert!(gso.is_udp() && gso.is_plain());
    assert_eq!((gso.layers(), gso.count()), ([14, 20, 8], 5));
}
