//! Packets, pools and rings, without a device.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::num::NonZeroU16;
use std::thread;

use crate::eal_once::eal;
use arrayvec::ArrayVec;
use millrace_dpdk::mempool::{DATA_ROOM, HEADROOM, NAME_LEN_MAX};
use millrace_dpdk::ring::{self, Ring, RingError};
use millrace_dpdk::{Mbuf, Mempool, MempoolConfig, MempoolError, free_burst};
use millrace_wire::Packet;

fn pool(name: &str) -> Mempool {
    Mempool::new(eal(), &MempoolConfig::new(name, 1023)).unwrap()
}

/// Returns bytes that differ from their neighbours, so that a shifted copy is detected.
fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index * 31 % 251) as u8).collect()
}

fn bytes(packet: &Mbuf) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

#[test]
fn a_dropped_packet_returns_to_its_pool() {
    let pool = pool("returns");
    assert_eq!((pool.size(), pool.available(), pool.in_use()), (1023, 1023, 0));
    let packet = pool.alloc().unwrap();
    assert!(packet.is_empty() && packet.is_contiguous());
    assert_eq!((pool.available(), pool.in_use()), (1022, 1));
    thread::spawn(move || drop(packet)).join().unwrap();
    assert_eq!((pool.available(), pool.in_use()), (1023, 0));
}

#[test]
fn an_empty_pool_gives_nothing_and_recovers() {
    let pool = Mempool::new(
        eal(),
        &MempoolConfig {
            cache_len: 0,
            ..MempoolConfig::new("small", 40)
        },
    )
    .unwrap();
    let mut first = ArrayVec::<Mbuf, 32>::new();
    let mut second = ArrayVec::<Mbuf, 32>::new();
    assert_eq!(pool.alloc_burst(&mut first), 32);
    assert_eq!(pool.alloc_burst(&mut second), 0, "all or none");
    assert_eq!(pool.in_use(), 32);
    let singles: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(singles.len(), 8);
    assert!(pool.packet(&pattern(64)).is_none());
    drop((first, singles));
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.alloc_burst(&mut second), 32);
}

#[test]
fn a_sum_goes_over_segments_of_any_length_and_a_packet_alike_has_as_many_as_it_needs() {
    let pool = pool("sums");
    let whole = pattern(9001);
    let mut packet = pool.packet(&whole[..777]).unwrap();
    for piece in whole[777..].chunks(1001) {
        packet.chain(pool.packet(piece).unwrap()).unwrap();
    }
    for (begin, size) in [
        (0, 9001),
        (1, 9000),
        (776, 3),
        (777, 1001),
        (1500, 5000),
        (9000, 9),
        (9001, 4),
    ] {
        let part = &whole[begin..(begin + size).min(whole.len())];
        let wanted = millrace_wire::checksum::Sum::of(part).folded();
        assert_eq!(packet.sum(begin, size).folded(), wanted, "{begin} {size}");
    }
    let alike = packet.alloc_like(&whole).unwrap();
    assert_eq!(bytes(&alike), whole);
    assert!(alike.segment_count() > 1);
}

#[test]
fn a_piece_of_a_packet_begins_with_the_given_headers_wherever_it_lies_in_the_segments() {
    let pool = Mempool::new(
        eal(),
        &MempoolConfig {
            data_room: 300 + HEADROOM,
            cache_len: 0,
            ..MempoolConfig::new("pieces", 255)
        },
    )
    .unwrap();
    let whole = pool.packet(&pattern(2000)).unwrap();
    assert_eq!(whole.segment_count(), 7);
    for (at, size) in [(0, 100), (250, 250), (299, 2), (600, 1400), (1999, 1), (2000, 0)] {
        let piece = Packet::gso_segment(&whole, b"headers", at, size).unwrap();
        let wanted = [b"headers", &pattern(2000)[at..at + size]].concat();
        assert_eq!(
            (bytes(&piece), piece.len()),
            (wanted, 7 + size),
            "{size} from {at}"
        );
        assert!(piece.head().starts_with(b"headers") && piece.headroom() == usize::from(HEADROOM));
    }
    assert!(Packet::gso_segment(&whole, b"headers", 1999, 2).is_none());
    assert!(
        Packet::gso_segment(&whole, &[0; 301], 0, 1).is_none(),
        "no buffer holds the header"
    );
    let in_use = pool.in_use();
    assert!(Packet::gso_segment(&whole, b"", usize::MAX, 1).is_none());
    assert_eq!(pool.in_use(), in_use);
}

