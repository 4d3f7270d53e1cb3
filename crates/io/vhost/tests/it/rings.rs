//! Split and packed rings between a test driver and the device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::Ordering;

use crate::driver::{BUFFERS, Burst, Driver, GUEST, HALF, LIMITS, WRITE, empties, frame, plain, with_header};
use millrace_vhost::Features;
use millrace_vhost::ring::{Received, Receiver, Sender, Sent};
use millrace_wire::{Frame, FramePool};

const KINDS: [bool; 2] = [false, true];
const PLACE: u64 = GUEST + BUFFERS;

fn place(id: u32) -> u64 {
    PLACE + 2048 * u64::from(id)
}

fn receiver(driver: &Driver) -> Receiver {
    Receiver::open(&driver.setup(), LIMITS).unwrap()
}

fn sender(driver: &Driver) -> Sender {
    Sender::open(&driver.setup()).unwrap()
}

fn receive(receiver: &mut Receiver, pool: &FramePool) -> (Vec<Vec<u8>>, Received) {
    let mut burst = Burst::new();
    let received = receiver.receive(&mut burst, empties(pool)).unwrap();
    assert_eq!(received.frames, burst.len());
    (
        burst.iter().map(|frame| frame.bytes().to_vec()).collect(),
        received,
    )
}

fn burst(frames: &[&[u8]]) -> Burst {
    frames.iter().map(|bytes| Frame::new(bytes)).collect()
}

fn pool() -> FramePool {
    FramePool::new(64, 2048)
}

#[test]
fn frames_come_in_order_as_often_as_indices_wrap() {
    for (is_packed, len) in [(false, 8), (false, 256), (true, 1), (true, 7), (true, 256)] {
        let mut driver = Driver::from(len, plain(is_packed), if is_packed { 0 } else { 65_000 });
        let (mut receiver, pool) = (receiver(&driver), pool());
        let (mut sent, mut came) = (0, 0);
        while came < 3_000 {
            for _ in 0..5 {
                let at = place(sent % 512);
                let bytes = with_header([0; 12], &frame(sent));
                driver.put(at, &bytes);
                if driver.offer(&[(at, bytes.len() as u32)], 0, false).is_some() {
                    sent += 1;
                }
            }
            for got in receive(&mut receiver, &pool).0 {
                assert_eq!(got, frame(came), "{is_packed} {len}");
                came += 1;
            }
            assert!(driver.all_used().iter().all(|(_, written)| *written == 0));
        }
        assert_eq!(pool.free_len(), 64);
    }
}

