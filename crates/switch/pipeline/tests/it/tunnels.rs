//! Logical ports: encapsulation at one bridge, decapsulation at another, and both ends in the tables.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use core::num::NonZeroU16;
use std::sync::Arc;

use crate::harness::{Bridge, Event, Recorder};
use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Field, SetField};
use millrace_pipeline::{DropReason, Tunnel, TunnelCounts, TunnelKey, Tunnels, explain};
use millrace_types::{Mac, PortNo};
use millrace_wire::segment::GsoLayout;
use millrace_wire::tunnel::TunnelKind;
use millrace_wire::{Builder, Frame, Packet, tcp};

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn port(number: u32) -> PortNo {
    PortNo::from_raw(number)
}

/// Returns a tunnel at port `number` over port 1, from address `local` to the other address.
pub(crate) fn tunnel(number: u32, kind: TunnelKind, key: TunnelKey, local: u8, remote: u8) -> Tunnel {
    Tunnel {
        port: port(number),
        kind,
        local: [192, 0, 2, local].into(),
        remote: [192, 0, 2, remote].into(),
        key,
        underlay: port(1),
        local_mac: Mac([2, 0, 0, 0, 1, local]),
        next_hop: Some(Mac([2, 0, 0, 0, 1, remote])),
        udp_port: kind.udp_port().unwrap_or(0),
        ttl: 64,
        dscp: Some(0),
        checksum: false,
        mtu: 1500,
    }
}

/// Returns a bridge with these tunnels, and the counters of each.
pub(crate) fn bridge(tunnels: &[Tunnel]) -> (Bridge, Vec<Arc<TunnelCounts>>) {
    let mut bridge = Bridge::new(6);
    let counts: Vec<Arc<TunnelCounts>> = tunnels.iter().map(|_| Arc::default()).collect();
    let table = Tunnels::new(tunnels.iter().cloned().zip(counts.iter().cloned()));
    bridge.change(|control, ops| control.set_tunnels(table, ops));
    (bridge, counts)
}

fn inner(flow: u16) -> Vec<u8> {
    Builder::ethernet(B, A)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(flow, 8)
        .payload(b"inside")
        .build()
}

/// Returns a frame whose outer IPv4 header has the right checksum.
fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = millrace_wire::checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn set_tunnel_id(id: u128) -> Action {
    Action::SetField(SetField::new(Field::TunnelId, id).unwrap())
}

/// Returns the encapsulated packet that leaves by port 1 of a bridge with a tunnel from 1 to 2, for a frame with this
/// key.
pub(crate) fn enveloped(kind: TunnelKind, key: u32, frame: &[u8]) -> Vec<u8> {
    let with_checksum = Tunnel {
        checksum: kind != TunnelKind::MplsUdp,
        ..tunnel(5, kind, TunnelKey::Flow, 1, 2)
    };
    let (mut bridge, _) = bridge(&[with_checksum]);
    bridge.apply("", &[set_tunnel_id(key.into()), Action::output(port(5))]);
    let events = bridge.one(2, frame);
    let [Event::Out(1, None, bytes)] = &events[..] else {
        panic!("{events:?}")
    };
    bytes.clone()
}

/// Returns encapsulated packets with these keys.
fn envelopes(kind: TunnelKind, keys: &[u32]) -> Vec<Vec<u8>> {
    (0..)
        .zip(keys)
        .map(|(flow, key)| enveloped(kind, *key, &inner(flow)))
        .collect()
}