#[test]
fn a_packet_to_be_cut_says_so_until_it_is_told_otherwise_and_so_do_its_copies() {
    let pool = pool("uncut");
    let mut packet = pool.packet(&pattern(3000)).unwrap();
    assert_eq!(packet.segment_size(), None);
    packet.set_segment_size(NonZeroU16::new(1448));
    assert_eq!(packet.segment_size(), NonZeroU16::new(1448));
    assert_eq!(packet.try_clone().unwrap().segment_size(), NonZeroU16::new(1448));
    assert_eq!(packet.gso_segment(b"h", 0, 10).unwrap().segment_size(), None);
    packet.set_segment_size(None);
    assert_eq!(packet.segment_size(), None);
    drop(packet);
    // Reused buffers are reset.
    assert!((0..100).all(|_| pool.alloc().unwrap().segment_size().is_none()));
}

#[test]
fn a_packet_that_does_not_fit_gives_its_segments_back() {
    let pool = Mempool::new(
        eal(),
        &MempoolConfig {
            cache_len: 0,
            ..MempoolConfig::new("tight", 3)
        },
    )
    .unwrap();
    assert!(pool.packet(&pattern(4 * pool.segment_size())).is_none());
    assert_eq!(pool.in_use(), 0);
    assert!(pool.packet(&pattern(3 * pool.segment_size())).is_some());
}

#[test]
fn impossible_pools_are_refused_with_a_next_step() {
    let usual = MempoolConfig::new("refused", 1023);
    let refused = [
        Mempool::new(
            eal(),
            &MempoolConfig {
                name: "a b".into(),
                ..usual.clone()
            },
        ),
        Mempool::new(
            eal(),
            &MempoolConfig {
                name: "x".repeat(26),
                ..usual.clone()
            },
        ),
        Mempool::new(
            eal(),
            &MempoolConfig {
                buffers: 0,
                cache_len: 0,
                ..usual.clone()
            },
        ),
        Mempool::new(
            eal(),
            &MempoolConfig {
                cache_len: 513,
                ..usual.clone()
            },
        ),
        Mempool::new(
            eal(),
            &MempoolConfig {
                data_room: HEADROOM - 1,
                ..usual.clone()
            },
        ),
    ];
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("To fix it: "), "{error}");
    }
    Mempool::new(eal(), &usual).unwrap();
    assert_eq!(
        Mempool::new(eal(), &usual),
        Err(MempoolError::Exists("refused".into()))
    );
}

#[test]
fn the_longest_name_that_is_allowed_works() {
    let longest = "n".repeat(NAME_LEN_MAX);
    pool(&longest);
    Ring::new(eal(), &longest, 64).unwrap();
}

#[test]
fn a_name_that_is_too_long_is_refused_with_the_limit() {
    let long = "n".repeat(NAME_LEN_MAX + 1);
    let of_pool = Mempool::new(eal(), &MempoolConfig::new(&long, 255)).unwrap_err();
    let of_ring = Ring::new(eal(), &long, 64).unwrap_err();
    for error in [of_pool.to_string(), of_ring.to_string()] {
        assert!(error.contains("To fix it: 1 to 24 ASCII letters"), "{error}");
    }
}

