//! Segmentation gives the segments that the sender would have sent: those of the builder, which does not use the
//! segmentation code, with the same headers.

#![allow(clippy::unwrap_used, reason = "a test")]

use core::num::NonZeroU16;
use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;
use millrace_wire::segment::{GsoLayout, HEADERS_MAX};
use millrace_wire::{
    Builder, Depth, Dscp, Ecn, EtherType, Frame, FramePool, IpProto, L4, Layers, Packet, ipv4, ipv6, tcp,
};
use proptest::collection::vec;
use proptest::prelude::*;

const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THERE: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// The headers before IP.
#[derive(Clone, Debug)]
enum Front {
    Tags(Vec<(EtherType, u16, u8)>),
    Mpls(Vec<u32>),
    Pbb(u32),
}

#[derive(Clone, Debug)]
struct Long {
    front: Front,
    is_ipv6: bool,
    ident: u16,
    ip_options: usize,
    extension: bool,
    seq: u32,
    flags: u16,
    urgent: u16,
    tcp_options: usize,
    size: usize,
    segment_size: u16,
    head_size: usize,
}

/// No-operation options, 4 bytes each.
const NOTHING: [u8; 40] = [1; 40];
/// Destination options: a header of 8 bytes of padding.
const EXTENSION: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

impl Long {
    fn data(&self) -> Vec<u8> {
        (0..self.size).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Returns a frame with a part of the data.
    fn frame(&self, number: usize, seq: u32, flags: u16, urgent: u16, data: &[u8]) -> Vec<u8> {
        let mut builder = Builder::ethernet(THERE, HERE);
        builder = match &self.front {
            Front::Tags(tags) => tags.iter().fold(builder, |builder, (tpid, vid, pcp)| {
                builder.tag(*tpid, *vid, *pcp)
            }),
            Front::Mpls(labels) => labels
                .iter()
                .fold(builder, |builder, label| builder.mpls(*label, 0, 64)),
            Front::Pbb(isid) => builder.pbb(*isid, THERE, HERE),
        };
        builder = if self.is_ipv6 {
            let (src, dst) = (
                Ipv6Addr::from(1_u128 << 120 | 5),
                Ipv6Addr::from(1_u128 << 120 | 9),
            );
            let builder = builder.ipv6(src, dst);
            match self.extension {
                true => builder.extension(IpProto::DEST_OPTIONS, &EXTENSION),
                false => builder,
            }
        } else {
            builder.ipv4_with(ipv4::Repr {
                dscp: Dscp::from_low_bits(10),
                ecn: Ecn::from_low_bits(2),
                ident: self.ident.wrapping_add(number as u16),
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                proto: IpProto::TCP,
                src: Ipv4Addr::new(10, 0, 0, 1),
                dst: Ipv4Addr::new(10, 0, 0, 2),
                options: ipv4::Options::new(&NOTHING[..self.ip_options * 4]).unwrap(),
                payload_size: 0,
            })
        };
        builder
            .tcp(tcp::Repr {
                src: 1024,
                dst: 80,
                seq,
                ack: 77,
                flags,
                window: 1000,
                urgent,
                options: tcp::Options::new(&NOTHING[..self.tcp_options * 4]).unwrap(),
            })
            .payload(data)
            .build()
    }

    fn packet(&self) -> Frame {
        let bytes = self.frame(0, self.seq, self.flags, self.urgent, &self.data());
        Frame::segmented(&bytes, self.head_size).to_gso(NonZeroU16::new(self.segment_size).unwrap())
    }

    /// Computes the segments according to the standards.
    fn segments(&self) -> Vec<Vec<u8>> {
        use tcp::flags::{CWR, FIN, PSH, URG};
        let data = self.data();
        let parts: Vec<&[u8]> = match data.is_empty() {
            true => vec![&[]],
            false => data.chunks(self.segment_size.into()).collect(),
        };
        let segment = |(number, part): (usize, &&[u8])| {
            let begin = number * usize::from(self.segment_size);
            let mut flags = self.flags;
            if number != 0 {
                flags &= !CWR;
            }
            if number + 1 != parts.len() {
                flags &= !(FIN | PSH);
            }
            let mut urgent = self.urgent;
            if flags & URG != 0 && number != 0 {
                urgent = u16::try_from(usize::from(urgent).saturating_sub(begin)).unwrap();
                if urgent == 0 {
                    flags &= !URG;
                }
            }
            self.frame(number, self.seq.wrapping_add(begin as u32), flags, urgent, part)
        };
        parts.iter().enumerate().map(segment).collect()
    }
}

fn front() -> impl Strategy<Value = Front> {
    let tpid = prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)];
    prop_oneof![
        vec((tpid, 0_u16..4095, 0_u8..8), 0..3).prop_map(Front::Tags),
        vec(16_u32..1_000_000, 1..4).prop_map(Front::Mpls),
        (0_u32..0x00ff_ffff).prop_map(Front::Pbb),
    ]
}

