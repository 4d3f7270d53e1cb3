//! IP fragments: passed, dropped, and reassembled.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use core::net::Ipv6Addr;

use crate::harness::{Bridge, Event};
use crate::tunnels;
use millrace_flow::Action;
use millrace_pipeline::{DropReason, FragmentMode, Step, TunnelKey, explain};
use millrace_types::{Duration, Mac, PortNo};
use millrace_wire::tunnel::TunnelKind;
use millrace_wire::{Builder, IpProto};
use proptest::prelude::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Offset of the IP header, after Ethernet and one tag.
const L3: usize = 18;

/// Returns a tagged datagram over IPv4 with this number of bytes of payload.
fn v4(size: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..size).map(|byte| (byte * 7 + byte / 256) as u8).collect();
    let mut frame = Builder::ethernet(B, A)
        .vlan(5, 3)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(7, 8)
        .payload(&payload)
        .build();
    // Unfragmented packets need no identification, but fragments do.
    set_ident(&mut frame, 77);
    frame
}

fn set_ident(frame: &mut [u8], ident: u16) {
    frame[L3 + 4..L3 + 6].copy_from_slice(&ident.to_be_bytes());
    mend(frame);
}

fn mend(frame: &mut [u8]) {
    frame[L3 + 10..L3 + 12].fill(0);
    let sum = millrace_wire::checksum::internet(&frame[L3..L3 + 20]);
    frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns a datagram over IPv6 after an options header.
fn v6(size: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..size).map(|byte| (byte * 5 + byte / 256) as u8).collect();
    Builder::ethernet(B, A)
        .vlan(5, 3)
        .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::from([1; 16]))
        .extension(IpProto::HOP_BY_HOP, &[0, 0, 1, 4, 0, 0, 0, 0])
        .udp(7, 8)
        .payload(&payload)
        .build()
}

/// Returns the fragment with the bytes from `begin` to `end` of the data of a packet.
fn cut_v4(whole: &[u8], begin: usize, end: usize) -> Vec<u8> {
    let data = &whole[L3 + 20..];
    let end = end.min(data.len());
    let mut frame = whole[..L3 + 20].to_vec();
    frame.extend_from_slice(&data[begin..end]);
    let more = if end < data.len() { 0x2000 } else { 0 };
    frame[L3 + 2..L3 + 4].copy_from_slice(&(20 + (end - begin) as u16).to_be_bytes());
    frame[L3 + 6..L3 + 8].copy_from_slice(&(more | (begin / 8) as u16).to_be_bytes());
    mend(&mut frame);
    frame
}

fn cut_v6(whole: &[u8], begin: usize, end: usize) -> Vec<u8> {
    cut_v6_behind(8, whole, begin, end)
}

/// Returns a fragment of a packet with an extension header of `size` bytes in front of the fragment header.
fn cut_v6_behind(size: usize, whole: &[u8], begin: usize, end: usize) -> Vec<u8> {
    let data = &whole[L3 + 40 + size..];
    let end = end.min(data.len());
    let mut frame = whole[..L3 + 40 + size].to_vec();
    let next = core::mem::replace(&mut frame[L3 + 40], IpProto::FRAGMENT.0);
    let more = u16::from(end < data.len());
    frame.extend_from_slice(&[next, 0]);
    frame.extend_from_slice(&(begin as u16 | more).to_be_bytes());
    frame.extend_from_slice(&[1, 2, 3, 4]);
    frame.extend_from_slice(&data[begin..end]);
    frame[L3 + 4..L3 + 6].copy_from_slice(&((size + 8 + end - begin) as u16).to_be_bytes());
    frame
}

fn bridge(mode: FragmentMode) -> Bridge {
    let mut bridge = Bridge::new(2);
    bridge.change(|control, ops| control.set_fragments(mode, ops));
    bridge.apply("", &[Action::output(PortNo::from_raw(2))]);
    bridge
}

fn out(frame: &[u8]) -> Event {
    Event::Out(2, None, frame.to_vec())
}

fn drops(bridge: &Bridge, reason: DropReason) -> u64 {
    bridge.processor.counters().drops.read(reason)
}

#[test]
fn fragments_are_packets_like_others_or_dropped_by_name() {
    let (whole, first) = (v4(100), cut_v4(&v4(3000), 0, 1480));
    let mut normal = bridge(FragmentMode::Normal);
    assert_eq!(
        normal.receive(1, &[first.clone(), whole.clone()]),
        [out(&first), out(&whole)]
    );
    let mut dropping = bridge(FragmentMode::Drop);
    let frames = [first, whole.clone(), cut_v6(&v6(3000), 1480, 9000), v6(64)];
    let events = dropping.receive(1, &frames);
    let sent: Vec<&Event> = events
        .iter()
        .filter(|event| matches!(event, Event::Out(..)))
        .collect();
    assert_eq!(sent, [&out(&whole), &out(&v6(64))]);
    assert_eq!(drops(&dropping, DropReason::Fragment), 2);
}