#[test]
fn headroom_and_tailroom_are_used_and_given_back() {
    let pool = pool("rooms");
    let mut packet = pool.packet(&pattern(100)).unwrap();
    let (head, tail) = (usize::from(HEADROOM), usize::from(DATA_ROOM - HEADROOM) - 100);
    assert_eq!((packet.headroom(), packet.tailroom()), (head, tail));

    packet.prepend(4).unwrap().copy_from_slice(b"tag:");
    packet.append(3).unwrap().copy_from_slice(b"end");
    assert_eq!(
        (packet.len(), packet.headroom(), packet.tailroom()),
        (107, head - 4, tail - 3)
    );
    assert_eq!(
        packet.head(),
        [b"tag:".as_slice(), &pattern(100), b"end"].concat()
    );

    assert!(packet.adj(4) && packet.trim(3));
    assert_eq!(packet.head(), pattern(100));

    assert!(packet.prepend(head + 1).is_none() && packet.append(tail + 1).is_none());
    assert!(!packet.adj(101) && !packet.trim(101));
    assert!(packet.prepend(usize::MAX).is_none() && packet.append(usize::MAX).is_none());
    assert_eq!(packet.head(), pattern(100), "what is refused changes nothing");

    assert_eq!(packet.prepend(head).unwrap().len(), head);
    assert_eq!(packet.append(tail).unwrap().len(), tail);
    assert_eq!((packet.headroom(), packet.tailroom()), (0, 0));
    assert!(packet.adj(packet.len()));
    assert!(packet.is_empty());
}

