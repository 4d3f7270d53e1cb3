//! Rings between a client and a server of ours, and between one of them and a peer that writes whatever it likes.

#![allow(clippy::unwrap_used)]

use std::os::fd::OwnedFd;

use millrace_memif::client::{Layout, Wish};
use millrace_memif::region::{Regions, Unsealed};
use millrace_memif::ring::{Received, Receiver, Rings, Sent, Sink, WORK_MAX};
use millrace_memif::server::Offer;
use millrace_memif::{CHAIN_MAX, Direction, Lie, Name, Refusal};

const BUFFER: u32 = 256;

fn layout(log2_len: u8) -> Layout {
    Layout::new(Wish {
        to_server: 1,
        to_client: 1,
        log2_len,
        buffer_size: BUFFER,
    })
}

/// Two ends of one memory, and what somebody sees of it who may write everywhere.
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
    let (server, bells) = Rings::open(offer(&layout, &file), Unsealed::Refuse).unwrap();
    assert_eq!(bells.len(), 1);
    client.receivers[0].begin();
    let all = Regions::open([(layout.size() as u64, file)], Unsealed::Refuse).unwrap();
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
        self.all.place(0, at, bytes.len() as u32).unwrap().write(bytes);
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
    fn place(&mut self, size: usize) -> Option<&mut [u8]> {
        self.0.push(vec![0; size]);
        self.0.last_mut().map(Vec::as_mut_slice)
    }
}

fn take(receiver: &mut Receiver, frames: usize) -> Result<(Vec<Vec<u8>>, Received), Lie> {
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
fn frames_come_in_order_both_ways_as_often_as_indices_wrap() {
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
            assert!(!sender.publish(), "we poll, and need no bell");
            for got in take(receiver, 3).unwrap().0 {
                assert_eq!(got, frame(came));
                came += 1;
            }
            assert!(sent - came <= 8);
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_until_something_was_taken_out() {
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
fn a_frame_longer_than_a_buffer_goes_in_several() {
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
    // And so the other way.
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
fn a_receiver_that_sleeps_is_to_be_woken() {
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
fn indices_that_run_ahead_or_back_are_lies() {
    for to in [9, 0x7fff, 0x8000, 0xffff] {
        let mut pair = pair(3);
        pair.head(Direction::ToServer, to);
        assert!(
            matches!(pair.server.receivers[0].ready(), Err(Lie::Index { .. })),
            "{to}"
        );
        pair.tail(Direction::ToServer, to);
        assert!(
            matches!(pair.client.senders[0].ready(), Err(Lie::Index { .. })),
            "{to}"
        );
        pair.head(Direction::ToClient, to);
        assert!(
            matches!(pair.server.senders[0].ready(), Err(Lie::Index { .. })),
            "{to}"
        );
        pair.tail(Direction::ToClient, to);
        assert!(
            matches!(pair.client.receivers[0].ready(), Err(Lie::Index { .. })),
            "{to}"
        );
    }
    let mut pair = pair(3);
    pair.head(Direction::ToServer, 5);
    assert_eq!(pair.server.receivers[0].ready(), Ok(5));
    pair.head(Direction::ToServer, 4);
    assert_eq!(
        pair.server.receivers[0].ready(),
        Err(Lie::Index {
            from: 5,
            to: 4,
            room: 3
        })
    );
}

#[test]
fn buffers_that_are_not_in_a_region_are_lies() {
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
            for honest in 0..3 {
                pair.descriptor(Direction::ToServer, honest, 0, 0, 10, 0);
            }
            pair.descriptor(Direction::ToServer, at, 0, region, length, offset);
            pair.head(Direction::ToServer, 3);
            let lie = take(&mut pair.server.receivers[0], 8).unwrap_err();
            assert!(matches!(lie, Lie::Region { .. } | Lie::Outside { .. }), "{lie}");
            pair.descriptor(Direction::ToClient, 0, 0, region, length, offset);
            let sender = &mut pair.server.senders[0];
            sender.ready().unwrap();
            let lie = sender.send(&[1; 20]).unwrap_err();
            assert!(matches!(lie, Lie::Region { .. } | Lie::Outside { .. }), "{lie}");
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
    // A length beyond our buffer would be another's bytes.
    pair.descriptor(Direction::ToClient, 0, 0, 0, BUFFER + 1, 0);
    pair.tail(Direction::ToClient, 9);
    assert_eq!(
        take(&mut pair.client.receivers[0], 8).unwrap_err(),
        Lie::Longer {
            size: BUFFER + 1,
            room: BUFFER
        }
    );
}

#[test]
fn a_chain_that_does_not_end_is_a_lie() {
    for log2_len in [0, 3, 10] {
        let mut pair = pair(log2_len);
        let len = 1_u16 << log2_len;
        for at in 0..len {
            pair.descriptor(Direction::ToServer, at, 1, 0, 1, 0);
        }
        pair.head(Direction::ToServer, len.min(CHAIN_MAX as u16 + 1));
        assert_eq!(take(&mut pair.server.receivers[0], 8).unwrap_err(), Lie::Chain);
    }
}

#[test]
fn a_chain_whose_end_is_not_there_yet_waits_for_it() {
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
fn frames_of_nothing_are_dropped_and_cost_a_bounded_time() {
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
fn buffers_of_no_room_take_nothing() {
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
fn a_ring_that_does_not_begin_as_one_is_refused() {
    let layout = layout(3);
    let (_client, file) = Rings::create(&layout).unwrap();
    let all = Regions::open(
        [(layout.size() as u64, file.try_clone().unwrap())],
        Unsealed::Refuse,
    );
    all.unwrap().place(0, 0, 4).unwrap().write(&[1, 2, 3, 4]);
    let refused = Rings::open(offer(&layout, &file), Unsealed::Refuse).unwrap_err();
    assert!(matches!(refused, Refusal::Cookie { index: 0, .. }), "{refused}");
}
