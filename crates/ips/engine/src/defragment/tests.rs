use millrace_types::Duration;
use millrace_wire::{IpProto, ipv4};
use proptest::prelude::*;

use super::*;
use crate::packet::{Context, LinkType, find_ip_header};

const SETTINGS: DefragmentSettings = DefragmentSettings {
    memory: 1 << 20,
    timeout: Duration::from_secs(60),
    policy_v4: OverlapPolicy::First,
    policy_v6: OverlapPolicy::First,
    refuses_overlaps: false,
    refuses_tiny: false,
    evicts: true,
};

fn defragmenter(settings: DefragmentSettings) -> Defragmenter {
    Defragmenter::new(settings, Seed([1, 2]))
}

fn fragment_v4(ident: u16, proto: IpProto, offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let repr = ipv4::Repr {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        proto,
        dscp: millrace_wire::Dscp::from_low_bits(0),
        ecn: millrace_wire::Ecn::from_low_bits(0),
        ttl: 64,
        ident,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: (offset / 8) as u16,
        options: ipv4::Options::default(),
        payload_size: data.len() as u16,
    };
    let mut bytes = Vec::new();
    repr.emit(&mut bytes);
    bytes.extend_from_slice(data);
    bytes
}

fn fragment_v6(ident: u32, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    bytes[4..6].copy_from_slice(&(data.len() as u16 + 16).to_be_bytes());
    bytes.extend_from_slice(&[0xfe; 32]);
    bytes.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend_from_slice(&[17, 0]);
    bytes.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
    bytes.extend_from_slice(&ident.to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn add<'a>(defragmenter: &'a mut Defragmenter, seconds: u64, bytes: &[u8]) -> Outcome<'a> {
    let context = Context {
        number: 1,
        time: Time::from_secs(seconds),
        tunnel_depth: 0,
        is_reassembled: false,
        reassemblies: 0,
        is_tunnel: false,
        compares_checksums: false,
        events: crate::packet::events::PacketEvents::NONE,
    };
    let network = find_ip_header(LinkType(LinkType::RAW), bytes).unwrap();
    let packet = Packet::decode(bytes, network, context).unwrap();
    assert!(packet.is_fragment);
    defragmenter.add(&packet)
}

#[test]
fn fragments_in_reverse_order_make_the_packet() {
    let data: Vec<u8> = (0..100).collect();
    let mut defragmenter = defragmenter(SETTINGS);
    for at in (8..100).step_by(8).rev() {
        let end = (at + 8).min(100);
        let bytes = fragment_v4(7, IpProto(99), at, end < 100, &data[at..end]);
        assert_eq!(add(&mut defragmenter, 0, &bytes), Outcome::Waiting);
    }
    let first = fragment_v4(7, IpProto(99), 0, true, &data[..8]);
    let Outcome::Whole(whole) = add(&mut defragmenter, 0, &first) else {
        panic!("the packet is not complete");
    };
    let view = ipv4::View::new(whole).unwrap();
    assert!(view.checksum_is_right() && !view.more_fragments());
    assert_eq!(view.payload(), data);
    assert_eq!(defragmenter.memory(), 0);
}

#[test]
fn fragments_of_ipv6_lose_their_fragment_header() {
    let mut defragmenter = defragmenter(SETTINGS);
    let later = fragment_v6(9, 8, false, b"later");
    assert_eq!(add(&mut defragmenter, 0, &later), Outcome::Waiting);
    let first = fragment_v6(9, 0, true, b"12345678");
    let Outcome::Whole(whole) = add(&mut defragmenter, 0, &first) else {
        panic!("the packet is not complete");
    };
    let view = millrace_wire::ipv6::View::new(whole).unwrap();
    let walk = view.walk();
    assert_eq!((walk.proto, walk.size), (IpProto::UDP, 8));
    assert_eq!(&view.payload()[8..], b"12345678later");
}

#[test]
fn packets_with_other_identifications_do_not_mix() {
    let mut defragmenter = defragmenter(SETTINGS);
    add(
        &mut defragmenter,
        0,
        &fragment_v4(1, IpProto(99), 0, true, &[1; 8]),
    );
    let other = fragment_v4(2, IpProto(99), 8, false, &[2; 8]);
    assert_eq!(add(&mut defragmenter, 0, &other), Outcome::Waiting);
}

#[test]
fn a_packet_whose_time_is_over_is_forgotten() {
    let mut defragmenter = defragmenter(SETTINGS);
    add(
        &mut defragmenter,
        0,
        &fragment_v4(1, IpProto(99), 0, true, &[1; 8]),
    );
    let late = fragment_v4(1, IpProto(99), 8, false, &[2; 8]);
    assert_eq!(add(&mut defragmenter, 61, &late), Outcome::Waiting);
    assert_eq!(defragmenter.counters.timeouts, 1);
}

