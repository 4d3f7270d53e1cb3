//! Rings between our client and our server, and between one of them and a peer that violates the protocol.

#![allow(clippy::unwrap_used)]

use std::os::fd::OwnedFd;

use millrace_memif::client::{ClientConfig, Layout};
use millrace_memif::region::{Regions, UnsealedPolicy};
use millrace_memif::ring::{Received, Receiver, Rings, Sent, Sink, WORK_MAX};
use millrace_memif::server::Offer;
use millrace_memif::{CHAIN_MAX, Direction, MessageError, Name, ProtocolViolation};

const BUFFER: u32 = 256;

fn layout(log2_len: u8) -> Layout {
    Layout::new(ClientConfig {
        to_server: 1,
        to_client: 1,
        log2_len,
        buffer_size: BUFFER,
    })
}

/// Both ends of one shared memory, and a view through which a test may write anywhere.
struct Pair {
    client: Rings,
    server: Rings,
    all: Regions,
    layout: Layout,
}

fn offer(layout: &Layout, file: &OwnedFd) -> Offer<OwnedFd> {
    let file = || file.try_clone().unwrap();
    let rings = |direction| {
        (0..layout.rings(direction))
            .map(|index| (layout.ring(direction, index), file()))
            .collect()
    };
    Offer {
        program: Name::default(),
        interface: Name::default(),
        regions: vec![(layout.size() as u64, file())],
        to_server: rings(Direction::ToServer),
        to_client: rings(Direction::ToClient),
    }
}

fn pair(log2_len: u8) -> Pair {
    let layout = layout(log2_len);
    let (mut client, file) = Rings::create(&layout).unwrap();
    let (server, interrupts) = Rings::open(offer(&layout, &file), UnsealedPolicy::Reject).unwrap();
    assert_eq!(interrupts.len(), 1);
    client.receivers[0].begin();
    let all = Regions::open([(layout.size() as u64, file)], UnsealedPolicy::Reject).unwrap();
    Pair {
        client,
        server,
        all,
        layout,
    }
}

impl Pair {
    fn ring(&self, direction: Direction) -> u32 {
        self.layout.ring(direction, 0).offset
    }

    fn put(&self, at: u32, bytes: &[u8]) {
        self.all.buffer(0, at, bytes.len() as u32).unwrap().write(bytes);
    }

    fn head(&self, direction: Direction, to: u16) {
        self.put(self.ring(direction) + 6, &to.to_le_bytes());
    }

    fn tail(&self, direction: Direction, to: u16) {
        self.put(self.ring(direction) + 64, &to.to_le_bytes());
    }

    fn descriptor(&self, direction: Direction, at: u16, flags: u16, region: u16, length: u32, offset: u32) {
        let at = self.ring(direction) + 128 + 16 * u32::from(at);
        let mut bytes = Vec::new();
        bytes.extend(flags.to_le_bytes());
        bytes.extend(region.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend([0; 4]);
        self.put(at, &bytes);
    }
}

#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl Sink for Frames {
    fn allocate(&mut self, size: usize) -> Option<&mut [u8]> {
        self.0.push(vec![0; size]);
        self.0.last_mut().map(Vec::as_mut_slice)
    }
}

fn take(receiver: &mut Receiver, frames: usize) -> Result<(Vec<Vec<u8>>, Received), ProtocolViolation> {
    let mut taken = Frames::default();
    receiver.ready()?;
    let received = receiver.receive(frames, &mut taken)?;
    assert_eq!(received.frames, taken.0.len());
    assert!(received.frames <= frames);
    Ok((taken.0, received))
}

fn frame(number: u32) -> Vec<u8> {
    let size = 4 + number as usize % 250;
    let mut frame = number.to_le_bytes().to_vec();
    frame.resize(size, number as u8);
    frame
}

