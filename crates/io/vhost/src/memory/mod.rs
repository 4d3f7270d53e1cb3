//! Memory that a driver shares with us, or that we share with a device ([`Own`]): the only unsafe code of the crate.
//!
//! # The promise
//! Every access is within a mapping and aligned, whatever the driver has written, and none faults.
//!
//! # The argument
//! * **Within**: a [`Place`] is made by [`View::place`], an [`Array`] by [`Memory::array`]. Both compare where it ends with
//!   the size of the region in which it begins, in 64 bits and so that nothing wraps; the file was long enough when it was
//!   mapped. Both keep the memory mapped: an array holds it, a place borrows the view that does.
//! * **No fault**: a file is one of memory (never of a disk or of a file system in some process, where a page can take for
//!   ever), sealed against becoming shorter. Where the process bears a SIGBUS ([`Unsealed::Bear`]), it may be
//!   unsealed, or of huge pages.
//! * **Others write**: numbers are atomics. Bytes of a driver's are copied in and out by raw pointers, and no reference to
//!   them is ever made; the driver, or another thread of ours that the driver sends to the same place, may write while they are
//!   copied. The copy then holds some mixture, which is a packet like any other that came from outside.

#![allow(unsafe_code)]

mod array;
mod own;
mod place;

use core::cell::Cell;
use core::ptr::NonNull;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

pub use array::{Array, Shared};
pub use own::Own;
pub use place::Place;

use crate::refusal::{Lie, Refusal};

/// Regions that a driver may share: as many as other devices take (`VHOST_USER_GET_MAX_MEM_SLOTS`).
pub const REGIONS_MAX: usize = 32;

/// `TMPFS_MAGIC` of `linux/magic.h`: what memfds are of.
const TMPFS: u64 = 0x0102_1994;
/// `HUGETLBFS_MAGIC`.
const HUGETLBFS: u64 = 0x9584_58f6;

/// A region as messages describe it (`VHOST_USER_SET_MEM_TABLE`, `VHOST_USER_ADD_MEM_REG`), in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where the guest has it: buffers are named so.
    pub guest: u64,
    /// How much.
    pub size: u64,
    /// Where the frontend has it: rings are named so.
    pub user: u64,
    /// Where it begins in the file.
    pub offset: u64,
}

/// What to do with memory that its owner can take back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsealed {
    /// Refuse it: the next access would end the process.
    Refuse,
    /// Take it: somebody handles SIGBUS, and replaces what is gone.
    Bear,
}

/// A shared mapping, of whole pages.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

impl Mapping {
    fn new(file: &OwnedFd, offset: u64, size: usize) -> Result<Mapping, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes it touches no memory of ours.
        let start = unsafe {
            mmap(
                core::ptr::null_mut(),
                size,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, size })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: mapped by `new`, whole; whoever has a pointer into it holds the memory, too.
        let _unmapped = unsafe { munmap(start, self.size) };
    }
}

/// Where a region lies: `size` bytes from `start` on are mapped.
#[derive(Clone, Copy, Debug)]
struct Region {
    guest: u64,
    size: u64,
    user: u64,
    start: NonNull<u8>,
}

/// All memory of one driver.
#[derive(Debug)]
pub struct Memory {
    regions: Vec<Region>,
    /// What they lie in.
    mappings: Vec<Mapping>,
    /// Files that can become shorter, with the size that they must have.
    unsealed: Vec<(u16, u64, OwnedFd)>,
}