#[test]
fn fragments_behind_an_authentication_header_are_fragments() {
    let whole = Builder::ethernet(B, A)
        .vlan(5, 3)
        .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::from([1; 16]))
        .extension(IpProto::AH, &[0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 7, 7, 7, 7])
        .udp(7, 8)
        .payload(&[9; 3000])
        .build();
    let cut = |begin, end| cut_v6_behind(16, &whole, begin, end);
    let frames = [cut(0, 1480), cut(1480, 9000)];
    let mut dropping = bridge(FragmentMode::Drop);
    let event = Event::Dropped(DropReason::Fragment);
    assert_eq!(dropping.receive(1, &frames), [event.clone(), event]);
    let mut whole_ones = bridge(FragmentMode::Reassemble);
    assert_eq!(whole_ones.receive(1, &frames), [out(&whole)]);
}

#[test]
fn ports_are_matched_in_what_was_put_together_and_only_there() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    bridge.apply("udp,udp_dst=8", &[Action::output(PortNo::IN_PORT)]);
    let whole = v4(3000);
    assert!(bridge.receive(1, &[cut_v4(&whole, 1480, 9000)]).is_empty());
    let events = bridge.receive(1, &[cut_v4(&whole, 0, 1480)]);
    assert_eq!(events, [Event::Out(1, None, whole)]);
}

#[test]
fn an_explanation_says_that_a_fragment_waits() {
    let bridge = bridge(FragmentMode::Reassemble);
    let fragment = cut_v4(&v4(3000), 0, 1480);
    let steps = explain(&bridge.active, PortNo::from_raw(1), &fragment, bridge.now).steps;
    assert_eq!(steps, [Step::KeptFragment]);
}

#[test]
fn overlapping_fragments_end_the_packet_and_what_comes_of_it_later() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let whole = v6(3000);
    let mut other = v6(3000);
    other[500] ^= 1;
    for frame in [
        cut_v6(&whole, 0, 800),
        cut_v6(&other, 400, 1200),
        cut_v6(&whole, 800, 1600),
        cut_v6(&whole, 1600, 9000),
    ] {
        let events = bridge.receive(1, &[frame]);
        assert!(
            !events.iter().any(|event| matches!(event, Event::Out(..))),
            "{events:?}"
        );
    }
    assert_eq!(drops(&bridge, DropReason::FragmentOverlap), 4);
}

#[test]
fn lengths_that_contradict_each_other_end_the_packet() {
    for frames in [
        // Data beyond the end, and an end in front of data.
        [cut_v6(&v6(800), 400, 900), cut_v6(&v6(3000), 1600, 2400)],
        [cut_v6(&v6(3000), 1600, 2400), cut_v6(&v6(800), 400, 900)],
        // Two different ends.
        [cut_v6(&v6(800), 400, 900), cut_v6(&v6(1000), 808, 1100)],
    ] {
        let mut bridge = bridge(FragmentMode::Reassemble);
        let _dropped = bridge.receive(1, &frames);
        assert_eq!(drops(&bridge, DropReason::FragmentOverlap), 2);
    }
}

#[test]
fn an_ipv4_identification_that_is_used_again_costs_only_the_stale_fragments() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let stale = v4(3000);
    let mut whole = v4(2000);
    whole[L3 + 500] ^= 1;
    let (first, last) = (cut_v4(&whole, 0, 1200), cut_v4(&whole, 1200, 9000));
    // The new data overlap others, or end elsewhere.
    for (count, left, new) in [
        (1, cut_v4(&stale, 0, 1480), [first.clone(), last.clone()]),
        (2, cut_v4(&stale, 1480, 9000), [last, first]),
    ] {
        assert!(bridge.one(1, &left).is_empty());
        assert_eq!(bridge.receive(1, &new), [out(&whole)]);
        assert_eq!(drops(&bridge, DropReason::FragmentOverlap), count);
    }
}