#[test]
fn frames_arrive_in_order_both_ways_while_indices_wrap() {
    let mut pair = pair(3);
    let (client, server) = (&mut pair.client, &mut pair.server);
    for (sender, receiver) in [
        (&mut client.senders[0], &mut server.receivers[0]),
        (&mut server.senders[0], &mut client.receivers[0]),
    ] {
        let (mut sent, mut came) = (0, 0);
        while came < 200_000 {
            sender.ready().unwrap();
            for _ in 0..5 {
                if sender.send(&frame(sent)).unwrap() == Sent::Yes {
                    sent += 1;
                }
            }
            assert!(!sender.publish(), "the receiver polls, and needs no interrupt");
            for got in take(receiver, 3).unwrap().0 {
                assert_eq!(got, frame(came));
                came += 1;
            }
            assert!(sent - came <= 8);
        }
    }
}

#[test]
fn a_full_ring_takes_frames_again_once_some_were_received() {
    let mut pair = pair(2);
    for _ in 0..3 {
        let sender = &mut pair.server.senders[0];
        assert_eq!(sender.ready(), Ok(4));
        for number in 0..4 {
            assert_eq!(sender.send(&frame(number)), Ok(Sent::Yes));
        }
        assert_eq!(sender.send(&frame(4)), Ok(Sent::Full));
        sender.publish();
        assert_eq!(sender.ready(), Ok(0));
        assert_eq!(take(&mut pair.client.receivers[0], 9).unwrap().0.len(), 4);
    }
}

#[test]
fn a_frame_longer_than_a_buffer_takes_several() {
    let mut pair = pair(3);
    let long: Vec<u8> = (0..4 * BUFFER).map(|i| i as u8).collect();
    let sender = &mut pair.server.senders[0];
    sender.ready().unwrap();
    assert_eq!(sender.send(&long[1..]), Ok(Sent::Yes));
    assert_eq!(sender.send(&long), Ok(Sent::Yes));
    assert_eq!(sender.send(&frame(1)), Ok(Sent::Full));
    sender.publish();
    let (taken, _) = take(&mut pair.client.receivers[0], 9).unwrap();
    assert_eq!(taken, [&long[1..], &long[..]]);
    // The other direction does the same.
    let sender = &mut pair.client.senders[0];
    sender.ready().unwrap();
    assert_eq!(sender.send(&long), Ok(Sent::Yes));
    assert_eq!(sender.send(&[0; 9 * BUFFER as usize]), Ok(Sent::Full));
    sender.publish();
    assert_eq!(take(&mut pair.server.receivers[0], 9).unwrap().0, [long]);
    let sender = &mut pair.client.senders[0];
    sender.ready().unwrap();
    assert_eq!(sender.send(&[0; 9 * BUFFER as usize]), Ok(Sent::TooLong));
}

#[test]
fn a_frame_in_several_buffers_passes_the_end_of_the_index_space() {
    let long = [7; 2 * BUFFER as usize];
    let mut pair = pair(3);
    let (sender, receiver) = (&mut pair.client.senders[0], &mut pair.server.receivers[0]);
    // 2^16 indices, and an odd number of buffers before, so that one frame lies on both sides of the end.
    for number in 0..0x8000 {
        sender.ready().unwrap();
        let frame: &[u8] = if number == 0 { &long[..1] } else { &long };
        assert_eq!(sender.send(frame), Ok(Sent::Yes));
        sender.publish();
        assert_eq!(take(receiver, 9).unwrap().0, [frame]);
    }
    sender.ready().unwrap();
    assert_eq!(sender.send(&long), Ok(Sent::Yes));
    sender.publish();
    assert_eq!(take(receiver, 9).unwrap().0, [&long]);
}

#[test]
fn a_sleeping_receiver_needs_an_interrupt() {
    let mut pair = pair(3);
    let flags = pair.ring(Direction::ToClient) + 4;
    pair.put(flags, &[0]);
    let sender = &mut pair.server.senders[0];
    sender.ready().unwrap();
    assert!(!sender.publish(), "nothing was sent");
    sender.send(&[1]).unwrap();
    assert!(sender.publish());
}

