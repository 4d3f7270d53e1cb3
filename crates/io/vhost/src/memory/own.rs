//! Memory of our own that a device shares: the driver's side.
//!
//! # The argument
//! The first part holds numbers, which both sides read and write as atomics ([`Array`]); bytes of the other part are lent.
//! Lending is by `&mut self`, and arrays are of the first part alone, so that nobody in this process refers to the same
//! bytes. The device is another process: it writes to a buffer only while it has it. **That is believed**, as it
//! is of the switch by every function of its own: what runs here serves one switch, and believes it.

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use super::{Array, Memory, Shared, Span, Unsealed, place};
use crate::Refusal;

/// Memory that this process has made, all zeros at first.
#[derive(Debug)]
pub struct Own {
    memory: Arc<Memory>,
    file: OwnedFd,
    start: NonNull<u8>,
    span: Span,
    /// Where numbers end, and bytes begin.
    numbers: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Own {}

/// Where the device is told that the memory begins.
const BASE: u64 = 1 << 32;

impl Own {
    /// `numbers` bytes for numbers, and `bytes` to be lent.
    ///
    /// # Errors
    /// [`Refusal::Map`], with what the kernel says.
    pub fn create(numbers: usize, bytes: usize) -> Result<Own, Refusal> {
        let failed = |error| Refusal::Map { index: 0, error };
        let size = numbers
            .checked_add(bytes)
            .and_then(|size| size.checked_next_multiple_of(1 << 16));
        let size = size.ok_or(failed(Errno::NOMEM))? as u64;
        let file = memfd_create("virtio", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(failed)?;
        ftruncate(&file, size).map_err(failed)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(failed)?;
        let span = Span {
            guest: BASE,
            size,
            user: BASE,
            offset: 0,
        };
        let again = file.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let memory = Memory::open([(span, again)], Unsealed::Refuse)?;
        let start = memory.regions.first().ok_or(failed(Errno::NOMEM))?.start;
        Ok(Own {
            memory: Arc::new(memory),
            file,
            start,
            span,
            numbers,
        })
    }

    /// What the device is told of it.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where the device finds a byte.
    #[must_use]
    pub fn address(&self, at: usize) -> u64 {
        self.span.guest + at as u64
    }

    /// So many numbers, or groups of them; none if they are not within the part that is for them, or not aligned.
    #[must_use]
    pub fn array<T: Shared>(&self, at: usize, len: u16) -> Option<Array<T>> {
        let end = size_of::<T>().checked_mul(len.into())?.checked_add(at)?;
        (end <= self.numbers).then(|| self.memory.array(self.address(at), len))?
    }

    /// Bytes behind the numbers; none if they are not all there.
    #[inline]
    pub fn lend(&mut self, at: usize, size: usize) -> Option<&mut [u8]> {
        let end = at.checked_add(size)?;
        if at < self.numbers || end as u64 > self.span.size {
            return None;
        }
        // SAFETY: less than the region's size, and so within its mapping, which `self` holds.
        let start = unsafe { self.start.add(at) };
        // SAFETY: so many bytes from there on are mapped; as the module says, nobody else refers to them.
        Some(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), size) })
    }

    /// Begins to load the line of a byte, to be written to.
    #[inline(always)]
    pub fn prefetch_to_write(&self, at: usize) {
        place::prefetch_to_write(self.start.as_ptr().wrapping_add(at));
    }
}

impl AsFd for Own {
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
        let mut own = Own::create(128, 1000).unwrap();
        assert!(own.array::<AtomicU16>(0, 64).is_some());
        assert!(own.array::<AtomicU16>(2, 64).is_none());
        assert!(own.array::<AtomicU16>(1, 1).is_none());
        assert!(own.lend(127, 1).is_none());
        assert_eq!(own.lend(128, 1000).unwrap(), [0; 1000]);
        assert!(own.lend(usize::MAX, 2).is_none());
        assert!(own.lend(1 << 16, 1).is_none());
    }
}
