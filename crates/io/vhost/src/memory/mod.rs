//! Memory that a driver shares with the switch, or that the switch's own driver shares with a device ([`OwnMemory`]):
//! the only unsafe code of the crate.
//!
//! # Guarantee
//! Every access is aligned and inside a mapping, whatever the driver writes, and no access faults.
//!
//! # Argument
//! * **Inside**: [`View::slice`] makes a [`GuestSlice`], and [`Memory::array`] makes an [`AtomicArray`]. Both
//!   compare the end with the size of the region, in 64 bits and without wrap-around; the file had that size
//!   when it was mapped. Both keep the memory mapped: an array owns a reference to the memory, and a slice
//!   borrows a view that owns one.
//! * **No fault**: the file is in tmpfs or hugetlbfs (never on a disk or in FUSE, where a page fault can take
//!   forever), and sealed against shrinking. If the process handles SIGBUS ([`UnsealedPolicy::Accept`]), the file may
//!   be unsealed, or of huge pages.
//! * **Concurrent writes**: numbers are atomics. Bytes of the driver's buffers are copied through raw pointers, and no
//!   reference to them exists; the driver may write during the copy, and so may another thread of the switch if the
//!   driver names one buffer twice. The copy is then a mixture, which is untrusted like any other packet.

#![allow(unsafe_code)]

mod array;
mod own;
mod slice;

use core::cell::Cell;
use core::ptr::NonNull;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use millrace_shared_memory::UnsealedPolicy;
use millrace_shared_memory::{Mapping, MemoryFile, NotMemoryFile};
use rustix::io::Errno;

pub use array::{AtomicArray, Shared};
pub use own::OwnMemory;
pub use slice::GuestSlice;

use crate::error::{MessageError, ProtocolViolation};
pub use crate::limits::REGIONS_MAX;

/// A memory region of a message (`VHOST_USER_SET_MEM_TABLE`, `VHOST_USER_ADD_MEM_REG`). All fields are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// The guest address, by which descriptors name buffers.
    pub guest: u64,
    /// The size of the region.
    pub size: u64,
    /// The address in the front-end's address space, by which messages name rings.
    pub user: u64,
    /// The offset of the region in its file.
    pub offset: u64,
}

/// A mapped region: `size` bytes from `start` are mapped.
#[derive(Clone, Copy, Debug)]
struct Region {
    guest: u64,
    size: u64,
    user: u64,
    start: NonNull<u8>,
}

/// All memory that one driver shares.
#[derive(Debug)]
pub struct Memory {
    regions: Vec<Region>,
    /// The mappings that contain the regions.
    mappings: Vec<Mapping>,
    /// The files that can shrink: region index, required size in bytes, descriptor.
    unsealed: Vec<(u16, u64, OwnedFd)>,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is accessed only as the module's argument says.
unsafe impl Send for Memory {}
// SAFETY: as above: atomics, and copies of bytes that several threads may make at the same time.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the regions that a driver shares.
    ///
    /// # Errors
    /// [`MessageError`] for the first invalid region.
    pub fn open(
        regions: impl IntoIterator<Item = (MemoryRegion, OwnedFd)>,
        unsealed: UnsealedPolicy,
    ) -> Result<Memory, MessageError> {
        let mut memory = Memory {
            regions: Vec::new(),
            mappings: Vec::new(),
            unsealed: Vec::new(),
        };
        for (index, (region, file)) in (0..).zip(regions) {
            if usize::from(index) == REGIONS_MAX {
                return Err(MessageError::Regions);
            }
            memory.map(index, region, file, unsealed)?;
        }
        Ok(memory)
    }