#[test]
fn what_goes_in_comes_out_with_its_key_its_ports_and_its_order() {
    let keys = [7, 7, 9, 7, 9, 9];
    let (mut far, counts) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    far.apply("in_port=6,in_phy_port=1,tunnel_id=7", &[Action::output(port(2))]);
    far.apply("in_port=6,tunnel_id=9", &[Action::output(port(3))]);
    let events = far.receive(1, &envelopes(TunnelKind::Vxlan, &keys));
    let ports: Vec<(u32, Vec<u8>)> = events
        .into_iter()
        .map(|event| match event {
            Event::Out(to, None, bytes) => (to, bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted: Vec<(u32, Vec<u8>)> = (0..)
        .zip(keys)
        .map(|(flow, key)| (if key == 7 { 2 } else { 3 }, inner(flow)))
        .collect();
    assert_eq!(ports, wanted);
    let counted = counts[0].read();
    assert_eq!(
        (counted.rx_packets, counted.rx_bytes),
        (6, 6 * inner(0).len() as u64)
    );
}

#[test]
fn every_way_out_of_the_tables_leads_into_the_tunnel() {
    let (mut bridge, counts) = bridge(&[tunnel(5, TunnelKind::Gre, TunnelKey::Fixed(3), 1, 2)]);
    let sent = |events: &[Event]| {
        events
            .iter()
            .filter(|event| matches!(event, Event::Out(1, None, bytes) if bytes.len() == inner(1).len() + 42))
            .count()
    };
    // Cases: the whole burst; with a rewrite; with a lookup; flooded; by NORMAL; by a group; back to the ingress port.
    bridge.apply("", &[Action::output(port(5))]);
    assert_eq!(sent(&bridge.receive(2, &[inner(1), inner(2)])), 2);
    bridge.apply(
        "",
        &[crate::harness::set(Field::EthDst, 5), Action::output(port(5))],
    );
    assert_eq!(sent(&bridge.receive(2, &[inner(1)])), 1);
    bridge.apply("udp,udp_src=4", &[Action::output(port(5))]);
    assert_eq!(sent(&bridge.receive(2, &[inner(4)])), 1);
    for reserved in [PortNo::ALL, PortNo::FLOOD, PortNo::NORMAL] {
        bridge.apply("udp,udp_src=4", &[Action::output(reserved)]);
        assert_eq!(sent(&bridge.receive(2, &[inner(4)])), 1, "{reserved}");
    }
    let bucket = millrace_flow::Bucket::new([Action::output(port(5))]);
    bridge.add_group(1, millrace_pipeline::GroupKind::Indirect, vec![bucket]);
    bridge.apply("udp,udp_src=4", &[Action::Group(millrace_types::GroupId(1))]);
    assert_eq!(sent(&bridge.receive(2, &[inner(4)])), 1);
    assert_eq!(counts[0].read().tx_packets, 8);
}

#[test]
fn a_long_tcp_packet_is_cut_before_its_segments_get_their_envelopes() {
    let (mut near, counts) = bridge(&[tunnel(5, TunnelKind::Vxlan, TunnelKey::Fixed(7), 1, 2)]);
    let (mut far, _) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Fixed(7), 2, 1)]);
    near.apply("", &[Action::output(port(5))]);
    far.apply("in_port=6", &[Action::output(port(2))]);
    let bytes = Builder::ethernet(B, A)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(tcp::Repr::default())
        .payload(&[7; 5000])
        .build();
    let long = Frame::new(&bytes).to_gso(NonZeroU16::new(1300).unwrap());
    let cut = GsoLayout::of(&long).unwrap();
    let wanted: Vec<Vec<u8>> = (0..cut.count())
        .map(|number| cut.segment(&long, number).unwrap().bytes().to_vec())
        .collect();
    let out = |events: Vec<Event>| -> Vec<Vec<u8>> {
        let bytes = |event| match event {
            Event::Out(_, None, bytes) => bytes,
            other => panic!("{other:?}"),
        };
        events.into_iter().map(bytes).collect()
    };
    let envelopes = out(near.receive_frame(2, long));
    assert_eq!((envelopes.len(), counts[0].read().tx_packets), (4, 4));
    assert_eq!(out(far.receive(1, &envelopes)), wanted);
    // A packet that is no longer TCP is dropped by name.
    let mut bad = Frame::new(&bytes);
    bad.head_mut()[23] = 17;
    let events = near.receive_frame(2, bad.to_gso(NonZeroU16::new(1300).unwrap()));
    assert!(
        matches!(&events[..], [Event::Dropped(DropReason::NotSegmentable, ..)]),
        "{events:?}"
    );
}

#[test]
fn a_packet_goes_from_tunnel_to_tunnel_over_one_underlay() {
    let (mut bridge, _) = bridge(&[
        tunnel(5, TunnelKind::Vxlan, TunnelKey::Fixed(7), 2, 1),
        tunnel(6, TunnelKind::GtpU, TunnelKey::Flow, 2, 3),
    ]);
    bridge.apply("in_port=5", &[Action::output(port(6))]);
    let events = bridge.receive(1, &envelopes(TunnelKind::Vxlan, &[7]));
    let [Event::Out(1, None, bytes)] = &events[..] else {
        panic!("{events:?}")
    };
    // UDP to port 2152, endpoint 7: the key of the packet. The payload is IP, without Ethernet.
    assert_eq!(
        (&bytes[36..38], &bytes[46..50]),
        (&2152_u16.to_be_bytes()[..], &[0, 0, 0, 7][..])
    );
    assert_eq!(bytes[50..], inner(0)[14..]);
}