#[test]
fn frames_go_in_order_as_often_as_indices_wrap() {
    for (is_packed, len) in [(false, 8), (false, 256), (true, 1), (true, 7), (true, 256)] {
        let mut driver = Driver::from(len, plain(is_packed), if is_packed { 0 } else { 65_000 });
        let mut sender = sender(&driver);
        let (mut sent, mut came, mut places) = (0, 0, std::collections::HashMap::new());
        for round in 0_u32.. {
            for _ in 0..5 {
                let at = place((round * 5) % 512);
                if let Some(id) = driver.offer(&[(at, 300)], WRITE, false) {
                    places.insert(id, at);
                } else {
                    break;
                }
                let mut one = burst(&[&frame(sent)]);
                sender.send(&mut one).unwrap();
                if one.is_empty() {
                    sent += 1;
                }
                for (id, written) in driver.all_used() {
                    let bytes = driver.bytes((places[&id], written));
                    assert_eq!(bytes[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
                    assert_eq!(bytes[12..], frame(came), "{is_packed} {len}");
                    came += 1;
                }
            }
            if came > 3_000 {
                break;
            }
        }
        assert_eq!(sent, came);
    }
}

#[test]
fn headers_and_frames_may_be_in_any_buffers_and_in_tables() {
    let whole = with_header([0; 12], b"a frame in several buffers");
    for is_packed in KINDS {
        for is_indirect in [false, true] {
            for cuts in [
                &[12][..],
                &[1],
                &[11, 13],
                &[5, 12, 30],
                &[0, 0, 38],
                &[38, 38, 38],
            ] {
                let mut driver = Driver::new(8, plain(is_packed));
                let mut receiver = receiver(&driver);
                let (mut buffers, mut from) = (Vec::new(), 0);
                for (number, cut) in (0..).zip(cuts.iter().chain([&whole.len()])) {
                    driver.put(place(number), &whole[from..*cut]);
                    buffers.push((place(number), (*cut - from) as u32));
                    from = *cut;
                }
                for _ in 0..20 {
                    driver.offer(&buffers, 0, is_indirect).unwrap();
                    let (frames, received) = receive(&mut receiver, &pool());
                    assert_eq!(frames, [&whole[12..]], "{is_packed} {is_indirect} {cuts:?}");
                    assert_eq!(received.dropped, 0);
                    assert_eq!(driver.all_used().len(), 1);
                }
            }
        }
    }
}

#[test]
fn plain_frames_and_chains_keep_their_order() {
    for is_packed in KINDS {
        let mut driver = Driver::new(64, plain(is_packed));
        let (mut receiver, pool) = (receiver(&driver), pool());
        let (mut sent, mut came) = (0, 0);
        while came < 2_000 {
            for _ in 0..9 {
                let at = place(sent % 512);
                let bytes = with_header([0; 12], &frame(sent));
                driver.put(at, &bytes);
                let size = bytes.len() as u32;
                let cut = [(at, 12), (at + 12, size - 12)];
                let offered = match sent % 5 {
                    1 => driver.offer(&cut, 0, false),
                    3 => driver.offer(&cut, 0, true),
                    _ => driver.offer(&[(at, size)], 0, false),
                };
                sent += u32::from(offered.is_some());
            }
            for got in receive(&mut receiver, &pool).0 {
                assert_eq!(got, frame(came));
                came += 1;
            }
            driver.all_used();
        }
    }
}

#[test]
fn a_frame_that_is_longer_than_a_buffer_goes_in_several_if_that_was_agreed_upon() {
    let long: Vec<u8> = (0..700_u32).map(|i| i as u8).collect();
    for is_packed in KINDS {
        for is_indirect in [false, true] {
            let mut driver = Driver::new(16, plain(is_packed));
            let mut sender = sender(&driver);
            // Chains of one buffer, of two, and of one.
            for round in 0..30 {
                let first = driver.offer(&[(place(0), 100)], WRITE, is_indirect).unwrap();
                let second = [(place(1), 200), (place(2), 300)];
                let second = driver.offer(&second, WRITE, is_indirect).unwrap();
                let mut burst = burst(&[&long]);
                let sent = sender.send(&mut burst).unwrap();
                assert_eq!(
                    sent,
                    Sent {
                        packets: 0,
                        dropped: 0,
                        needs_call: false
                    }
                );
                assert!(driver.used().is_none(), "there is not enough for it yet");
                let third = driver.offer(&[(place(3), 2000)], WRITE, is_indirect).unwrap();
                assert_eq!(sender.send(&mut burst).unwrap().packets, 1);
                let used = driver.all_used();
                assert_eq!(used, [(first, 100), (second, 500), (third, 112)], "{round}");
                let mut bytes = driver.bytes((place(0), 100));
                for buffer in [(place(1), 200), (place(2), 300), (place(3), 112)] {
                    bytes.extend(driver.bytes(buffer));
                }
                assert_eq!(bytes, with_header([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0], &long));
            }
        }
    }
}

#[test]
fn a_frame_that_nothing_holds_is_dropped_and_takes_no_buffers() {
    for is_packed in KINDS {
        let kind = if is_packed {
            Features::RING_PACKED
        } else {
            Features::NONE
        };
        let mut driver = Driver::new(4, Features::VERSION_1 | kind);
        let mut one_each = sender(&driver);
        driver
            .offer(&[(place(0), 100), (place(1), 100)], WRITE, false)
            .unwrap();
        let mut frames = burst(&[&[1; 189], &[2; 188], &[3; 10]]);
        let sent = one_each.send(&mut frames).unwrap();
        assert_eq!((sent.packets, sent.dropped, frames.len()), (2, 1, 1));
        assert_eq!(driver.all_used()[0].1, 200);
        let mut expected = with_header([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[2; 188]);
        assert_eq!(driver.bytes((place(1), 100)), expected.split_off(100));
        // With mergeable buffers, and longer than all buffers together.
        let mut driver = Driver::new(4, plain(is_packed));
        let mut sender = sender(&driver);
        for number in 0..4 {
            driver.offer(&[(place(number), 100)], WRITE, false).unwrap();
        }
        let mut frames = burst(&[&[1; 389], &[2; 388]]);
        let sent = sender.send(&mut frames).unwrap();
        assert_eq!((sent.packets, sent.dropped), (2, 1));
        assert_eq!(driver.all_used().len(), 4);
    }
}

#[test]
fn the_header_is_shorter_for_drivers_older_than_virtio_1() {
    let mut driver = Driver::new(4, Features::NONE);
    let mut receiver = receiver(&driver);
    driver.put(place(0), &with_header([0; 12], b"frame")[2..]);
    driver.offer(&[(place(0), 15)], 0, false).unwrap();
    assert_eq!(receive(&mut receiver, &pool()).0, [b"frame"]);
    let mut driver = Driver::new(4, Features::NONE);
    let mut sender = sender(&driver);
    driver.offer(&[(place(0), 15)], WRITE, false).unwrap();
    sender.send(&mut burst(&[b"frame"])).unwrap();
    assert_eq!(driver.used().unwrap().1, 15);
    assert_eq!(driver.bytes((place(0), 15)), with_header([0; 12], b"frame")[2..]);
}

#[test]
fn frames_wait_for_packets_and_for_room_and_none_is_lost() {
    for is_packed in KINDS {
        let mut driver = Driver::new(64, plain(is_packed));
        let mut receiver = receiver(&driver);
        let mut sent = 0;
        while driver.free_len() > 2 {
            let at = place(sent);
            let bytes = with_header([0; 12], &frame(sent));
            driver.put(at, &bytes);
            if sent % 4 == 3 {
                let cut = [(at, 13), (at + 13, bytes.len() as u32 - 13)];
                driver.offer(&cut, 0, false).unwrap();
            } else {
                driver.offer(&[(at, bytes.len() as u32)], 0, false).unwrap();
            }
            sent += 1;
        }
        let few = FramePool::new(3, 2048);
        let mut came = 0;
        while came < sent {
            let (frames, received) = receive(&mut receiver, &few);
            for got in frames {
                assert_eq!(got, frame(came));
                came += 1;
            }
            assert!(received.frames == 3 || came == sent);
            assert_eq!(received.is_short, came < sent);
        }
        let (_, received) = receive(&mut receiver, &few);
        assert_eq!(received, Received::default());
        assert_eq!(driver.all_used().len(), sent as usize);
    }
}

#[test]
fn buffers_may_lie_across_regions_that_are_neighbours() {
    let edge = GUEST + HALF;
    for is_packed in KINDS {
        for before in [0, 1, 11, 12, 13, 60] {
            let mut driver = Driver::new(8, plain(is_packed));
            let mut ring = receiver(&driver);
            let bytes = with_header([0; 12], &frame(99));
            driver.put(edge - before, &bytes);
            driver
                .offer(&[(edge - before, bytes.len() as u32)], 0, false)
                .unwrap();
            assert_eq!(receive(&mut ring, &pool()).0, [frame(99)], "{before}");
            let mut driver = Driver::new(8, plain(is_packed));
            let mut ring = sender(&driver);
            driver.offer(&[(edge - before, 500)], WRITE, false).unwrap();
            ring.send(&mut burst(&[&frame(99)])).unwrap();
            let (_, written) = driver.used().unwrap();
            assert_eq!(driver.bytes((edge - before, written))[12..], frame(99));
        }
    }
}

#[test]
fn rings_go_on_where_they_were_left() {
    for is_packed in KINDS {
        let mut driver = Driver::new(8, plain(is_packed));
        let mut ring = receiver(&driver);
        for number in 0..50 {
            let bytes = with_header([0; 12], &frame(number));
            driver.put(place(number), &bytes);
            driver
                .offer(&[(place(number), bytes.len() as u32)], 0, false)
                .unwrap();
            assert_eq!(receive(&mut ring, &pool()).0, [frame(number)]);
            driver.all_used();
            let mut setup = driver.setup();
            setup.base = ring.base();
            ring = Receiver::open(&setup, LIMITS).unwrap();
        }
    }
}

#[test]
fn a_driver_that_sleeps_is_woken_and_others_are_not() {
    for is_packed in KINDS {
        let mut driver = Driver::new(8, plain(is_packed));
        let mut ring = receiver(&driver);
        let flags = |driver: &Driver, is_awake: u16| match is_packed {
            true => driver.events[0]
                .at(0)
                .store(u32::from(is_awake) << 16, Ordering::Relaxed),
            false => driver.available.at(0).store(is_awake, Ordering::Relaxed),
        };
        for is_awake in [0, 1, 0] {
            flags(&driver, is_awake);
            driver.offer(&[(place(0), 20)], 0, false).unwrap();
            assert_eq!(receive(&mut ring, &pool()).1.needs_call, is_awake == 0);
            driver.all_used();
        }
        assert!(!receive(&mut ring, &pool()).1.needs_call, "nothing came");
        let told = if is_packed {
            driver.events[1].at(0).load(Ordering::Relaxed) >> 16
        } else {
            u32::from(driver.device.at(0).load(Ordering::Relaxed))
        };
        assert_eq!(told, 1, "we look by ourselves");
    }
}

#[test]
fn a_driver_that_waits_for_a_buffer_is_woken_behind_that_one_only() {
    for is_packed in KINDS {
        // Bursts of two frames, over several wraps of the ring.
        let mut driver = Driver::new(8, plain(is_packed) | Features::EVENT_IDX);
        let mut ring = receiver(&driver);
        for round in 0..40_u16 {
            // The driver waits for the buffer that is `ahead` buffers after the next one.
            for ahead in 0..4_u16 {
                let at = driver.at;
                let behind = at.0 + ahead;
                if is_packed {
                    let (behind, turn) = if behind >= 8 {
                        (behind - 8, !at.1)
                    } else {
                        (behind, at.1)
                    };
                    let word = u32::from(behind) | u32::from(turn) << 15 | 2 << 16;
                    driver.events[0].at(0).store(word, Ordering::Relaxed);
                } else {
                    driver.available.at(2 + 8).store(behind, Ordering::Relaxed);
                }
                for _ in 0..2 {
                    driver.offer(&[(place(0), 20)], 0, false).unwrap();
                }
                let (frames, received) = receive(&mut ring, &pool());
                assert_eq!(frames.len(), 2);
                assert_eq!(received.needs_call, ahead < 2, "{is_packed} {round} {ahead}");
                driver.all_used();
            }
        }
    }
}

#[test]
fn frames_that_are_empty_or_too_long_are_dropped_and_the_next_are_not() {
    for is_packed in KINDS {
        let mut driver = Driver::new(16, plain(is_packed));
        let mut ring = receiver(&driver);
        driver.put(place(0), &with_header([0; 12], &frame(7)));
        let size = 12 + frame(7).len() as u32;
        for buffers in [
            &[(PLACE, 12)][..],
            &[(PLACE, size)],
            &[(PLACE, 12 + 2049)],
            &[(PLACE, 12), (PLACE + 12, 0)],
            &[(PLACE, 12), (PLACE + 12, 100_000)],
            &[(PLACE, (HALF - 0x20_0000) as u32)],
            &[(PLACE, size)],
            &[(PLACE, 5), (PLACE + 5, size - 5)],
        ] {
            driver.offer(buffers, 0, false).unwrap();
        }
        let (frames, received) = receive(&mut ring, &pool());
        assert_eq!((frames.len(), received.dropped), (3, 5));
        assert!(frames.iter().all(|got| *got == frame(7)));
        assert_eq!(driver.all_used().len(), 8);
    }
}