#[test]
fn in_line_an_overlap_refuses_the_whole_packet() {
    let mut settings = SETTINGS;
    settings.refuses_overlaps = true;
    let mut defragmenter = defragmenter(settings);
    add(
        &mut defragmenter,
        0,
        &fragment_v4(1, IpProto(99), 0, true, &[1; 16]),
    );
    let overlap = fragment_v4(1, IpProto(99), 8, true, &[2; 16]);
    assert_eq!(
        add(&mut defragmenter, 0, &overlap),
        Outcome::Refused(Refused::Overlap)
    );
    let rest = fragment_v4(1, IpProto(99), 16, false, &[3; 8]);
    assert_eq!(
        add(&mut defragmenter, 0, &rest),
        Outcome::Refused(Refused::Overlap)
    );
}

#[test]
fn tiny_unaligned_and_long_fragments_are_refused_in_line() {
    let mut settings = SETTINGS;
    settings.refuses_overlaps = true;
    settings.refuses_tiny = true;
    let mut defragmenter = defragmenter(settings);
    let mut refused = |bytes: &[u8]| match add(&mut defragmenter, 0, bytes) {
        Outcome::Refused(reason) => Some(reason),
        _ => None,
    };
    assert_eq!(
        refused(&fragment_v4(1, IpProto::TCP, 0, true, &[1; 8])),
        Some(Refused::Tiny)
    );
    assert_eq!(
        refused(&fragment_v4(2, IpProto::TCP, 8, false, &[1; 8])),
        Some(Refused::Tiny)
    );
    assert_eq!(
        refused(&fragment_v4(3, IpProto::UDP, 0, true, &[1; 9])),
        Some(Refused::Unaligned)
    );
    assert_eq!(
        refused(&fragment_v4(4, IpProto::UDP, 65528, false, &[1; 8])),
        Some(Refused::TooLong)
    );
    // Eight bytes of a hop-by-hop header count, too.
    assert_eq!(refused(&fragment_v6(5, 65520, false, &[1; 7])), None);
    assert_eq!(
        refused(&fragment_v6(6, 65520, false, &[1; 8])),
        Some(Refused::TooLong)
    );
}

#[test]
fn a_first_fragment_with_longer_headers_than_the_others_makes_no_packet_that_is_too_long() {
    for (ident, options, is_whole) in [(1, 0, true), (2, 40, false)] {
        let mut defragmenter = defragmenter(SETTINGS);
        // With the 20 bytes of the other headers the packet is 65,532 bytes long.
        let end = 65_512;
        for at in (8_000..end).step_by(8_000) {
            let next = (at + 8_000).min(end);
            let bytes = fragment_v4(ident, IpProto::UDP, at, next < end, &vec![1; next - at]);
            assert_eq!(add(&mut defragmenter, 0, &bytes), Outcome::Waiting);
        }
        let mut first = fragment_v4(ident, IpProto::UDP, 0, true, &[1; 8_000]);
        first[0] = 0x45 + (options / 4) as u8;
        let size = (first.len() + options) as u16;
        first[2..4].copy_from_slice(&size.to_be_bytes());
        // No-operation options (RFC 791).
        first.splice(20..20, vec![1; options]);
        match add(&mut defragmenter, 0, &first) {
            Outcome::Whole(whole) => assert!(is_whole && whole.len() == 20 + end),
            Outcome::Refused(reason) => assert!(!is_whole && reason == Refused::TooLong),
            Outcome::Waiting => panic!("the packet is complete"),
        }
    }
}

#[test]
fn fragments_that_never_end_stay_inside_the_memory() {
    for evicts in [true, false] {
        let mut settings = SETTINGS;
        settings.memory = 100_000;
        settings.evicts = evicts;
        let mut defragmenter = defragmenter(settings);
        for ident in 0..2000 {
            add(
                &mut defragmenter,
                0,
                &fragment_v4(ident, IpProto(99), 0, true, &[1; 64]),
            );
            assert!(defragmenter.memory() <= settings.memory);
        }
        let counters = defragmenter.counters;
        assert_eq!(counters.evicted > 0, evicts);
        assert_eq!(counters.refused > 0, !evicts);
    }
}

proptest! {
    /// Any order of the fragments of a packet, with copies, gives the packet.
    #[test]
    fn order_and_copies_do_not_matter(
        size in 9usize..600, cut in 1usize..8, seed: u64, copies in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let data: Vec<u8> = (0..size).map(|at| (at as u64 * 31 + seed) as u8).collect();
        let step = cut * 8;
        prop_assume!(size > step);
        let mut fragments: Vec<(usize, usize)> =
            (0..size).step_by(step).map(|at| (at, (at + step).min(size))).collect();
        for copy in &copies {
            fragments.push(fragments[copy.index(fragments.len())]);
        }
        let mut random = seed;
        for at in (1..fragments.len()).rev() {
            fragments.swap(at, (millrace_types::split_mix::next(&mut random) % (at as u64 + 1)) as usize);
        }
        let mut defragmenter = defragmenter(SETTINGS);
        let mut whole = None;
        for (from, to) in fragments {
            let bytes = fragment_v4(5, IpProto(99), from, to < size, &data[from..to]);
            if let Outcome::Whole(bytes) = add(&mut defragmenter, 0, &bytes) {
                whole = whole.or(Some(bytes[20..].to_vec()));
            }
        }
        prop_assert_eq!(whole, Some(data));
    }
}
