//! A split ring from the driver's side (virtio 1.2, section 2.7), in which each descriptor keeps its position.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::{DeviceViolation, DriverError};
use crate::memory::{AtomicArray, OwnMemory};
use crate::message::Addresses;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`: the side that sets it polls.
const POLLED: u16 = 1;
/// The number of used elements in a cache line.
const USED_IN_LINE: u16 = 8;
/// Positions of the flags and of the index, in 16-bit words before the ring.
const FLAGS: u16 = 0;
const INDEX: u16 = 1;
/// Size of a cache line in bytes.
const LINE: usize = 64;

/// A used element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Used {
    /// The index of the descriptor.
    pub(super) id: u32,
    /// The number of bytes written by the device, including the header.
    pub(super) size: u32,
}

/// A ring. Entry `n` of the available ring is always descriptor `n`, so it is written once.
#[derive(Debug)]
pub(super) struct Ring {
    len: u16,
    table: AtomicArray<[AtomicU64; 2]>,
    available: AtomicArray<AtomicU16>,
    used: AtomicArray<[AtomicU32; 2]>,
    /// Flags and index of the used ring.
    device: AtomicArray<AtomicU16>,
    addresses: Addresses,
}

/// Offsets of the parts of a ring, in bytes.
struct Parts {
    descriptors: usize,
    driver: usize,
    device: usize,
    end: usize,
}

/// Returns the offsets for a ring of `len` descriptors at offset `at`. No two parts share a cache line.
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

/// Returns the size of a ring of `len` descriptors, in bytes.
pub(super) fn size(len: u16) -> usize {
    parts(0, len).end
}

impl Ring {
    /// Makes a ring at offset `at`, a multiple of the cache line; `len` is a power of two.
    pub(super) fn new(own: &OwnMemory, at: usize, len: u16) -> Result<Ring, DriverError> {
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
        for entry in 0..len {
            ring.available.at(2 + entry).store(entry, Ordering::Relaxed);
        }
        Ok(ring)
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns the ring entry of a free-running index.
    #[inline(always)]
    pub(super) fn entry(&self, number: u16) -> u16 {
        number & (self.len - 1)
    }

    /// Makes a descriptor refer to a buffer. Words that are already right are not written: both processors can then
    /// keep the line in the shared state.
    #[inline(always)]
    pub(super) fn describe(&self, entry: u16, address: u64, size: u32, flags: u16) {
        let rest = u64::from(size) | u64::from(flags) << 32;
        for (word, said) in self.table.at(entry).iter().zip([address, rest]) {
            if word.load(Ordering::Relaxed) != said {
                word.store(said, Ordering::Relaxed);
            }
        }
    }

    /// Makes all entries before the index `number` available to the device.
    #[inline(always)]
    pub(super) fn offer(&self, number: u16) {
        self.available.at(INDEX).store(number, Ordering::Release);
    }

    /// Returns the used index, which may be at most `lent` after `done`.
    #[inline(always)]
    pub(super) fn poll_index(&self, done: u16, lent: u16) -> Result<u16, DeviceViolation> {
        let now = self.device.at(INDEX).load(Ordering::Acquire);
        if now.wrapping_sub(done) > lent {
            return Err(DeviceViolation::Index {
                from: done,
                to: now,
                lent,
            });
        }
        Ok(now)
    }

    /// Returns the used element at an index.
    #[inline(always)]
    pub(super) fn used(&self, number: u16) -> Used {
        let [id, size] = self.used.at(self.entry(number));
        Used {
            id: id.load(Ordering::Relaxed),
            size: size.load(Ordering::Relaxed),
        }
    }

    /// Prefetches `count` used elements from an index.
    #[inline(always)]
    pub(super) fn prefetch_entries(&self, number: u16, count: u16) {
        for behind in (0..count).step_by(USED_IN_LINE.into()) {
            self.used.prefetch(self.entry(number.wrapping_add(behind)));
        }
    }

    /// Returns true if the device wants a kick. A fence must separate this call from [`Self::offer`].
    #[inline(always)]
    pub(super) fn wants_kick(&self) -> bool {
        self.device.at(FLAGS).load(Ordering::Relaxed) & POLLED == 0
    }
}
