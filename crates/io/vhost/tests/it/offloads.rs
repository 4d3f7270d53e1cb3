//! Offloads in both directions: partial checksums and TCP segmentation.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use core::num::NonZeroU16;

use crate::driver::{BUFFERS, Burst, Driver, GUEST, LIMITS, WRITE, empties, plain, with_header};
use millrace_vhost::Features;
use millrace_vhost::ring::{Limits, Receiver, Sender};
use millrace_wire::checksum::Sum;
use millrace_wire::segment::GsoLayout;
use millrace_wire::{Frame, FramePool, Packet};

const PLACE: u64 = GUEST + BUFFERS;
const LONG: Limits = Limits {
    is_segmented: true,
    ..LIMITS
};
const ALL: u64 = 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12;

/// Returns an Ethernet frame of a UDP datagram or TCP segment with a partial checksum, and the sum of its
/// pseudo-header.
fn left_to_us(protocol: u8, data: &[u8]) -> Vec<u8> {
    let (header, at): (&[u8], usize) = match protocol {
        17 => (&[0x10, 0x01, 0x10, 0x02, 0, 0, 0, 0], 6),
        _ => (
            &[
                0x10, 0x01, 0x10, 0x02, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0,
            ],
            16,
        ),
    };
    let size = (header.len() + data.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let mut ip = vec![0x45, 0];
    ip.extend((size + 20).to_be_bytes());
    ip.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = Sum::of(&ip).checksum().to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    let pseudo = Sum::of(&ip[12..]).add16(u16::from(protocol)).add16(size).folded();
    frame.extend(ip);
    let begin = frame.len();
    frame.extend(header);
    frame[begin + at..begin + at + 2].copy_from_slice(&pseudo.to_be_bytes());
    if protocol == 17 {
        frame[begin + 4..begin + 6].copy_from_slice(&size.to_be_bytes());
    }
    frame.extend(data);
    frame
}

/// Returns true if the checksum after the IP header is right.
fn is_right(frame: &[u8]) -> bool {
    let ip = &frame[14..];
    let size = ip.len() as u16 - 20;
    let pseudo = Sum::of(&ip[12..20]).add16(u16::from(ip[9])).add16(size);
    pseudo.add_bytes(&ip[20..]).folded() == 0xffff
}

fn header(flags: u8, kind: u8, segment: u16, begin: u16, at: u16) -> [u8; 12] {
    let mut header = [0; 12];
    (header[0], header[1]) = (flags, kind);
    header[4..6].copy_from_slice(&segment.to_le_bytes());
    header[6..8].copy_from_slice(&begin.to_le_bytes());
    header[8..10].copy_from_slice(&at.to_le_bytes());
    header
}

/// Receives a frame with a virtio-net header, in one buffer and in several; returns `None` if it is dropped.
fn received(features: Features, limits: Limits, header: [u8; 12], frame: &[u8]) -> Option<Frame> {
    let bytes = with_header(header, frame);
    let pool = FramePool::new(64, 2048);
    let size = bytes.len() as u32;
    let outcomes = [
        vec![(PLACE, size)],
        vec![(PLACE, 12), (PLACE + 12, size - 12)],
        vec![(PLACE, 5), (PLACE + 5, 100), (PLACE + 105, size - 105)],
    ]
    .map(|buffers| {
        let mut driver = Driver::new(8, features);
        let mut receiver = Receiver::open(&driver.setup(), limits).unwrap();
        driver.put(PLACE, &bytes);
        driver.offer(&buffers, 0, false).unwrap();
        // The next frame must not be affected.
        driver.offer(&[(PLACE + size as u64, 15)], 0, false).unwrap();
        let mut burst = Burst::new();
        let received = receiver.receive(&mut burst, empties(&pool)).unwrap();
        assert_eq!(received.frames + received.dropped, 2);
        assert_eq!(burst.pop().unwrap().len(), 3);
        burst.pop()
    });
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0], outcomes[2]);
    let [outcome, ..] = outcomes;
    outcome
}

#[test]
fn a_checksum_that_is_left_to_us_is_computed() {
    for (protocol, at) in [(17, 6), (6, 16)] {
        for size in [80, 81, 1400] {
            let data: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let frame = left_to_us(protocol, &data);
            assert!(!is_right(&frame));
            let came = received(plain(false), LIMITS, header(1, 0, 0, 34, at), &frame).unwrap();
            assert!(is_right(came.bytes()), "{protocol} {size}");
            let untouched = received(plain(false), LIMITS, header(0, 0, 0, 34, at), &frame).unwrap();
            assert_eq!(untouched.bytes(), frame);
        }
    }
    // Zero would mean that the datagram has no checksum.
    let frame = left_to_us(17, &[0; 80]);
    let sum = Sum::of(&frame[34..]).folded();
    let mut data = [0; 80];
    data[..2].copy_from_slice(&(!sum).to_be_bytes());
    let frame = left_to_us(17, &data);
    let came = received(plain(false), LIMITS, header(1, 0, 0, 34, 6), &frame).unwrap();
    assert_eq!(came.bytes()[40..42], [0xff, 0xff]);
}

#[test]
fn a_checksum_outside_of_the_frame_is_dropped() {
    let frame = left_to_us(17, &[0; 80]);
    let size = frame.len() as u16;
    for (begin, at) in [
        (size, 0),
        (size - 1, 0),
        (34, size),
        (34, 0xffff),
        (0xffff, 0xffff),
        (0xffff, 6),
    ] {
        assert_eq!(
            received(plain(false), LIMITS, header(1, 0, 0, begin, at), &frame),
            None
        );
    }
    assert!(received(plain(false), LIMITS, header(1, 0, 0, size - 2, 0), &frame).is_some());
}