#[test]
fn the_datagrams_of_a_train_come_in_one_by_one() {
    let (mut far, counts) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    far.apply("in_port=6,tunnel_id=7", &[Action::output(port(2))]);
    far.apply("in_port=6,tunnel_id=9", &[Action::output(port(3))]);
    // More datagrams than a burst has packets, one of which is not VXLAN.
    let keys: Vec<u32> = (0..100)
        .map(|number| if number % 3 == 0 { 9 } else { 7 })
        .collect();
    let mut datagrams = envelopes(TunnelKind::Vxlan, &keys);
    datagrams[70][42] = 0;
    let mut train = datagrams[0][..42].to_vec();
    for datagram in &datagrams {
        train.extend_from_slice(&datagram[42..]);
    }
    let size = (train.len() - 14) as u16;
    train[16..18].copy_from_slice(&size.to_be_bytes());
    train[38..40].copy_from_slice(&(size - 20).to_be_bytes());
    // The checksum is partial until the train is segmented.
    train[40..42].fill(0xaa);
    let segment_size = NonZeroU16::new((datagrams[0].len() - 42) as u16).unwrap();
    let events = far.receive_frame(1, Frame::new(&with_checksum(train)).to_gso(segment_size));
    let wanted: Vec<Event> = (0..)
        .zip(keys)
        .filter(|(flow, _)| *flow != 70)
        .map(|(flow, key)| Event::Out(if key == 7 { 2 } else { 3 }, None, inner(flow)))
        .collect();
    let sent: Vec<Event> = events
        .into_iter()
        .filter(|event| matches!(event, Event::Out(..)))
        .collect();
    assert_eq!(sent, wanted);
    assert_eq!(counts[0].read().rx_packets, 99);
    let malformed = far.processor.counters().drops.read(DropReason::TunnelMalformed);
    assert_eq!(malformed, 1);
}

#[test]
fn what_cannot_go_into_a_tunnel_is_dropped_by_name() {
    let mut silent = tunnel(3, TunnelKind::Vxlan, TunnelKey::Flow, 1, 9);
    silent.next_hop = None;
    let (mut bridge, _) = bridge(&[
        silent,
        tunnel(4, TunnelKind::Vxlan, TunnelKey::Flow, 1, 2),
        tunnel(5, TunnelKind::MplsUdp, TunnelKey::None, 1, 2),
    ]);
    let long = Builder::ethernet(B, A)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 8)
        .payload(&[0; 1500])
        .build();
    for (to, id, frame, reason) in [
        (3, 0, inner(1), DropReason::TunnelUnresolved),
        (4, 0x100_0000, inner(1), DropReason::TunnelKey),
        (4, 1, long, DropReason::TunnelMtu),
        (5, 0, inner(1), DropReason::TunnelPayload),
    ] {
        bridge.apply("", &[set_tunnel_id(id), Action::output(port(to))]);
        let _dropped = bridge.receive(2, &[frame]);
        assert_eq!(bridge.processor.counters().drops.read(reason), 1, "{reason}");
    }
}

#[test]
fn what_comes_to_the_underlay_for_others_is_a_packet_like_others() {
    let (mut bridge, _) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    bridge.apply("in_port=1", &[Action::output(port(2))]);
    bridge.apply("in_port=6", &[Action::output(port(3))]);
    let envelope = envelopes(TunnelKind::Vxlan, &[7]).remove(0);
    // The packet is for another MAC address, for another IP address, from an unknown sender, for another UDP port.
    let mut others = vec![inner(1)];
    for (at, byte) in [(5, 9), (33, 9), (37, 9)] {
        let mut frame = envelope.clone();
        frame[at] = byte;
        others.push(with_checksum(frame));
    }
    let events = bridge.receive(1, &others);
    assert_eq!(
        events
            .iter()
            .filter(|event| matches!(event, Event::Out(2, None, _)))
            .count(),
        4,
        "{events:?}"
    );
    let mut foreign = envelope;
    foreign[29] = 9;
    let _dropped = bridge.receive(1, &[with_checksum(foreign)]);
    assert_eq!(
        bridge.processor.counters().drops.read(DropReason::TunnelUnknown),
        1
    );
}

