//! Property: whatever a conforming driver does, frames pass unchanged, in order, and exactly once, as through a queue.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{HashMap, VecDeque};

use crate::driver::{
    BUFFERS, Buffer, Burst, Driver, GUEST, HALF, LIMITS, WRITE, empties, plain, with_header,
};
use millrace_vhost::Features;
use millrace_vhost::ring::{Limits, Receiver, Sender};
use millrace_wire::{Frame, FramePool};
use proptest::collection::vec;
use proptest::prelude::*;

const SEGMENTED: Limits = Limits {
    frame_size: 5000,
    is_segmented: true,
    ..LIMITS
};

/// The actions of a case.
#[derive(Clone, Debug)]
enum Step {
    /// The driver makes a chain available, with buffers of these sizes.
    Offer { sizes: Vec<u16>, is_indirect: bool },
    /// The device receives or sends up to this many packets.
    Move { packets: usize },
    /// The driver reads the used ring.
    Look,
    /// The device closes the ring and opens it again.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (vec(prop_oneof![0..40_u16, 0..1600_u16], 1..6), any::<bool>())
            .prop_map(|(sizes, is_indirect)| Step::Offer { sizes, is_indirect }),
        6 => (0..32_usize).prop_map(|packets| Step::Move { packets }),
        4 => Just(Step::Look),
        1 => Just(Step::Reopen),
    ]
}

fn features() -> impl Strategy<Value = (u16, Features)> {
    let any = (any::<bool>(), any::<bool>(), any::<bool>(), 0..7_u32, 1..100_u16);
    any.prop_map(|(is_packed, is_mergeable, has_events, log2, len)| {
        let mut features = plain(is_packed);
        if !is_mergeable {
            features = Features::from_bits(features.bits() & !Features::MRG_RXBUF.bits());
        }
        if has_events {
            features = features | Features::EVENT_IDX;
        }
        (if is_packed { len } else { 1 << log2 }, features)
    })
}

/// Chooses addresses for the buffers of the next chain. Some buffers cross the boundary of two regions.
struct Places(u64);

impl Places {
    fn next(&mut self, sizes: &[u16]) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        for size in sizes {
            if self.0 + u64::from(*size) > 2 * HALF {
                self.0 = BUFFERS;
            }
            buffers.push((GUEST + self.0, u32::from(*size)));
            self.0 += u64::from(*size) + 3;
        }
        buffers
    }
}

