//! Rings whose driver writes any value anywhere, while the device receives and sends.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_vhost::Features;
use millrace_vhost::memory::{Memory, MemoryRegion, UnsealedPolicy, View};
use millrace_vhost::ring::{Limits, Receiver, Sender, Setup};
use millrace_wire::{Frame, FramePool, Packet};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

const BURST: usize = 8;
const PACKETS: usize = 24;
const BUFFER: usize = 256;
/// The guest's memory: guest and user addresses of two regions.
const GUEST: u64 = 0x4000;
const USER: u64 = 0x7000_0000;
const HALF: u64 = 0x4000;
/// The addresses of the parts of the ring.
const DRIVER: u64 = 0x1000;
const DEVICE: u64 = 0x2000;

const LIMITS: Limits = Limits {
    frame_size: 1000,
    mtu: 600,
    is_segmented: true,
};

fn memory() -> Arc<Memory> {
    let file: OwnedFd = memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 2 * HALF).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let region = |at| MemoryRegion {
        guest: GUEST + at,
        size: HALF,
        user: USER + at,
        offset: at,
    };
    let regions = [0, HALF].map(|at| (region(at), file.try_clone().unwrap()));
    Arc::new(Memory::open(regions, UnsealedPolicy::Reject).unwrap())
}

/// Returns the negotiated features; the lowest bit selects the ring format.
fn features(bits: u8) -> Features {
    let all = [
        Features::RING_PACKED,
        Features::MRG_RXBUF,
        Features::EVENT_IDX,
        Features::VERSION_1,
        Features::HOST_TSO4 | Features::HOST_TSO6,
        Features::GUEST_CSUM | Features::GUEST_TSO4 | Features::GUEST_TSO6,
    ];
    let chosen = (0..).zip(all).filter(|(bit, _)| bits >> bit & 1 != 0);
    chosen.fold(Features::NONE, |sum, (_, feature)| sum | feature)
}

/// Parses `bytes` as the features, the ring size, the vring base, the direction, and then steps of 8 bytes: operation,
/// a byte, an offset and a number.
pub(crate) fn ring(bytes: &[u8]) {
    let Some(([bits, len, base_low, base_high], mut rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let features = features(*bits);
    let memory = memory();
    let setup = Setup {
        memory: Arc::clone(&memory),
        size: u32::from(*len),
        descriptors: USER,
        driver: USER + DRIVER,
        device: USER + DEVICE,
        base: u32::from(u16::from_le_bytes([*base_low, *base_high])),
        features,
    };
    let (Ok(mut receiver), Ok(mut sender)) = (Receiver::open(&setup, LIMITS), Sender::open(&setup)) else {
        return;
    };
    let view = View::new(memory);
    let put = |at: u64, bytes: &[u8]| {
        if let Ok(slice) = view.slice(GUEST + at % (2 * HALF), bytes.len() as u32) {
            slice.write(bytes);
        }
    };
    let pool = FramePool::new(PACKETS, BUFFER);
    let (mut turn, mut offered) = (true, 0_u16);
    while let Some(([what, value, p0, p1, number @ ..], more)) = rest.split_first_chunk::<8>() {
        rest = more;
        let place = u64::from(u16::from_le_bytes([*p0, *p1]));
        let number = u32::from_le_bytes(*number);
        match what & 7 {
            0 => {
                let mut burst = ArrayVec::<Frame, BURST>::new();
                let empty = |len: usize, burst: &mut ArrayVec<Frame, BURST>| {
                    burst.extend((0..len).map_while(|_| pool.take(&[])));
                };
                let Ok(received) = receiver.receive(&mut burst, empty) else {
                    assert!(burst.is_empty());
                    assert_eq!(pool.free_len(), PACKETS);
                    return;
                };
                assert_eq!(received.frames, burst.len());
                assert!(received.frames + received.dropped <= BURST);
                for packet in &burst {
                    assert!(!packet.is_empty());
                    assert!(packet.len() <= LIMITS.frame_size || packet.segment_size().is_some());
                }
                drop(burst);
                assert_eq!(pool.free_len(), PACKETS);
            }
            1 => {
                let mut burst: ArrayVec<Frame, BURST> = (0..*value % 9)
                    .map(|index| {
                        let size = (number as usize >> index) % 900;
                        Frame::segmented(&vec![*value; size], place as usize % 900)
                    })
                    .collect();
                let len = burst.len();
                let Ok(sent) = sender.send(&mut burst) else {
                    assert_eq!(burst.len(), len);
                    return;
                };
                assert_eq!(sent.packets + burst.len(), len);
                assert!(sent.dropped <= sent.packets);
            }
            // A descriptor that is made available.
            2 | 3 => {
                let (size, flags) = (number as u16, (number >> 16) as u16 & 7);
                let index = if *len == 0 { 0 } else { offered % u16::from(*len) };
                let available = match turn {
                    true => 1 << 7,
                    false => 1 << 15,
                };
                let (low, high) = match features.contains(Features::RING_PACKED) {
                    true => (u16::from(*value), flags | available),
                    false => (flags, u16::from(*value)),
                };
                let word = u64::from(size) | u64::from(low) << 32 | u64::from(high) << 48;
                put(16 * u64::from(index), &(GUEST + place).to_le_bytes());
                put(16 * u64::from(index) + 8, &word.to_le_bytes());
                offered = offered.wrapping_add(1);
                turn ^= index + 1 == u16::from(*len);
                if !features.contains(Features::RING_PACKED) {
                    put(DRIVER + 4 + 2 * u64::from(index), &index.to_le_bytes());
                    put(DRIVER + 2, &offered.to_le_bytes());
                }
            }
            4 => put(DRIVER + u64::from(*value & 0x3e), &(number as u16).to_le_bytes()),
            5 => put(
                16 * (place % 64) + u64::from(*value & 14),
                &(number as u16).to_le_bytes(),
            ),
            _ => put(place, &number.to_le_bytes()),
        }
    }
}