#[test]
fn packets_in_transit_cross_an_underlay_whatever_is_in_them() {
    let transit = |proto: u8, payload: &[u8]| {
        let mut frame = Builder::ethernet(Mac([2, 0, 0, 0, 1, 2]), A)
            .ipv4([192, 0, 2, 1], [198, 51, 100, 9])
            .udp(1, 4789)
            .payload(b"not VXLAN")
            .build();
        frame.truncate(34);
        frame.extend_from_slice(payload);
        let size = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&size.to_be_bytes());
        frame[23] = proto;
        with_checksum(frame)
    };
    // IP in GRE, GRE of PPTP, datagrams to the port of VXLAN that are not VXLAN, and the first fragment of one.
    let ip_in_gre = transit(47, &[0, 0, 8, 0, 0x45, 0, 0, 20]);
    let pptp = transit(47, &[0x20, 1, 0x88, 0x0b, 0, 0, 0, 0]);
    let datagram = transit(17, &[0xc0, 1, 0x12, 0xb5, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut fragment = datagram.clone();
    fragment[20] = 0x20;
    let mut wrong = datagram.clone();
    wrong[24] ^= 1;
    let frames = [ip_in_gre.clone(), pptp, datagram, with_checksum(fragment), wrong];
    for kind in [TunnelKind::Vxlan, TunnelKind::Gre] {
        let (mut bridge, _) = bridge(&[tunnel(6, kind, TunnelKey::Flow, 2, 1)]);
        bridge.apply("in_port=1", &[Action::output(port(2))]);
        let wanted: Vec<Event> = frames
            .iter()
            .map(|frame| Event::Out(2, None, frame.clone()))
            .collect();
        assert_eq!(bridge.receive(1, &frames), wanted, "{kind}");
        // GRE for the address of the tunnel belongs to it only if it is a GRE tunnel.
        let mut ours = ip_in_gre.clone();
        ours[30..34].copy_from_slice(&[192, 0, 2, 2]);
        let ours = with_checksum(ours);
        let expected = match kind {
            TunnelKind::Gre => Event::Dropped(DropReason::TunnelMalformed),
            _ => Event::Out(2, None, ours.clone()),
        };
        assert_eq!(bridge.receive(1, &[ours]), [expected], "{kind}");
    }
}

#[test]
fn questions_for_our_address_go_to_the_control_side_and_no_others() {
    struct Asked(usize, Recorder);
    impl millrace_pipeline::Egress<Frame> for Asked {
        fn transmit(&mut self, port: PortNo, queue: Option<millrace_types::QueueId>, packet: Frame) {
            millrace_pipeline::Egress::<Frame>::transmit(&mut self.1, port, queue, packet);
        }
        fn packet_in(&mut self, _: millrace_pipeline::PacketInInfo, _: Frame) {}
        fn learn(&mut self, _: millrace_pipeline::Learn) {}
        fn traced(&mut self, _: u64, _: PortNo, _: Frame) {}
        fn neighbour(&mut self, underlay: PortNo, _: Frame) {
            assert_eq!(underlay, PortNo::from_raw(1));
            self.0 += 1;
        }
    }
    let (mut bridge, _) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    bridge.apply("", &[Action::output(port(2))]);
    let arp = |target: u8| {
        let question = millrace_wire::arp::Repr {
            op: millrace_wire::arp::REQUEST,
            sha: A,
            spa: [192, 0, 2, 1].into(),
            tha: Mac::ZERO,
            tpa: [192, 0, 2, target].into(),
        };
        Frame::new(&Builder::ethernet(Mac([0xff; 6]), A).arp(question).build())
    };
    let mut egress = Asked(0, Recorder::default());
    let mut burst: ArrayVec<Frame, BURST> = [arp(2), arp(3)].into_iter().collect();
    bridge
        .processor
        .process_burst(&bridge.active, port(1), &mut burst, bridge.now, &mut egress);
    assert_eq!((egress.0, egress.1.events.len()), (1, 1));
    let question = arp(2).bytes().to_vec();
    let steps = explain(&bridge.active, port(1), &question, bridge.now).steps;
    assert_eq!(steps, [millrace_pipeline::Step::Neighbour(port(1))]);
}

#[test]
fn a_packet_with_a_wrong_checksum_in_its_outer_ipv4_header_is_dropped_by_name() {
    let (mut bridge, _) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    bridge.apply("in_port=6", &[Action::output(port(3))]);
    let mut envelope = envelopes(TunnelKind::Vxlan, &[7]).remove(0);
    envelope[15] ^= 4;
    let _dropped = bridge.receive(1, &[envelope.clone()]);
    assert_eq!(
        bridge
            .processor
            .counters()
            .drops
            .read(DropReason::TunnelMalformed),
        1
    );
    assert_eq!(bridge.receive(1, &[with_checksum(envelope)]).len(), 1);
}

#[test]
fn bytes_behind_the_inner_packet_do_not_come_in_with_it() {
    for kind in [TunnelKind::Vxlan, TunnelKind::Gre] {
        let ends = |number, local, remote| Tunnel {
            checksum: true,
            ..tunnel(number, kind, TunnelKey::Fixed(7), local, remote)
        };
        let ((mut near, _), (mut far, _)) = (bridge(&[ends(5, 1, 2)]), bridge(&[ends(6, 2, 1)]));
        near.apply("", &[Action::output(port(5))]);
        far.apply("in_port=6", &[Action::output(port(3))]);
        let [Event::Out(1, None, envelope)] = &near.receive(2, &[inner(1)])[..] else {
            panic!("nothing was sent")
        };
        // After the IP packet, as padding; then also in the IP packet after the UDP datagram.
        let mut envelope = [&envelope[..], &[0xee; 8]].concat();
        let mut cases = vec![envelope.clone()];
        if kind == TunnelKind::Vxlan {
            let size = (envelope.len() - 14) as u16;
            envelope[16..18].copy_from_slice(&size.to_be_bytes());
            cases.push(with_checksum(envelope));
        }
        for case in cases {
            let frames = [
                Frame::segmented(&case, 200),
                Frame::segmented(&case, case.len() - 10),
            ];
            for frame in frames {
                let events = far.receive_frame(1, frame);
                let is_inner =
                    |event: &Event| matches!(event, Event::Out(3, None, bytes) if *bytes == inner(1));
                assert!(events.len() == 1 && is_inner(&events[0]), "{kind} {events:?}");
            }
        }
    }
}

#[test]
fn congestion_outside_comes_in_with_the_packet() {
    let capable = |ecn: u8| {
        let mut frame = inner(1);
        frame[15] |= ecn;
        with_checksum(frame)
    };
    let (mut near, _) = bridge(&[tunnel(5, TunnelKind::Vxlan, TunnelKey::Flow, 1, 2)]);
    near.apply("", &[Action::output(port(5))]);
    let (mut far, _) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Flow, 2, 1)]);
    far.apply("in_port=6", &[Action::output(port(3))]);
    for (inside, outside, out) in [
        (2, 3, Some(3)),
        (1, 3, Some(3)),
        (2, 1, Some(1)),
        (2, 2, Some(2)),
        (0, 3, None),
        (3, 0, Some(3)),
    ] {
        let events = near.receive(2, &[capable(inside)]);
        let [Event::Out(1, None, envelope)] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(envelope[15] & 3, inside, "the outside says what the inside says");
        let mut envelope = envelope.clone();
        envelope[15] = envelope[15] & 0xfc | outside;
        let events = far.receive(1, &[with_checksum(envelope)]);
        let got = events.iter().find_map(|event| match event {
            Event::Out(3, None, bytes) => Some(bytes.clone()),
            _ => None,
        });
        assert_eq!(got, out.map(capable), "{inside} in {outside}");
    }
}

#[test]
fn an_explanation_counts_nothing_at_tunnels() {
    let (mut near, counts) = bridge(&[tunnel(5, TunnelKind::Vxlan, TunnelKey::Fixed(7), 1, 2)]);
    near.apply("", &[Action::output(port(5))]);
    let told = explain(&near.active, port(2), &inner(1), near.now).to_string();
    assert!(told.contains('5'), "{told}");
    let (mut far, far_counts) = bridge(&[tunnel(6, TunnelKind::Vxlan, TunnelKey::Fixed(7), 2, 1)]);
    far.apply("", &[Action::output(port(3))]);
    let envelope = envelopes(TunnelKind::Vxlan, &[7]).remove(0);
    let told = explain(&far.active, port(1), &envelope, far.now).to_string();
    assert!(told.contains('3'), "{told}");
    let (sent, received) = (counts[0].read(), far_counts[0].read());
    assert_eq!((sent.tx_packets, received.rx_packets), (0, 0));
    near.one(2, &inner(1));
    far.one(1, &envelope);
    let (sent, received) = (counts[0].read(), far_counts[0].read());
    assert_eq!((sent.tx_packets, received.rx_packets), (1, 1));
}