fn bytes(number: u32, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at as u32 ^ number) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_a_driver_sends_comes(
        (len, features) in features(),
        is_segmented in any::<bool>(),
        buffers in 4..40_usize,
        steps in vec(step(), 1..120),
    ) {
        let limits = if is_segmented { SEGMENTED } else { LIMITS };
        let mut driver = Driver::new(len, features);
        let mut ring = Receiver::open(&driver.setup(), limits).unwrap();
        let pool = FramePool::new(buffers, 2048);
        let mut places = Places(HALF - 9000);
        let (mut number, mut waiting, mut dropped, mut offered, mut used) = (0, VecDeque::new(), 0, 0, 0);
        let mut burst = Burst::new();
        for step in steps {
            match step {
                Step::Offer { sizes, is_indirect } => {
                    let whole: usize = sizes.iter().map(|size| usize::from(*size)).sum();
                    if whole < 12 {
                        continue;
                    }
                    let chain = places.next(&sizes);
                    let frame = bytes(number, whole - 12);
                    let mut rest = &with_header([0; 12], &frame)[..];
                    for (guest, size) in &chain {
                        let (part, behind) = rest.split_at(*size as usize);
                        driver.put(*guest, part);
                        rest = behind;
                    }
                    if driver.offer(&chain, 0, is_indirect).is_some() {
                        number += 1;
                        offered += 1;
                        waiting.push_back(frame);
                    }
                }
                Step::Move { packets } => {
                    while burst.len() < 32 - packets {
                        burst.push(Frame::new(&[]));
                    }
                    let before = burst.len();
                    let received = ring.receive(&mut burst, empties(&pool)).unwrap();
                    prop_assert_eq!(received.frames, burst.len() - before);
                    dropped += received.dropped;
                    for got in burst.drain(..).skip(before) {
                        loop {
                            let sent = waiting.pop_front().unwrap();
                            if got.bytes() == sent {
                                break;
                            }
                            prop_assert!(sent.is_empty() || sent.len() > limits.frame_size);
                            dropped -= 1;
                        }
                    }
                }
                Step::Look => {
                    let all = driver.all_used();
                    prop_assert!(all.iter().all(|(_, written)| *written == 0));
                    used += all.len();
                }
                Step::Reopen => {
                    let mut setup = driver.setup();
                    setup.base = ring.base();
                    ring = Receiver::open(&setup, limits).unwrap();
                }
            }
        }
        while waiting.len() > dropped {
            let received = ring.receive(&mut burst, empties(&pool)).unwrap();
            dropped += received.dropped;
            for got in burst.drain(..) {
                while waiting.pop_front().unwrap() != got.bytes() {
                    dropped -= 1;
                }
            }
            used += driver.all_used().len();
        }
        prop_assert!(waiting.iter().all(|frame| frame.is_empty() || frame.len() > limits.frame_size));
        used += driver.all_used().len();
        prop_assert_eq!(used, offered);
        prop_assert_eq!(pool.free_len(), buffers);
    }

    #[test]
    fn what_we_send_a_driver_gets(
        (len, features) in features(),
        sizes in vec(prop_oneof![0..60_usize, 0..4000_usize], 1..50),
        steps in vec(step(), 1..120),
    ) {
        let is_mergeable = features.contains(Features::MRG_RXBUF);
        let mut driver = Driver::new(len, features);
        let mut ring = Sender::open(&driver.setup()).unwrap();
        let mut places = Places(HALF - 9000);
        let (mut chains, mut number) = (HashMap::new(), 0);
        // Frames that are still in the ring, and the rest of a frame whose first chains have arrived.
        let (mut gone, mut dropped, mut partly) = (VecDeque::new(), 0, Vec::new());
        let mut left = 0;
        for step in steps {
            match step {
                Step::Offer { mut sizes, is_indirect } => {
                    sizes[0] += 12;
                    let buffers = places.next(&sizes);
                    if let Some(id) = driver.offer(&buffers, WRITE, is_indirect) {
                        chains.insert(id, buffers);
                    }
                }
                Step::Move { packets } => {
                    let mut burst = Burst::new();
                    let mut frames = Vec::new();
                    for _ in 0..packets {
                        let frame = bytes(number, sizes[number as usize % sizes.len()]);
                        number += 1;
                        burst.push(Frame::segmented(&frame, frame.len() / 2 * usize::from(number % 2 == 0) + 60));
                        frames.push(frame);
                    }
                    let sent = ring.send(&mut burst).unwrap();
                    prop_assert_eq!(sent.packets + burst.len(), packets);
                    for (frame, rest) in frames[sent.packets..].iter().zip(&burst) {
                        prop_assert_eq!(&frame[..], rest.bytes());
                    }
                    dropped += sent.dropped;
                    gone.extend(frames.drain(..sent.packets));
                }
                Step::Look => {
                    for (id, written) in driver.all_used() {
                        let mut bytes = Vec::new();
                        for (guest, size) in chains.remove(&id).unwrap() {
                            let part = size.min(written - bytes.len() as u32);
                            bytes.extend(driver.bytes((guest, part)));
                        }
                        prop_assert_eq!(bytes.len(), written as usize);
                        if left == 0 {
                            prop_assert_eq!(&bytes[..10], &[0; 10]);
                            left = u16::from_le_bytes([bytes[10], bytes[11]]);
                            prop_assert!(left == 1 || left > 1 && is_mergeable);
                            bytes.drain(..12);
                        }
                        partly.extend(bytes);
                        left -= 1;
                        if left == 0 {
                            loop {
                                let went = gone.pop_front().unwrap();
                                if went == partly {
                                    break;
                                }
                                prop_assert!(dropped > 0);
                                dropped -= 1;
                            }
                            partly.clear();
                        }
                    }
                }
                Step::Reopen => {
                    let mut setup = driver.setup();
                    setup.base = ring.base();
                    ring = Sender::open(&setup).unwrap();
                }
            }
        }
    }
}