prop_compose! {
    fn long()(
        front in front(),
        (is_ipv6, extension) in any::<(bool, bool)>(),
        (ident, seq, urgent) in any::<(u16, u32, u16)>(),
        flags in any::<u16>(),
        (ip_options, tcp_options) in (0_usize..=10, 0_usize..=10),
        segment_size in 48_u16..9000,
        size in 0_usize..65_000,
        head_size in 300_usize..3000,
    ) -> Long {
        let flags = flags & tcp::flags::ALL & !(tcp::flags::SYN | tcp::flags::RST);
        Long {
            front, is_ipv6, ident, ip_options, extension, seq, flags, urgent, tcp_options, size, segment_size, head_size,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_segments_are_those_that_the_sender_would_have_sent(long in long()) {
        let packet = long.packet();
        let gso = GsoLayout::of(&packet).unwrap();
        let wanted = long.segments();
        prop_assert_eq!(gso.count(), wanted.len());
        for (number, wanted) in wanted.iter().enumerate() {
            let segment = gso.segment(&packet, number).unwrap();
            prop_assert_eq!(segment.bytes(), &wanted[..], "segment {} of {}", number, gso.count());
            prop_assert_eq!(segment.segment_size(), None);
            prop_assert!(gso.packet_size() >= wanted.len() - gso.layers()[0]);
        }
        prop_assert!(gso.segment(&packet, wanted.len()).is_none());
    }

    #[test]
    fn no_bytes_make_it_panic_or_make_more_than_there_was(
        bytes in vec(any::<u8>(), 0..400), at in 0_usize..100, value: u8, segment_size in 1_u16.., long in long(),
    ) {
        let size = NonZeroU16::new(segment_size).unwrap();
        prop_assert!(GsoLayout::of(&Frame::new(&bytes).to_gso(size)).is_none_or(|gso| gso.count() > 0));
        // Valid packets with one changed byte.
        let mut bytes = long.packet().bytes().to_vec();
        bytes[at.min(53)] = value;
        let packet = Frame::segmented(&bytes, long.head_size).to_gso(size);
        if let Some(gso) = GsoLayout::of(&packet) {
            let data: usize = (0..gso.count().min(100))
                .map(|number| gso.segment(&packet, number).unwrap().len() - gso.headers_size())
                .sum();
            prop_assert!(data <= packet.len());
        }
    }
}

fn plain(flags: u16) -> Long {
    Long {
        front: Front::Tags(Vec::new()),
        is_ipv6: false,
        ident: 0xffff,
        ip_options: 0,
        extension: false,
        seq: u32::MAX - 100,
        flags,
        urgent: 0,
        tcp_options: 3,
        size: 5000,
        segment_size: 1448,
        head_size: usize::MAX,
    }
}

#[test]
fn what_is_no_plain_stretch_of_a_connection_is_not_cut() {
    use tcp::flags::{ACK, RST, SYN};
    let good = plain(ACK);
    let bytes = good.packet().bytes().to_vec();
    let size = NonZeroU16::new(1448).unwrap();
    let gso = |bytes: &[u8]| GsoLayout::of(&Frame::new(bytes).to_gso(size)).is_some();
    assert!(gso(&bytes));
    assert!(
        GsoLayout::of(&Frame::new(&bytes)).is_none(),
        "nobody asked for it"
    );
    assert!(!gso(plain(SYN).packet().bytes()) && !gso(plain(ACK | RST).packet().bytes()));
    // Padding, a packet that is longer than its frame, UDP, a fragment, another version.
    assert!(!gso(&[&bytes[..], &[0]].concat()));
    assert!(!gso(&bytes[..bytes.len() - 1]));
    for (at, value) in [(23, 17), (20, 0x20), (21, 1), (14, 0x65)] {
        let mut bad = bytes.clone();
        bad[at] = value;
        assert!(!gso(&bad), "byte {at} as {value}");
    }
    // The headers are in several segments, or too long.
    assert!(GsoLayout::of(&Frame::segmented(&bytes, 60).to_gso(size)).is_none());
    let tags = vec![(EtherType::VLAN, 1, 0); HEADERS_MAX / 4];
    assert!(!gso(Long {
        front: Front::Tags(tags),
        ..good
    }
    .packet()
    .bytes()));
}

#[test]
fn a_source_route_is_not_cut_as_its_checksum_is_for_another_address() {
    let long = Long {
        ip_options: 2,
        ..plain(tcp::flags::ACK)
    };
    let size = NonZeroU16::new(1448).unwrap();
    let mut bytes = long.packet().bytes().to_vec();
    for (option, cuts) in [(131, false), (137, false), (7, true), (0, true)] {
        // A no-operation option precedes this option.
        bytes[35..38].copy_from_slice(&[option, 7, 4]);
        assert_eq!(
            GsoLayout::of(&Frame::new(&bytes).to_gso(size)).is_some(),
            cuts,
            "{option}"
        );
    }
}

#[test]
fn a_packet_without_tags_is_plain_and_says_where_its_headers_end() {
    let gso = GsoLayout::of(&plain(tcp::flags::CWR).packet()).unwrap();
    assert_eq!(
        (gso.layers(), gso.is_plain(), gso.is_ipv6(), gso.has_cwr()),
        ([14, 20, 32], true, false, true)
    );
    assert_eq!(
        (gso.count(), gso.packet_size(), gso.segment_size()),
        (4, 1500, 1448)
    );
    let labelled = Long {
        front: Front::Mpls(vec![16]),
        ..plain(0)
    };
    assert!(!GsoLayout::of(&labelled.packet()).unwrap().is_plain());
}

#[test]
fn segments_come_from_the_pool_of_the_packet_and_none_comes_when_it_is_empty() {
    let pool = FramePool::new(2, 6000);
    let bytes = plain(0).packet().bytes().to_vec();
    let packet = pool.take(&bytes).unwrap().to_gso(NonZeroU16::new(1448).unwrap());
    let gso = GsoLayout::of(&packet).unwrap();
    let first = gso.segment(&packet, 0).unwrap();
    assert!(gso.segment(&packet, 1).is_none());
    drop(first);
    let second = gso.segment(&packet, 1).unwrap();
    let layers = Layers::parse(second.bytes(), Depth::L4);
    assert_eq!(layers.l4(), L4::Tcp);
    assert!(ipv6::SIZE < second.len());
}

#[test]
fn a_train_of_datagrams_is_cut_into_datagrams_with_their_own_lengths_and_checksums() {
    let datagram = |number: u16, data: &[u8], is_ipv6: bool| {
        let builder = Builder::ethernet(THERE, HERE).tag(EtherType::VLAN, 5, 0);
        let builder = match is_ipv6 {
            true => builder.ipv6(Ipv6Addr::from(5), Ipv6Addr::from(9)),
            false => builder.ipv4_with(ipv4::Repr {
                ident: number,
                proto: IpProto::UDP,
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
            }),
        };
        builder.udp(1024, 443).payload(data).build()
    };
    let data: Vec<u8> = (0..5000_u32).map(|at| (at * 7) as u8).collect();
    for is_ipv6 in [false, true] {
        let bytes = datagram(9, &data, is_ipv6);
        let train = Frame::segmented(&bytes, 100).to_gso(NonZeroU16::new(1200).unwrap());
        let gso = GsoLayout::of(&train).unwrap();
        assert!(gso.is_udp() && gso.is_plain() && !gso.has_cwr());
        assert_eq!((gso.count(), gso.layers()[2], gso.checksum_offset()), (5, 8, 6));
        for (number, part) in data.chunks(1200).enumerate() {
            let segment = gso.segment(&train, number).unwrap();
            assert_eq!(
                segment.bytes(),
                datagram(9 + number as u16, part, is_ipv6),
                "{number}"
            );
        }
        // A truncated datagram, and one with bytes after it.
        let size = NonZeroU16::new(1200).unwrap();
        assert!(GsoLayout::of(&Frame::new(&bytes[..bytes.len() - 1]).to_gso(size)).is_none());
        assert!(GsoLayout::of(&Frame::new(&[&bytes[..], &[0]].concat()).to_gso(size)).is_none());
    }
}