#[test]
fn a_jumbo_frame_lies_in_several_segments() {
    let pool = pool("jumbo");
    let frame = pattern(9600);
    let mut packet = pool.packet(&frame).unwrap();
    assert_eq!(
        (packet.len(), packet.segment_count(), packet.is_contiguous()),
        (9600, 5, false)
    );
    assert_eq!(bytes(&packet), frame);
    assert!(
        packet
            .segments()
            .all(|segment| segment.len() <= pool.segment_size())
    );

    let mut middle = [0; 3000];
    assert_eq!(packet.read_at(1500, &mut middle), 3000);
    assert_eq!(middle, frame[1500..4500]);
    assert_eq!(packet.read_at(9590, &mut middle), 10);
    assert_eq!(packet.read_at(9600, &mut middle), 0);

    packet.prepend(4).unwrap().copy_from_slice(b"tag:");
    packet.append(4).unwrap().copy_from_slice(b"tail");
    assert_eq!(bytes(&packet), [b"tag:".as_slice(), &frame, b"tail"].concat());
    assert!(packet.adj(4) && packet.trim(4));
    assert!(!packet.linearize(), "the first segment is too small");
    assert_eq!(bytes(&packet), frame);

    for segment in packet.segments_mut() {
        segment.reverse();
    }
    let copy = packet.deep_copy(pool).unwrap();
    assert_eq!(bytes(&copy), bytes(&packet));
    for segment in packet.segments_mut() {
        segment.reverse();
    }
    assert_ne!(bytes(&copy), bytes(&packet), "a copy shares no byte");
    assert_eq!(bytes(&packet), frame);

    assert_eq!(pool.in_use(), 10);
    drop((packet, copy));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_pool_with_large_buffers_takes_a_jumbo_frame_whole() {
    let config = MempoolConfig {
        data_room: 9600 + HEADROOM,
        ..MempoolConfig::new("large", 511)
    };
    let pool = Mempool::new(eal(), &config).unwrap();
    assert_eq!(pool.segment_size(), 9600);
    let packet = pool.packet(&pattern(9600)).unwrap();
    assert!(packet.is_contiguous());
    assert_eq!(packet.head(), pattern(9600));
}

#[test]
fn a_chain_is_linearized_where_it_fits() {
    let pool = pool("linear");
    let mut packet = pool.packet(&pattern(100)).unwrap();
    packet.chain(pool.packet(b"and more").unwrap()).unwrap();
    assert_eq!((packet.segment_count(), packet.len()), (2, 108));
    assert!(packet.linearize());
    assert_eq!(packet.segment_count(), 1);
    assert_eq!(packet.head(), [pattern(100).as_slice(), b"and more"].concat());
    assert_eq!(pool.in_use(), 1, "the second segment went back");
}

#[test]
fn a_burst_is_filled_behind_what_it_has_and_freed_at_once_or_one_by_one() {
    let pool = pool("burst");
    let mut burst = ArrayVec::<Mbuf, 8>::new();
    burst.push(pool.packet(&[7]).unwrap());
    burst[0].chain(pool.packet(&[8]).unwrap()).unwrap();
    assert_eq!(pool.alloc_burst(&mut burst), 7);
    assert_eq!(pool.alloc_burst(&mut burst), 0, "a full burst takes no more");
    assert_eq!((burst.len(), burst[0].len(), burst[7].len()), (8, 2, 0));
    assert_eq!(pool.in_use(), 9);
    drop(burst.drain(..3));
    assert_eq!(pool.in_use(), 5);
    free_burst(&mut burst);
    assert_eq!((burst.len(), pool.in_use()), (0, 0));
    free_burst(&mut burst);
    <Mbuf as Packet>::discard(&mut burst);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_ring_passes_packets_on_in_order_and_returns_what_it_cannot_take() {
    let pool = pool("ring");
    let ring = Ring::new(eal(), "order", 8).unwrap();
    assert_eq!((ring.capacity(), ring.len()), (7, 0));
    let mut burst = ArrayVec::<Mbuf, 10>::new();
    for number in 0..10 {
        burst.push(pool.packet(&[number]).unwrap());
    }
    assert_eq!(ring.send(&mut burst), 7);
    assert_eq!(
        burst.iter().map(|packet| packet.head()[0]).collect::<Vec<_>>(),
        [7, 8, 9]
    );
    burst.clear();
    assert_eq!(ring.receive(&mut burst), 7);
    assert_eq!(
        burst.iter().map(|packet| packet.head()[0]).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6]
    );
    assert_eq!(ring.send(&mut burst), 7);
    assert!(burst.is_empty());
    drop(ring);
    assert_eq!(pool.in_use(), 0, "a ring frees what it still holds");
}

#[test]
fn a_channel_carries_a_million_packets_between_two_threads() {
    const COUNT: u32 = 1_000_000;
    let pool = pool("channel");
    let (mut sender, mut receiver) = ring::channel(eal(), "million", 256).unwrap();
    let producer = thread::spawn(move || {
        let mut burst = ArrayVec::<Mbuf, 32>::new();
        let mut next = 0;
        while next < COUNT {
            if let Some(mut packet) = pool.alloc() {
                packet.append(4).unwrap().copy_from_slice(&next.to_be_bytes());
                burst.push(packet);
                next += 1;
            }
            while burst.is_full() || (next == COUNT && !burst.is_empty()) {
                if sender.send(&mut burst) == 0 {
                    thread::yield_now();
                }
            }
        }
    });
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    let mut expected = 0;
    while expected < COUNT {
        if receiver.receive(&mut burst) == 0 {
            thread::yield_now();
        }
        for packet in burst.drain(..) {
            assert_eq!(packet.head(), expected.to_be_bytes());
            expected += 1;
        }
    }
    producer.join().unwrap();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn impossible_rings_are_refused_with_a_next_step() {
    for outcome in [
        Ring::new(eal(), "", 8),
        Ring::new(eal(), "odd", 100),
        Ring::new(eal(), "none", 0),
    ] {
        assert!(outcome.unwrap_err().to_string().contains("To fix it: "));
    }
    let _first = Ring::new(eal(), "twice", 8).unwrap();
    assert_eq!(
        Ring::new(eal(), "twice", 8).unwrap_err(),
        RingError::Exists("twice".into())
    );
}