#[test]
fn impossible_fragments_are_dropped_by_name() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let whole = v4(3000);
    // The ping of death: the fragment ends beyond the longest packet.
    let mut death = cut_v4(&whole, 1480, 9000);
    death[L3 + 6..L3 + 8].copy_from_slice(&0x1fff_u16.to_be_bytes());
    mend(&mut death);
    let odd = cut_v4(&whole, 0, 1001);
    let empty = cut_v4(&whole, 0, 0);
    let events = bridge.receive(1, &[death, odd, empty]);
    assert!(
        !events.iter().any(|event| matches!(event, Event::Out(..))),
        "{events:?}"
    );
    assert_eq!(drops(&bridge, DropReason::FragmentMalformed), 3);
}

#[test]
fn a_fragment_in_a_fragment_does_not_become_a_packet_that_nobody_looked_into() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let nested = |offset: u8| {
        Builder::ethernet(B, A)
            .vlan(5, 3)
            .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::from([1; 16]))
            .extension(IpProto::FRAGMENT, &[0, 0, 0, 0, 0, 0, 0, 9])
            .extension(IpProto::FRAGMENT, &[0, 0, 0, offset, 0, 0, 0, 9])
            .udp(7, 8)
            .payload(&[1; 64])
            .build()
    };
    let events = bridge.receive(1, &[nested(16), nested(1)]);
    assert!(
        !events.iter().any(|event| matches!(event, Event::Out(..))),
        "{events:?}"
    );
    assert_eq!(drops(&bridge, DropReason::FragmentMalformed), 2);
}

#[test]
fn fragments_of_other_ports_and_vlans_do_not_mix() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let whole = v4(3000);
    assert!(bridge.receive(1, &[cut_v4(&whole, 0, 1480)]).is_empty());
    assert!(bridge.receive(2, &[cut_v4(&whole, 1480, 9000)]).is_empty());
    let mut elsewhere = cut_v4(&whole, 1480, 9000);
    elsewhere[15] = 6;
    assert!(bridge.receive(1, &[elsewhere]).is_empty());
    assert_eq!(bridge.receive(1, &[cut_v4(&whole, 1480, 9000)]), [out(&whole)]);
}

#[test]
fn fragments_of_networks_that_share_a_tunnel_do_not_mix() {
    let (mut bridge, _) = tunnels::bridge(&[tunnels::tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    bridge.change(|control, ops| control.set_fragments(FragmentMode::Reassemble, ops));
    bridge.apply("in_port=6,tunnel_id=5", &[Action::output(PortNo::from_raw(2))]);
    bridge.apply("in_port=6,tunnel_id=6", &[Action::output(PortNo::from_raw(3))]);
    let (one, mut other) = (v4(1600), v4(1600));
    other[L3 + 1000] ^= 1;
    let mut receive = |key, whole: &[u8], begin, end| {
        let fragment = cut_v4(whole, begin, end);
        bridge.one(1, &tunnels::enveloped(TunnelKind::Vxlan, key, &fragment))
    };
    assert_eq!(receive(5, &one, 0, 800), []);
    assert_eq!(receive(6, &other, 800, 9000), []);
    assert_eq!(receive(5, &one, 800, 9000), [out(&one)]);
    assert_eq!(receive(6, &other, 0, 800), [Event::Out(3, None, other.clone())]);
}

#[test]
fn what_never_becomes_whole_is_forgotten_and_counted() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let whole = v4(3000);
    let _kept = bridge.receive(1, &[cut_v4(&whole, 0, 1480)]);
    bridge.now = bridge.now + Duration::from_secs(61);
    let _kept = bridge.receive(1, &[cut_v4(&whole, 1480, 9000)]);
    assert_eq!(drops(&bridge, DropReason::FragmentTimeout), 1);
    assert_eq!(bridge.receive(1, &[cut_v4(&whole, 0, 1480)]), [out(&whole)]);
}

#[test]
fn a_flood_of_unfinished_packets_stays_within_its_memory_and_the_newest_still_become_whole() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let mut whole = v4(3000);
    for ident in 0..3000 {
        set_ident(&mut whole, ident);
        bridge.now = bridge.now + Duration::from_millis(1);
        let _kept = bridge.receive(1, &[cut_v4(&whole, 0, 1480)]);
    }
    assert_eq!(drops(&bridge, DropReason::FragmentMemory), 3000 - 512);
    assert_eq!(bridge.receive(1, &[cut_v4(&whole, 1480, 9000)]), [out(&whole)]);
    // Long packets exhaust the memory before the number of packets is reached.
    let mut long = v4(60_000);
    for ident in 0..200 {
        set_ident(&mut long, ident);
        bridge.now = bridge.now + Duration::from_millis(1);
        for begin in (8..60_000).step_by(8192) {
            let _kept = bridge.receive(1, &[cut_v4(&long, begin, begin + 8192)]);
        }
    }
    assert_eq!(bridge.receive(1, &[cut_v4(&long, 0, 8)]), [out(&long)]);
}