#[test]
fn a_long_packet_comes_whole_and_is_what_its_header_says() {
    let features = plain(false) | Features::from_bits(ALL);
    for size in [1461, 2990, 9000, 65_000] {
        let data: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let frame = left_to_us(6, &data);
        let came = received(features, LONG, header(1, 1, 1460, 34, 16), &frame).unwrap();
        assert_eq!(came.bytes(), frame);
        let gso = GsoLayout::of(&came).unwrap();
        assert_eq!(gso.count(), data.len().div_ceil(1460));
        assert!((0..gso.count()).all(|number| is_right(gso.segment(&came, number).unwrap().bytes())));
    }
    // A GSO packet of a single segment.
    let frame = left_to_us(6, &[7; 1000]);
    let came = received(features, LONG, header(1, 1, 1460, 34, 16), &frame).unwrap();
    assert_eq!(came.segment_size(), None);
    assert!(is_right(came.bytes()));
}

#[test]
fn a_long_packet_that_is_not_what_its_header_says_is_dropped() {
    let features = plain(false) | Features::from_bits(ALL);
    let frame = left_to_us(6, &[7; 5000]);
    let good = header(1, 1, 1460, 34, 16);
    assert!(received(features, LONG, good, &frame).is_some());
    for (kind, segment) in [
        (4, 1460),
        (3, 1460),
        (2, 1460),
        (1, 47),
        (1, 0),
        (1, 1461),
        (0, 0),
    ] {
        let bad = header(1, kind, segment, 34, 16);
        assert_eq!(received(features, LONG, bad, &frame), None, "{kind} {segment}");
    }
    let udp = left_to_us(17, &[7; 5000]);
    assert_eq!(received(features, LONG, good, &udp), None);
    let longer = left_to_us(6, &[7; 5000])
        .into_iter()
        .chain([0])
        .collect::<Vec<u8>>();
    assert_eq!(received(features, LONG, good, &longer), None);
    // GSO types that were not negotiated.
    assert_eq!(received(plain(false), LONG, good, &frame), None);
    assert_eq!(received(features, LIMITS, good, &frame), None);
    // The longest possible packet, and a longer one.
    assert_eq!(received(features, LONG, good, &vec![0; 70_000]), None);
}

#[test]
fn long_packets_wait_for_enough_packets() {
    let mut driver = Driver::new(8, plain(true) | Features::from_bits(ALL));
    let mut receiver = Receiver::open(&driver.setup(), LONG).unwrap();
    let frame = left_to_us(6, &[7; 20_000]);
    let bytes = with_header(header(1, 1, 1460, 34, 16), &frame);
    driver.put(PLACE, &bytes);
    driver.offer(&[(PLACE, bytes.len() as u32)], 0, false).unwrap();
    let pool = FramePool::new(20, 2048);
    let mut burst = Burst::new();
    for _ in 0..3 {
        let mut left = 3;
        let few = |len: usize, burst: &mut Burst| {
            let len = len.min(left);
            left -= len;
            empties(&pool)(len, burst);
        };
        let received = receiver.receive(&mut burst, few).unwrap();
        assert_eq!((received.frames, received.is_short), (0, true));
        assert_eq!((pool.free_len(), driver.used()), (20, None));
    }
    assert_eq!(receiver.receive(&mut burst, empties(&pool)).unwrap().frames, 1);
    assert_eq!(burst[0].bytes(), frame);
}

#[test]
fn a_long_packet_goes_whole_to_a_driver_that_takes_it() {
    for bits in [ALL, ALL & !(1 << 7), ALL & !(1 << 1)] {
        for is_packed in [false, true] {
            let mut driver = Driver::new(8, plain(is_packed) | Features::from_bits(bits));
            let mut sender = Sender::open(&driver.setup()).unwrap();
            let whole = left_to_us(6, &[7; 5000]);
            let mut frame = Frame::segmented(&whole, 1500).to_gso(NonZeroU16::new(1460).unwrap());
            // The previous content of the checksum field must not matter.
            frame.head_mut()[50..52].copy_from_slice(&[0x12, 0x34]);
            let takes = sender.takes_gso(&GsoLayout::of(&frame).unwrap());
            assert_eq!(takes, bits == ALL);
            for number in 0..3 {
                driver
                    .offer(&[(PLACE + 2048 * number, 2048)], WRITE, false)
                    .unwrap();
            }
            let mut burst = Burst::new();
            burst.push(frame);
            let sent = sender.send(&mut burst).unwrap();
            assert_eq!((sent.packets, sent.dropped), (1, usize::from(!takes)));
            if !takes {
                assert_eq!(driver.used(), None);
                continue;
            }
            let used = driver.all_used();
            assert_eq!(
                used.iter().map(|(_, size)| *size as usize).sum::<usize>(),
                12 + whole.len()
            );
            let bytes = driver.bytes((PLACE, 12 + whole.len() as u32));
            let mut expected = header(1, 1, 1460, 34, 16);
            (expected[2], expected[10]) = (54, 3);
            assert_eq!(
                bytes,
                with_header(expected, &whole),
                "with the right pseudo header, too"
            );
        }
    }
}
