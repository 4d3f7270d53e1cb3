//! Memory that this process allocates and shares with a device: the driver's side.
//!
//! # Argument
//! The first part holds atomics, which both sides access ([`AtomicArray`]); the second part holds bytes that
//! are borrowed. Borrowing needs `&mut self`, and arrays are confined to the first part, so no two references
//! in this process overlap. The device is another process and must write to a buffer only while the device
//! owns that buffer. **This process trusts the device to do so**: it serves one switch, and runs on that
//! switch's behalf.

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use millrace_shared_memory::prefetch_to_write;
use rustix::io::Errno;

use super::{AtomicArray, Memory, MemoryRegion, Shared, UnsealedPolicy};
use crate::MessageError;

/// Memory that this process allocated; initially zero.
#[derive(Debug)]
pub struct OwnMemory {
    memory: Arc<Memory>,
    file: OwnedFd,
    start: NonNull<u8>,
    region: MemoryRegion,
    /// Offset at which the atomics end and the bytes begin.
    numbers: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for OwnMemory {}

/// The guest address of the memory's first byte.
const BASE: u64 = 1 << 32;

impl OwnMemory {
    /// Allocates `numbers` bytes for atomics, and `bytes` bytes for borrowing.
    ///
    /// # Errors
    /// [`MessageError::Map`] with the error of the system call.
    pub fn create(numbers: usize, bytes: usize) -> Result<OwnMemory, MessageError> {
        let failed = |error| MessageError::Map { index: 0, error };
        let size = numbers
            .checked_add(bytes)
            .and_then(|size| size.checked_next_multiple_of(1 << 16));
        let size = size.ok_or(failed(Errno::NOMEM))? as u64;
        let file = millrace_shared_memory::create("virtio", size).map_err(failed)?;
        let region = MemoryRegion {
            guest: BASE,
            size,
            user: BASE,
            offset: 0,
        };
        let again = file.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let memory = Memory::open([(region, again)], UnsealedPolicy::Reject)?;
        let start = memory.regions.first().ok_or(failed(Errno::NOMEM))?.start;
        Ok(OwnMemory {
            memory: Arc::new(memory),
            file,
            start,
            region,
            numbers,
        })
    }

    /// Returns the region to announce to the device.
    #[must_use]
    pub fn region(&self) -> MemoryRegion {
        self.region
    }

    /// Returns the guest address of the byte at an offset.
    #[must_use]
    pub fn address(&self, at: usize) -> u64 {
        self.region.guest + at as u64
    }

    /// Returns `len` atomics at an offset, or `None` if they exceed the part for atomics or are not aligned.
    #[must_use]
    pub fn array<T: Shared>(&self, at: usize, len: u16) -> Option<AtomicArray<T>> {
        let end = size_of::<T>().checked_mul(len.into())?.checked_add(at)?;
        (end <= self.numbers).then(|| self.memory.array(self.address(at), len))?
    }

    /// Borrows `size` bytes at an offset, or returns `None` if they are not all in the part for bytes.
    #[inline]
    pub fn borrow(&mut self, at: usize, size: usize) -> Option<&mut [u8]> {
        let end = at.checked_add(size)?;
        if at < self.numbers || end as u64 > self.region.size {
            return None;
        }
        // SAFETY: the offset is less than the region's size, and so inside its mapping, which `self` holds.
        let start = unsafe { self.start.add(at) };
        // SAFETY: `size` bytes from `start` are mapped; by the module's argument, no other reference to them exists.
        Some(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), size) })
    }

    /// Prefetches the cache line of the byte at an offset, for a write.
    #[inline(always)]
    pub fn prefetch_to_write(&self, at: usize) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(at));
    }
}

impl AsFd for OwnMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU16;

    use super::*;

    #[test]
    fn numbers_and_bytes_are_apart() {
        let mut own = OwnMemory::create(128, 1000).unwrap();
        assert!(own.array::<AtomicU16>(0, 64).is_some());
        assert!(own.array::<AtomicU16>(2, 64).is_none());
        assert!(own.array::<AtomicU16>(1, 1).is_none());
        assert!(own.borrow(127, 1).is_none());
        assert_eq!(own.borrow(128, 1000).unwrap(), [0; 1000]);
        assert!(own.borrow(usize::MAX, 2).is_none());
        assert!(own.borrow(1 << 16, 1).is_none());
    }
}
