//! Frames that are sent at one end of a link arrive at the other.

use core::num::NonZeroU16;
use std::net::UdpSocket;

use millrace_af_packet::open;
use millrace_wire::checksum::Sum;
use millrace_wire::segment::GsoLayout;
use millrace_wire::{Frame, Packet};

use crate::test_bed::{Burst, MTU, frame, in_own_namespace, ip, long, one, pool, receive, send, wait_for};

const SERVICE: [u8; 4] = [0x88, 0xa8, 0x60, 0x05];
const CUSTOMER: [u8; 4] = [0x81, 0x00, 0x20, 0x07];
const PRIORITY: [u8; 4] = [0x81, 0x00, 0xe0, 0x00];

/// Returns true if the checksum after the IPv4 header without options is right.
fn is_right(frame: &[u8]) -> bool {
    let ip = &frame[14..];
    let size = ip.len() as u16 - 20;
    let pseudo = Sum::of(&ip[12..20]).add16(u16::from(ip[9])).add16(size);
    pseudo.add_bytes(&ip[20..]).folded() == 0xffff
}

#[test]
fn frames_with_and_without_tags_come_as_they_were_sent() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _)) = (one("v0"), one("v1"));
    let mut frames = Vec::new();
    for size in [18, 100, 1000, 1472] {
        frames.push(frame(&[], 17, 1, &vec![size as u8; size]));
    }
    for tags in [
        vec![SERVICE],
        vec![CUSTOMER],
        vec![PRIORITY],
        vec![SERVICE, CUSTOMER],
        vec![SERVICE, SERVICE, CUSTOMER],
        vec![CUSTOMER, CUSTOMER],
    ] {
        frames.push(frame(&tags, 17, 1, &[3; 300]));
    }
    // A customer tag does not count for the MTU.
    frames.push(frame(&[CUSTOMER], 17, 1, &[4; 1472]));
    send(&mut sender, frames.iter().map(|bytes| Frame::new(bytes)));
    let came = receive(&mut receiver, &pool(), frames.len());
    let came: Vec<&[u8]> = came.iter().map(Frame::bytes).collect();
    assert_eq!(came, frames);
}

#[test]
fn frames_that_this_machine_sends_by_the_interface_are_not_received() {
    if !in_own_namespace() {
        return;
    }
    // The test receives from both queues of a fanout group; kernels before 6.5 do not filter outgoing frames for them.
    for queues in [1, 2] {
        let mut pairs = open("v0", queues).unwrap();
        let ((_, mut other), (mut far, _)) = (one("v0"), one("v1"));
        send(&mut other, [Frame::new(&frame(&[], 17, 1, &[1; 60]))]);
        receive(&mut far, &pool(), 1);
        for (receiver, _) in &mut pairs {
            let mut burst = Burst::new();
            let empty = |len: usize, burst: &mut Burst| burst.extend((0..len).map(|_| Frame::new(&[])));
            assert_eq!(
                receiver
                    .receive(&mut burst, &crate::test_bed::ACCEPTED, empty)
                    .frames,
                0
            );
        }
    }
}

#[test]
fn a_long_tcp_packet_goes_whole_with_and_without_tags() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _), pool) = (one("v0"), one("v1"), pool());
    for tags in [vec![], vec![CUSTOMER], vec![SERVICE], vec![SERVICE, CUSTOMER]] {
        for size in [3000, 20_000, 65_000] {
            let data: Vec<u8> = (0..size).map(|i| (i / 7) as u8).collect();
            let bytes = frame(&tags, 6, 1, &data);
            send(&mut sender, [long(&bytes, 1448)]);
            let came = receive(&mut receiver, &pool, 1).remove(0);
            assert_eq!(
                came.segment_size().map(NonZeroU16::get),
                Some(1448),
                "{tags:?} {size}"
            );
            let gso = GsoLayout::of(&came).unwrap();
            // The checksum differs, because segmentation computes it.
            let at = gso.headers_size() - 4;
            let mut expected = bytes.clone();
            expected[at..at + 2].copy_from_slice(&came.bytes()[at..at + 2]);
            assert!(came.bytes() == expected, "{tags:?} {size}");
            assert_eq!(gso.count(), data.len().div_ceil(1448));
        }
    }
}