// SAFETY: the mappings belong to the process, not to a thread, and are only accessed as the module's argument says.
unsafe impl Send for Memory {}
// SAFETY: as above: atomics, and copies of bytes that any number of threads may make at the same time.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps what a driver shares.
    ///
    /// # Errors
    /// [`Refusal`] for the first region that is not as it should be.
    pub fn open(
        regions: impl IntoIterator<Item = (Span, OwnedFd)>,
        unsealed: Unsealed,
    ) -> Result<Memory, Refusal> {
        let mut memory = Memory {
            regions: Vec::new(),
            mappings: Vec::new(),
            unsealed: Vec::new(),
        };
        for (index, (span, file)) in (0..).zip(regions) {
            if usize::from(index) == REGIONS_MAX {
                return Err(Refusal::Regions);
            }
            memory.map(index, span, file, unsealed)?;
        }
        Ok(memory)
    }

    fn map(&mut self, index: u16, span: Span, file: OwnedFd, unsealed: Unsealed) -> Result<(), Refusal> {
        let failed = |error| Refusal::Map { index, error };
        let Span {
            guest,
            size,
            user,
            offset,
        } = span;
        let ends = [guest, user, offset].map(|begin| begin.checked_add(size));
        let [Some(_), Some(_), Some(end)] = ends else {
            return Err(Refusal::RegionSize { index, guest, size });
        };
        if size == 0 {
            return Err(Refusal::RegionSize { index, guest, size });
        }
        let kind = fstatfs(&file).map_err(failed)?.f_type as u64 & 0xffff_ffff;
        let stat = fstat(&file).map_err(failed)?;
        // Devices may lie in a file system of memory, too.
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || (kind != TMPFS && kind != HUGETLBFS) {
            return Err(Refusal::NotMemory { index });
        }
        let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        // A file of huge pages can lose them while it keeps its size.
        let is_firm = kind == TMPFS && seals.contains(SealFlags::SHRINK);
        if !is_firm && unsealed == Unsealed::Refuse {
            return Err(Refusal::NotSealed { index });
        }
        let found = u64::try_from(stat.st_size).unwrap_or(0);
        if found < end {
            return Err(Refusal::FileSize {
                index,
                offset,
                size,
                found,
            });
        }
        // Huge pages are mapped and unmapped whole. What is rounded up lies behind the file's end at most, and is not
        // accessed.
        let page = u64::try_from(stat.st_blksize).unwrap_or(0).max(4096);
        let begin = offset - offset % page;
        let whole = (end - begin).checked_next_multiple_of(page);
        let bytes = whole.and_then(|bytes| isize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| failed(Errno::NOMEM))?.unsigned_abs();
        let mapping = Mapping::new(&file, begin, bytes).map_err(failed)?;
        // SAFETY: less than a page behind the beginning of a mapping that has a page at least.
        let start = unsafe { mapping.start.add((offset - begin) as usize) };
        self.regions.push(Region {
            guest,
            size,
            user,
            start,
        });
        self.mappings.push(mapping);
        if !is_firm {
            self.unsealed.push((index, end, file));
        }
        Ok(())
    }

    /// Whether some of it can be taken back by its owner: then [`Self::check`] is worth asking now and then.
    #[must_use]
    pub fn can_shrink(&self) -> bool {
        !self.unsealed.is_empty()
    }

    /// Looks whether all files are still as long as they were.
    ///
    /// # Errors
    /// [`Refusal::Shrunk`]
    pub fn check(&self) -> Result<(), Refusal> {
        for (index, size, file) in &self.unsealed {
            let found = fstat(file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0));
            if found.is_ok_and(|found| found < *size) {
                return Err(Refusal::Shrunk { index: *index });
            }
        }
        Ok(())
    }

    /// So many numbers, or groups of them, where the frontend has them; none if they are not within one region, or not
    /// aligned.
    #[must_use]
    pub fn array<T: Shared>(self: &Arc<Self>, user: u64, len: u16) -> Option<Array<T>> {
        let size = (size_of::<T>() as u64) * u64::from(len);
        let found = self.regions.iter().find_map(|region| {
            let at = user.checked_sub(region.user)?;
            (size <= region.size.checked_sub(at)?).then_some((region, at))
        });
        let (region, at) = found?;
        // SAFETY: less than the region's size, as was just checked, and so within its mapping.
        let start = unsafe { region.start.add(at as usize) };
        // SAFETY: `len` of them from there on are within the mapping, which the array holds.
        unsafe { Array::new(start, len, Arc::clone(self)) }
    }
}

/// One ring's view of the memory: it remembers in which region it found the last buffer, where the next is likely to be.
#[derive(Debug)]
pub struct View {
    memory: Arc<Memory>,
    last: Cell<Region>,
}

// SAFETY: it holds the memory that it points into, which may be used by any thread.
unsafe impl Send for View {}

impl View {
    /// Of any memory; without a region there is no place in it.
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

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// A buffer of `size` bytes that the guest has at `guest`, as far as it is in one region: shorter only if it goes on
    /// in the next.
    ///
    /// # Errors
    /// [`Lie::Outside`] if its first byte is in no region.
    #[inline(always)]
    pub fn place(&self, guest: u64, size: u32) -> Result<Place<'_>, Lie> {
        let last = self.last.get();
        let at = guest.wrapping_sub(last.guest);
        // Neither can wrap: `size` has 32 bits, and the region ends before 2^64.
        if at < last.size && u64::from(size) <= last.size - at {
            // SAFETY: less than the region's size, and so within its mapping, which `self` holds.
            let start = unsafe { last.start.add(at as usize) };
            // SAFETY: `size` bytes from there on are within, too.
            return Ok(unsafe { Place::new(start, size) });
        }
        self.find(guest, size)
    }

    #[cold]
    fn find(&self, guest: u64, size: u32) -> Result<Place<'_>, Lie> {
        let found = self
            .memory
            .regions
            .iter()
            .find(|region| guest.wrapping_sub(region.guest) < region.size);
        let Some(region) = found else {
            return Err(Lie::Outside { guest, size });
        };
        self.last.set(*region);
        let at = guest - region.guest;
        let size = u64::from(size).min(region.size - at) as u32;
        // SAFETY: less than the region's size, and so within its mapping, which `self` holds.
        let start = unsafe { region.start.add(at as usize) };
        // SAFETY: `size` bytes from there on are within, too.
        Ok(unsafe { Place::new(start, size) })
    }
}