#[test]
fn a_packet_becomes_whole_with_memory_that_an_older_one_gave_up() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    // 64 packets of 32 chunks of memory; each fragment takes one chunk; the last packet leaves one chunk free.
    for ident in 0..64_u16 {
        let mut whole = v4(65_000);
        set_ident(&mut whole, 1000 + ident);
        let fragments = if ident == 63 { 31 } else { 32 };
        for chunk in 0..fragments {
            let at = chunk * 2048 + 8;
            assert!(bridge.receive(1, &[cut_v4(&whole, at, at + 8)]).is_empty());
        }
    }
    // The newest packet is the last in the array, and moves when the oldest is dropped for its second chunk.
    let whole = v4(3000);
    assert!(bridge.receive(1, &[cut_v4(&whole, 0, 2048)]).is_empty());
    assert_eq!(bridge.receive(1, &[cut_v4(&whole, 2048, 9000)]), [out(&whole)]);
    assert_eq!(drops(&bridge, DropReason::FragmentMalformed), 0);
    assert_eq!(drops(&bridge, DropReason::FragmentMemory), 32);
}

#[test]
fn congestion_that_one_fragment_met_the_packet_met() {
    let mut bridge = bridge(FragmentMode::Reassemble);
    let with_ecn = |mut frame: Vec<u8>, ecn: u8| {
        frame[L3 + 1] |= ecn;
        mend(&mut frame);
        frame
    };
    let whole = with_ecn(v4(3000), 2);
    let first = cut_v4(&whole, 0, 1480);
    let last = with_ecn(cut_v4(&whole, 1480, 9000), 3);
    assert_eq!(bridge.receive(1, &[first, last]), [out(&with_ecn(whole, 3))]);
    // One fragment is not ECN-capable and one is marked as congested, which is a contradiction.
    let whole = v4(3000);
    let _dropped = bridge.receive(
        1,
        &[cut_v4(&whole, 0, 1480), with_ecn(cut_v4(&whole, 1480, 9000), 3)],
    );
    assert_eq!(drops(&bridge, DropReason::FragmentMalformed), 2);
}

proptest! {
    #[test]
    fn any_cut_in_any_order_gives_the_packet_back(
        size in 16usize..20_000,
        is_v6 in any::<bool>(),
        cuts in prop::collection::vec(1usize..400, 1..20),
        order in any::<u64>(),
        twice in any::<u32>(),
    ) {
        let whole = if is_v6 { v6(size) } else { v4(size) };
        let data = size + 8;
        let mut begins: Vec<usize> = cuts.iter().map(|cut| cut * 8).filter(|cut| *cut < data).chain([0]).collect();
        begins.sort_unstable();
        begins.dedup();
        prop_assume!(begins.len() > 1);
        let mut frames = Vec::new();
        for (i, begin) in begins.iter().enumerate() {
            let end = begins.get(i + 1).copied().unwrap_or(data);
            let frame = if is_v6 { cut_v6(&whole, *begin, end) } else { cut_v4(&whole, *begin, end) };
            if twice >> i & 1 != 0 && end != data {
                frames.push(frame.clone());
            }
            frames.push(frame);
        }
        // The number determines a permutation. Repeated fragments stay before the last fragment.
        let last = frames.pop().unwrap();
        let mut seed = order;
        for i in (1..frames.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            frames.swap(i, (seed >> 33) as usize % (i + 1));
        }
        frames.push(last);
        let mut bridge = bridge(FragmentMode::Reassemble);
        let events = bridge.receive(1, &frames);
        prop_assert_eq!(events, [out(&whole)]);
    }

    #[test]
    fn hostile_fragments_never_panic(frames in prop::collection::vec((any::<bool>(), 0usize..3000, 0usize..3000, any::<[u8; 12]>(), 0usize..60), 1..40)) {
        let mut bridge = bridge(FragmentMode::Reassemble);
        for (is_v6, begin, size, noise, at) in frames {
            let whole = if is_v6 { v6(6000) } else { v4(6000) };
            let begin = begin / 8 * 8;
            let mut frame = if is_v6 { cut_v6(&whole, begin, begin + size) } else { cut_v4(&whole, begin, begin + size) };
            let from = (L3 + at).min(frame.len());
            let end = (from + noise.len()).min(frame.len());
            frame[from..end].copy_from_slice(&noise[..end - from]);
            let _any = bridge.receive(1, &[frame]);
        }
    }
}