#[test]
fn a_train_of_datagrams_goes_whole_and_is_its_datagrams_in_the_end() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _)) = (one("v0"), one("v1"));
    let data: Vec<u8> = (0..5000).map(|i| (i / 7) as u8).collect();
    send(&mut sender, [long(&frame(&[], 17, 1, &data), 1200)]);
    let came = receive(&mut receiver, &pool(), 1).remove(0);
    let gso = GsoLayout::of(&came).unwrap();
    assert!(gso.is_udp() && gso.count() == 5);
    let datagrams: Vec<Frame> = (0..5).map(|number| gso.segment(&came, number).unwrap()).collect();
    assert!(datagrams.iter().all(|datagram| is_right(datagram.bytes())));
    let parts: Vec<u8> = datagrams
        .iter()
        .flat_map(|datagram| datagram.bytes()[42..].to_vec())
        .collect();
    assert!(parts == data);
}

#[test]
fn a_checksum_that_a_host_leaves_to_its_nic_is_completed() {
    if !in_own_namespace() {
        return;
    }
    ip("addr add 10.0.0.1/24 dev v0");
    ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:99 dev v0");
    let (mut receiver, _) = one("v1");
    let socket = UdpSocket::bind("10.0.0.1:4000").unwrap();
    let pool = pool();
    for size in [1, 2, 301, 1472] {
        socket.send_to(&vec![0x5a; size], "10.0.0.2:5000").unwrap();
        let came = receive(&mut receiver, &pool, 1).remove(0);
        assert_eq!(came.len(), 42 + size);
        assert!(is_right(came.bytes()), "{size}");
    }
}

#[test]
fn what_is_longer_than_the_mtu_is_dropped_alone() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _)) = (one("v0"), one("v1"));
    let good = frame(&[], 17, 1, &[1; 100]);
    let mut burst: Burst = [
        Frame::new(&good),
        Frame::new(&frame(&[], 17, 1, &[2; 1473])),
        Frame::new(&good),
        long(&frame(&[], 6, 1, &[3; 9000]), 1461),
        Frame::new(&good),
    ]
    .into_iter()
    .collect();
    let sent = sender.send(&mut burst, MTU);
    assert_eq!((sent.packets, sent.dropped, sent.is_down), (5, 2, false));
    assert_eq!(receive(&mut receiver, &pool(), 3).len(), 3);
}

#[test]
fn flows_are_spread_over_queues_and_stay_in_order() {
    if !in_own_namespace() {
        return;
    }
    let (_, mut sender) = one("v0");
    let mut pairs = open("v1", 4).unwrap();
    for number in 0..20_u8 {
        send(
            &mut sender,
            (0..40).map(|flow| Frame::new(&frame(&[], 17, flow, &[number; 60]))),
        );
    }
    let pool = pool();
    let mut seen = vec![(None, 0_u8); 40];
    let mut queues = std::collections::BTreeSet::new();
    wait_for("all frames came", || {
        for (queue, (receiver, _)) in pairs.iter_mut().enumerate() {
            let mut burst = Burst::new();
            receiver.receive(
                &mut burst,
                &crate::test_bed::ACCEPTED,
                |len, burst: &mut Burst| {
                    burst.extend((0..len).map_while(|_| pool.take(&[])));
                },
            );
            for came in &burst {
                let flow = usize::from(u16::from_be_bytes([came.bytes()[34], came.bytes()[35]]));
                let (home, next) = &mut seen[flow];
                assert_eq!(*home.get_or_insert(queue), queue, "flow {flow}");
                assert_eq!(came.bytes()[60], *next, "flow {flow}");
                *next += 1;
                queues.insert(queue);
            }
        }
        seen.iter().all(|(_, next)| *next == 20)
    });
    assert!(queues.len() > 1, "{queues:?}");
}

#[test]
fn a_long_frame_waits_for_packets() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _)) = (one("v0"), one("v1"));
    let bytes = frame(&[], 6, 1, &[7; 20_000]);
    send(
        &mut sender,
        [long(&bytes, 1448), Frame::new(&frame(&[], 17, 1, &[1; 60]))],
    );
    let pool = pool();
    let mut is_short = false;
    wait_for("the frame waits", || {
        let mut left = 3;
        let received = receiver.receive(
            &mut Burst::new(),
            &crate::test_bed::ACCEPTED,
            |len, burst: &mut Burst| {
                let len = len.min(left);
                left -= len;
                burst.extend((0..len).map_while(|_| pool.take(&[])));
            },
        );
        assert_eq!(received.frames, 0);
        is_short = received.is_short;
        is_short
    });
    let came = receive(&mut receiver, &pool, 2);
    assert_eq!((came[0].len(), came[1].len()), (bytes.len(), 102));
}