    fn map(
        &mut self,
        index: u16,
        region: MemoryRegion,
        file: OwnedFd,
        unsealed: UnsealedPolicy,
    ) -> Result<(), MessageError> {
        let failed = |error| MessageError::Map { index, error };
        let MemoryRegion {
            guest,
            size,
            user,
            offset,
        } = region;
        let ends = [guest, user, offset].map(|begin| begin.checked_add(size));
        let [Some(_), Some(_), Some(end)] = ends else {
            return Err(MessageError::RegionSize { index, guest, size });
        };
        if size == 0 {
            return Err(MessageError::RegionSize { index, guest, size });
        }
        let found = MemoryFile::inspect(&file).map_err(|reason| match reason {
            NotMemoryFile::NotRegular | NotMemoryFile::OtherFileSystem => MessageError::NotMemory { index },
            NotMemoryFile::Failed(error) => failed(error),
        })?;
        if found.can_shrink && unsealed == UnsealedPolicy::Reject {
            return Err(MessageError::NotSealed { index });
        }
        if found.size < end {
            return Err(MessageError::FileSize {
                index,
                offset,
                size,
                found: found.size,
            });
        }
        // Huge pages are mapped and unmapped as whole pages. The rounded part extends at most past the end of the
        // file, and is not accessed.
        let begin = offset - offset % found.page_size;
        let whole = (end - begin).checked_next_multiple_of(found.page_size);
        let bytes = whole.and_then(|bytes| isize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| failed(Errno::NOMEM))?.unsigned_abs();
        let mapping = Mapping::new(&file, begin, bytes).map_err(failed)?;
        // SAFETY: the offset is less than one page, and the mapping has at least one.
        let start = unsafe { mapping.start().add((offset - begin) as usize) };
        self.regions.push(Region {
            guest,
            size,
            user,
            start,
        });
        self.mappings.push(mapping);
        if found.can_shrink {
            self.unsealed.push((index, end, file));
        }
        Ok(())
    }

    /// Returns true if the owner can shrink some of the memory; the caller then calls [`Self::check`] from time to
    /// time.
    #[must_use]
    pub fn can_shrink(&self) -> bool {
        !self.unsealed.is_empty()
    }

    /// Checks that all files still have the required size.
    ///
    /// # Errors
    /// [`MessageError::Shrunk`]
    pub fn check(&self) -> Result<(), MessageError> {
        for (index, size, file) in &self.unsealed {
            if MemoryFile::size_of(file).is_ok_and(|found| found < *size) {
                return Err(MessageError::Shrunk { index: *index });
            }
        }
        Ok(())
    }
}

/// One ring's view of the memory. The view caches the region of the last buffer, because the next buffer is usually in
/// the same region.
#[derive(Debug)]
pub struct View {
    memory: Arc<Memory>,
    last: Cell<Region>,
}

// SAFETY: the view holds the memory that it points into, and any thread may access that.
unsafe impl Send for View {}

impl View {
    /// Returns a view of the memory. In a memory without regions, every access is an error.
    #[must_use]
    pub fn new(memory: Arc<Memory>) -> View {
        let nothing = Region {
            guest: 0,
            size: 0,
            user: 0,
            start: NonNull::dangling(),
        };
        let last = Cell::new(memory.regions.first().copied().unwrap_or(nothing));
        View { memory, last }
    }

    /// Returns the memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns the buffer of `size` bytes at the guest address `guest`. The slice is shorter only if the buffer
    /// continues in the next region.
    ///
    /// # Errors
    /// [`ProtocolViolation::Outside`] if the first byte is in no region.
    #[inline(always)]
    pub fn slice(&self, guest: u64, size: u32) -> Result<GuestSlice<'_>, ProtocolViolation> {
        let last = self.last.get();
        let at = guest.wrapping_sub(last.guest);
        // The sum does not wrap: `size` has 32 bits, and the region ends before 2^64.
        if at < last.size && u64::from(size) <= last.size - at {
            // SAFETY: the offset is less than the region's size, and so inside its mapping, which `self` holds.
            let start = unsafe { last.start.add(at as usize) };
            // SAFETY: `size` bytes from `start` are inside the region, as just checked.
            return Ok(unsafe { GuestSlice::new(start, size) });
        }
        self.find(guest, size)
    }

    #[cold]
    fn find(&self, guest: u64, size: u32) -> Result<GuestSlice<'_>, ProtocolViolation> {
        let found = self
            .memory
            .regions
            .iter()
            .find(|region| guest.wrapping_sub(region.guest) < region.size);
        let Some(region) = found else {
            return Err(ProtocolViolation::Outside { guest, size });
        };
        self.last.set(*region);
        let at = guest - region.guest;
        let size = u64::from(size).min(region.size - at) as u32;
        // SAFETY: the offset is less than the region's size, and so inside its mapping, which `self` holds.
        let start = unsafe { region.start.add(at as usize) };
        // SAFETY: `size` bytes from `start` are inside the region, as just limited.
        Ok(unsafe { GuestSlice::new(start, size) })
    }
}
