//! A split ring from the driver's side (virtio 1.2, section 2.7), each descriptor in its place for ever.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::{DriverError, Fault};
use crate::memory::{Array, Own};
use crate::message::Addresses;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`: who says so looks by itself.
const POLLED: u16 = 1;
/// How many elements of the used ring fit into 64 bytes.
const USED_IN_LINE: u16 = 8;
/// Where the flags are in front of a ring, and the index.
const FLAGS: u16 = 0;
const INDEX: u16 = 1;
/// Bytes of a line of the cache.
const LINE: usize = 64;

/// What the device has given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Used {
    /// Which descriptor.
    pub(super) id: u32,
    /// Bytes that were written, header included.
    pub(super) size: u32,
}

/// A ring. Descriptor `n` is always at place `n` of the ring of what is available, which is written once.
#[derive(Debug)]
pub(super) struct Ring {
    len: u16,
    table: Array<[AtomicU64; 2]>,
    available: Array<AtomicU16>,
    used: Array<[AtomicU32; 2]>,
    /// Flags and index of the device.
    device: Array<AtomicU16>,
    addresses: Addresses,
}

/// Where parts of a ring begin.
struct Parts {
    descriptors: usize,
    driver: usize,
    device: usize,
    end: usize,
}

/// A ring of so many descriptors that begins at `at`: no two parts share a line.
fn parts(at: usize, len: u16) -> Parts {
    let len = usize::from(len);
    let driver = at + 16 * len;
    let device = driver + (6 + 2 * len).next_multiple_of(LINE);
    Parts {
        descriptors: at,
        driver,
        device,
        end: device + (6 + 8 * len).next_multiple_of(LINE),
    }
}

/// Bytes of a ring of so many descriptors.
pub(super) fn size(len: u16) -> usize {
    parts(0, len).end
}

impl Ring {
    /// A ring at a multiple of a line; `len` is a power of two.
    pub(super) fn new(own: &Own, at: usize, len: u16) -> Result<Ring, DriverError> {
        let parts = parts(at, len);
        let missing = || DriverError::Length { len };
        let ring = Ring {
            len,
            table: own.array(parts.descriptors, len).ok_or_else(missing)?,
            available: own.array(parts.driver, 2 + len).ok_or_else(missing)?,
            device: own.array(parts.device, 2).ok_or_else(missing)?,
            used: own.array(parts.device + 4, len).ok_or_else(missing)?,
            addresses: Addresses {
                descriptors: own.address(parts.descriptors),
                driver: own.address(parts.driver),
                device: own.address(parts.device),
            },
        };
        ring.available.at(FLAGS).store(POLLED, Ordering::Relaxed);
        for place in 0..len {
            ring.available.at(2 + place).store(place, Ordering::Relaxed);
        }
        Ok(ring)
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The place of something that is counted.
    #[inline(always)]
    pub(super) fn place(&self, number: u16) -> u16 {
        number & (self.len - 1)
    }

    /// Has a descriptor name a buffer. What it says already is not written: the device has read it, and both processors
    /// keep a line that nobody writes to.
    #[inline(always)]
    pub(super) fn describe(&self, place: u16, address: u64, size: u32, flags: u16) {
        let rest = u64::from(size) | u64::from(flags) << 32;
        for (word, said) in self.table.at(place).iter().zip([address, rest]) {
            if word.load(Ordering::Relaxed) != said {
                word.store(said, Ordering::Relaxed);
            }
        }
    }

    /// Shows the device all up to a number.
    #[inline(always)]
    pub(super) fn offer(&self, number: u16) {
        self.available.at(INDEX).store(number, Ordering::Release);
    }

    /// Up to where the device has given back what it had from `done` on, of `lent` at most.
    #[inline(always)]
    pub(super) fn look(&self, done: u16, lent: u16) -> Result<u16, Fault> {
        let now = self.device.at(INDEX).load(Ordering::Acquire);
        if now.wrapping_sub(done) > lent {
            return Err(Fault::Index {
                from: done,
                to: now,
                lent,
            });
        }
        Ok(now)
    }

    /// What was given back under a number.
    #[inline(always)]
    pub(super) fn used(&self, number: u16) -> Used {
        let [id, size] = self.used.at(self.place(number));
        Used {
            id: id.load(Ordering::Relaxed),
            size: size.load(Ordering::Relaxed),
        }
    }

    /// Begins to load what was given back under so many numbers.
    #[inline(always)]
    pub(super) fn ask_for(&self, number: u16, count: u16) {
        for behind in (0..count).step_by(USED_IN_LINE.into()) {
            self.used.prefetch(self.place(number.wrapping_add(behind)));
        }
    }

    /// Whether the device wants to be woken: to be asked behind a fence behind [`Self::offer`].
    #[inline(always)]
    pub(super) fn is_asleep(&self) -> bool {
        self.device.at(FLAGS).load(Ordering::Relaxed) & POLLED == 0
    }
}