#[test]
fn indices_that_overtake_or_move_back_are_violations() {
    for to in [9, 0x7fff, 0x8000, 0xffff] {
        let mut pair = pair(3);
        pair.head(Direction::ToServer, to);
        assert!(
            matches!(
                pair.server.receivers[0].ready(),
                Err(ProtocolViolation::Index { .. })
            ),
            "{to}"
        );
        pair.tail(Direction::ToServer, to);
        assert!(
            matches!(
                pair.client.senders[0].ready(),
                Err(ProtocolViolation::Index { .. })
            ),
            "{to}"
        );
        pair.head(Direction::ToClient, to);
        assert!(
            matches!(
                pair.server.senders[0].ready(),
                Err(ProtocolViolation::Index { .. })
            ),
            "{to}"
        );
        pair.tail(Direction::ToClient, to);
        assert!(
            matches!(
                pair.client.receivers[0].ready(),
                Err(ProtocolViolation::Index { .. })
            ),
            "{to}"
        );
    }
    let mut pair = pair(3);
    pair.head(Direction::ToServer, 5);
    assert_eq!(pair.server.receivers[0].ready(), Ok(5));
    pair.head(Direction::ToServer, 4);
    assert_eq!(
        pair.server.receivers[0].ready(),
        Err(ProtocolViolation::Index {
            from: 5,
            to: 4,
            room: 3
        })
    );
}

#[test]
fn buffers_outside_of_a_region_are_violations() {
    let size = layout(3).size() as u32;
    for (region, length, offset) in [
        (1, 10, 0),
        (0xffff, 10, 0),
        (0, size + 1, 0),
        (0, 10, size - 9),
        (0, 10, u32::MAX),
        (0, u32::MAX, u32::MAX),
        (0, u32::MAX, 0),
        (0, 1, size),
    ] {
        for at in 0..3 {
            let mut pair = pair(3);
            for valid in 0..3 {
                pair.descriptor(Direction::ToServer, valid, 0, 0, 10, 0);
            }
            pair.descriptor(Direction::ToServer, at, 0, region, length, offset);
            pair.head(Direction::ToServer, 3);
            let violation = take(&mut pair.server.receivers[0], 8).unwrap_err();
            assert!(
                matches!(
                    violation,
                    ProtocolViolation::Region { .. } | ProtocolViolation::Outside { .. }
                ),
                "{violation}"
            );
            pair.descriptor(Direction::ToClient, 0, 0, region, length, offset);
            let sender = &mut pair.server.senders[0];
            sender.ready().unwrap();
            let violation = sender.send(&[1; 20]).unwrap_err();
            assert!(
                matches!(
                    violation,
                    ProtocolViolation::Region { .. } | ProtocolViolation::Outside { .. }
                ),
                "{violation}"
            );
        }
    }
}

#[test]
fn a_server_cannot_move_a_clients_buffers() {
    let mut pair = pair(3);
    let secret = pair.layout.size() as u32 - 16;
    pair.put(secret, b"what is far away");
    for at in 0..8 {
        pair.descriptor(Direction::ToClient, at, 0, 7, 16, secret);
        pair.descriptor(Direction::ToServer, at, 0, 7, 16, secret);
    }
    pair.tail(Direction::ToClient, 8);
    let (taken, _) = take(&mut pair.client.receivers[0], 8).unwrap();
    assert_eq!(taken, vec![vec![0; 16]; 8]);
    let sender = &mut pair.client.senders[0];
    sender.ready().unwrap();
    sender.send(b"mine").unwrap();
    sender.publish();
    assert_eq!(take(&mut pair.server.receivers[0], 1).unwrap().0, [b"mine"]);
    // A length beyond the buffer would disclose the bytes of the next one.
    pair.descriptor(Direction::ToClient, 0, 0, 0, BUFFER + 1, 0);
    pair.tail(Direction::ToClient, 9);
    assert_eq!(
        take(&mut pair.client.receivers[0], 8).unwrap_err(),
        ProtocolViolation::Longer {
            size: BUFFER + 1,
            room: BUFFER
        }
    );
}

#[test]
fn a_chain_without_an_end_is_a_violation() {
    for log2_len in [0, 3, 10] {
        let mut pair = pair(log2_len);
        let len = 1_u16 << log2_len;
        for at in 0..len {
            pair.descriptor(Direction::ToServer, at, 1, 0, 1, 0);
        }
        pair.head(Direction::ToServer, len.min(CHAIN_MAX as u16 + 1));
        assert_eq!(
            take(&mut pair.server.receivers[0], 8).unwrap_err(),
            ProtocolViolation::Chain
        );
    }
}

#[test]
fn an_incomplete_chain_waits_for_its_end() {
    let mut pair = pair(3);
    pair.descriptor(Direction::ToServer, 0, 1, 0, 2, 0);
    pair.descriptor(Direction::ToServer, 1, 1, 0, 0, 0);
    pair.descriptor(Direction::ToServer, 2, 0, 0, 3, 0);
    for head in 1..3 {
        pair.head(Direction::ToServer, head);
        assert_eq!(take(&mut pair.server.receivers[0], 8).unwrap().0.len(), 0);
    }
    pair.head(Direction::ToServer, 3);
    assert_eq!(take(&mut pair.server.receivers[0], 8).unwrap().0[0].len(), 5);
}

#[test]
fn empty_frames_are_dropped_in_bounded_time() {
    let mut pair = pair(10);
    for at in 0..1024 {
        pair.descriptor(Direction::ToServer, at, 0, 0, 0, 0);
    }
    pair.head(Direction::ToServer, 1024);
    let mut dropped = 0;
    for _ in 0..1024 / WORK_MAX {
        let (_, received) = take(&mut pair.server.receivers[0], 8).unwrap();
        assert_eq!(received.dropped, usize::from(WORK_MAX));
        dropped += received.dropped;
    }
    assert_eq!(dropped, 1024);
}

#[test]
fn buffers_of_size_zero_take_no_frame() {
    let mut pair = pair(10);
    for at in 0..1024 {
        pair.descriptor(Direction::ToClient, at, 0, 0, 0, 0);
    }
    let sender = &mut pair.server.senders[0];
    sender.ready().unwrap();
    assert_eq!(sender.send(&[1; 60]), Ok(Sent::TooLong));
    assert!(!sender.publish());
}

#[test]
fn a_ring_without_the_cookie_is_rejected() {
    let layout = layout(3);
    let (_client, file) = Rings::create(&layout).unwrap();
    let all = Regions::open(
        [(layout.size() as u64, file.try_clone().unwrap())],
        UnsealedPolicy::Reject,
    );
    all.unwrap().buffer(0, 0, 4).unwrap().write(&[1, 2, 3, 4]);
    let error = Rings::open(offer(&layout, &file), UnsealedPolicy::Reject).unwrap_err();
    assert!(matches!(error, MessageError::Cookie { index: 0, .. }), "{error}");
}

#[test]
fn a_frame_in_slices_arrives_as_one_and_fits_one_buffer() {
    let mut pair = pair(2);
    let sender = &mut pair.client.senders[0];
    sender.ready().unwrap();
    let parts: [&[u8]; 3] = [b"head", b"", b"payload"];
    assert_eq!(sender.send_slices(11, parts.into_iter()), Ok(Sent::Yes));
    let long = [0; BUFFER as usize + 1];
    assert_eq!(
        sender.send_slices(long.len(), [&long[..]].into_iter()),
        Ok(Sent::TooLong)
    );
    for _ in 0..3 {
        assert_eq!(sender.send_slices(1, [&b"x"[..]].into_iter()), Ok(Sent::Yes));
    }
    assert_eq!(sender.send_slices(1, [&b"x"[..]].into_iter()), Ok(Sent::Full));
    sender.publish();
    let (frames, _) = take(&mut pair.server.receivers[0], 1).unwrap();
    assert_eq!(frames, [b"headpayload"]);
}

#[test]
fn a_receiver_that_sleeps_is_interrupted_by_the_next_frame_and_misses_none() {
    let mut pair = pair(2);
    let (receiver, sender) = (&mut pair.client.receivers[0], &mut pair.server.senders[0]);
    let mut send = || {
        sender.ready().unwrap();
        sender.send(b"x").unwrap();
        sender.publish()
    };
    assert!(!send(), "who polls needs no interrupt");
    assert_eq!(
        receiver.request_interrupt(),
        Ok(true),
        "a frame is there: do not sleep"
    );
    take(receiver, 1).unwrap();
    assert_eq!(receiver.request_interrupt(), Ok(false));
    assert!(send());
    receiver.mask_interrupt();
    assert!(!send());
}
