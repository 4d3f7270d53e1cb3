//! Memory that two processes map: the only unsafe code of the crate.
//!
//! # The promise
//! Every access is within a mapping and aligned, whatever the other process has written, and none faults.
//!
//! # The argument
//! * **Within**: a [`Place`] is made by [`Regions::place`] and a [`RingMemory`] by [`Regions::ring`], which compare where it
//!   ends with the size of the mapping, in 64 bits, so that nothing wraps. The size is ours: it was set when the mapping was
//!   made.
//! * **No fault**: a mapping of ours is of a memfd that we sealed. One of the peer's is of a regular file of memory (never of
//!   a device, of a disk, or of a file system in some process, where a page can take for ever) that has seals, and is
//!   sealed against becoming shorter. Where the process bears a SIGBUS ([`Unsealed::Bear`]), that seal may be missing, and
//!   the pages may be huge.
//! * **Others write**: numbers are atomics. Bytes are copied in and out by raw pointers, and no reference to them is ever
//!   made; the other process, or another thread of ours that the other process sends to the same place, may write
//!   while they are copied. The copy then holds some mixture, which is a packet like any other that came from outside.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::refusal::{Lie, Refusal};

/// `TMPFS_MAGIC` of `linux/magic.h`: what memfds are of.
const TMPFS: u64 = 0x0102_1994;
/// `HUGETLBFS_MAGIC`.
const HUGETLBFS: u64 = 0x9584_58f6;

/// What to do with memory that its owner can take back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsealed {
    /// Refuse it: the next access would end the process.
    Refuse,
    /// Take it: somebody handles SIGBUS, and replaces what is gone.
    Bear,
}

/// A shared mapping.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    size: usize,
}

impl Region {
    fn map(file: &OwnedFd, size: usize, flags: MapFlags) -> Result<Region, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes it touches no memory of ours.
        let start = unsafe { mmap(core::ptr::null_mut(), size, protection, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Region { start, size })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: mapped by `map`, whole; whoever has a pointer into it holds the regions, too.
        let _unmapped = unsafe { munmap(start, self.size) };
    }
}

/// All memory of one connection.
#[derive(Debug)]
pub struct Regions {
    regions: Vec<Region>,
    /// Files that can become shorter, with the size that they must have.
    unsealed: Vec<(u16, u64, OwnedFd)>,
}

// SAFETY: the mappings belong to the process, not to a thread, and are only accessed as the module's argument says.
unsafe impl Send for Regions {}
// SAFETY: as above: atomics, and copies of bytes that any number of threads may make at the same time.
unsafe impl Sync for Regions {}

impl Regions {
    /// New memory of so many bytes, all zeros, as region 0, and the file by which another process can map it. It can
    /// neither shrink nor grow.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(size: usize) -> Result<(Regions, OwnedFd), Errno> {
        let file = memfd_create("memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // All pages now, so that no worker waits for one.
        let region = Region::map(&file, size, MapFlags::SHARED | MapFlags::POPULATE)?;
        let regions = Regions {
            regions: vec![region],
            unsealed: Vec::new(),
        };
        Ok((regions, file))
    }

    /// Maps what a peer shares: `(bytes, file)` of each region.
    ///
    /// # Errors
    /// [`Refusal`] for the first that is not as it should be.
    pub fn open(
        files: impl IntoIterator<Item = (u64, OwnedFd)>,
        unsealed: Unsealed,
    ) -> Result<Regions, Refusal> {
        let mut regions = Regions {
            regions: Vec::new(),
            unsealed: Vec::new(),
        };
        for (index, (size, file)) in (0..).zip(files) {
            let failed = |error| Refusal::Map { index, error };
            let mode = fstat(&file).map_err(failed)?.st_mode;
            if FileType::from_raw_mode(mode) != FileType::RegularFile {
                return Err(Refusal::NotRegular { index });
            }
            let kind = fstatfs(&file).map_err(failed)?.f_type as u64 & 0xffff_ffff;
            if kind != TMPFS && kind != HUGETLBFS {
                return Err(Refusal::NotMemory { index });
            }
            // EINVAL, and ENOTTY from some drivers: the file is of a kind that no seal protects.
            let seals = fcntl_get_seals(&file).map_err(|error| Refusal::NoSeals { index, error })?;
            // A file of huge pages can lose them while it keeps its size.
            let is_firm = kind == TMPFS && seals.contains(SealFlags::SHRINK);
            if !is_firm && unsealed == Unsealed::Refuse {
                return Err(Refusal::NotSealed { index });
            }
            let found = size_of(&file).map_err(failed)?;
            let bytes = usize::try_from(size).map_err(|_| failed(Errno::NOMEM))?;
            if found < size {
                return Err(Refusal::FileSize { index, size, found });
            }
            regions
                .regions
                .push(Region::map(&file, bytes, MapFlags::SHARED).map_err(failed)?);
            if !is_firm {
                regions.unsealed.push((index, size, file));
            }
        }
        Ok(regions)
    }

    /// Whether some of it can be taken back by its owner: then [`Self::check`] is worth asking now and then.
    pub fn can_shrink(&self) -> bool {
        !self.unsealed.is_empty()
    }

    /// Looks whether all files are still as long as they were.
    ///
    /// # Errors
    /// [`Refusal::Shrunk`]
    pub fn check(&self) -> Result<(), Refusal> {
        for (index, size, file) in &self.unsealed {
            if size_of(file).is_ok_and(|found| found < *size) {
                return Err(Refusal::Shrunk { index: *index });
            }
        }
        Ok(())
    }

    /// Bytes of a region.
    pub fn size(&self, region: u16) -> Option<u64> {
        Some(self.regions.get(usize::from(region))?.size as u64)
    }

    /// A buffer.
    ///
    /// # Errors
    /// [`Lie`] if there is no such region, or it ends before.
    #[inline]
    pub fn place(&self, region: u16, offset: u32, size: u32) -> Result<Place<'_>, Lie> {
        let Some(found) = self.regions.get(usize::from(region)) else {
            return Err(Lie::Region { region });
        };
        if u64::from(offset) + u64::from(size) > found.size as u64 {
            return Err(Lie::Outside { region, offset, size });
        }
        // SAFETY: within the mapping, or just behind it, as was just checked.
        let start = unsafe { found.start.add(offset as usize) };
        Ok(Place {
            start,
            size,
            memory: PhantomData,
        })
    }

    /// A ring; none if it is not within, or not at a multiple of 16.
    pub fn ring(self: &Arc<Self>, region: u16, offset: u32, log2_len: u8) -> Option<RingMemory> {
        let place = self.place(region, offset, ring_size(log2_len)?).ok()?;
        let start = place.start;
        offset.is_multiple_of(16).then(|| RingMemory {
            start,
            mask: ((1_u32 << log2_len) - 1) as u16,
            memory: Arc::clone(self),
        })
    }
}

fn size_of(file: &OwnedFd) -> Result<u64, Errno> {
    Ok(u64::try_from(fstat(file)?.st_size).unwrap_or(0))
}

/// Bytes of a ring with that many descriptors; none if there is no such ring.
pub(crate) fn ring_size(log2_len: u8) -> Option<u32> {
    (log2_len <= crate::LOG2_RING_MAX).then(|| DESCRIPTORS as u32 + (16 << log2_len))
}

/// Bytes of a region, which lie within it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    start: NonNull<u8>,
    size: u32,
    memory: PhantomData<&'a Regions>,
}

impl Place<'_> {
    /// How many.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Copies its first bytes out: as many as there are, and are wanted.
    #[inline]
    pub fn read(&self, into: &mut [u8]) {
        let size = into.len().min(self.size());
        // SAFETY: both are so long; ours does not overlap the mapping, to which nobody else has a reference.
        unsafe { core::ptr::copy_nonoverlapping(self.start.as_ptr(), into.as_mut_ptr(), size) };
    }

    /// Copies bytes to its beginning: as many as there are, and fit.
    #[inline]
    pub fn write(&self, bytes: &[u8]) {
        let size = bytes.len().min(self.size());
        // SAFETY: both are so long; ours does not overlap the mapping, to which nobody else has a reference.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr(), size) };
    }

    /// Begins to load its first bytes.
    #[inline(always)]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch may name any address; it never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.start.as_ptr().cast()) };
        }
    }
}

const COOKIE: usize = 0;
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

/// A ring: a cookie, flags, two indices a cache line apart, and descriptors of 16 bytes.
#[derive(Debug)]
pub struct RingMemory {
    start: NonNull<u8>,
    /// Descriptors less one.
    mask: u16,
    /// What `start` points into.
    memory: Arc<Regions>,
}

// SAFETY: it points into the regions that it holds, and is accessed by atomics.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// How many descriptors.
    #[inline]
    pub fn descriptors(&self) -> u16 {
        self.mask + 1
    }

    /// The memory that it lies in.
    #[inline]
    pub fn memory(&self) -> &Arc<Regions> {
        &self.memory
    }

    /// What says that it is a ring.
    pub fn cookie(&self) -> &AtomicU32 {
        // SAFETY: the first bytes of the ring, all of which is within the mapping, at a multiple of 16.
        let cookie = unsafe { self.start.add(COOKIE) }.cast::<AtomicU32>();
        // SAFETY: aligned, mapped for as long as `self`, and only ever accessed as an atomic.
        unsafe { cookie.as_ref() }
    }

    /// Bit 0: the receiver polls, and is not to be woken.
    #[inline]
    pub fn flags(&self) -> &AtomicU16 {
        self.half(FLAGS)
    }

    /// The client's index.
    #[inline]
    pub fn head(&self) -> &AtomicU16 {
        self.half(HEAD)
    }

    /// The server's index.
    #[inline]
    pub fn tail(&self) -> &AtomicU16 {
        self.half(TAIL)
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: one of the three above, within the ring, which is within the mapping.
        let number = unsafe { self.start.add(at) }.cast::<AtomicU16>();
        // SAFETY: an even place behind a multiple of 16, mapped for as long as `self`, only ever accessed as an atomic.
        unsafe { number.as_ref() }
    }

    /// The two halves of the descriptor at an index, which may be any: flags, region and length; offset and metadata.
    #[inline]
    pub fn descriptor(&self, index: u16) -> [&AtomicU64; 2] {
        let at = DESCRIPTORS + 16 * usize::from(index & self.mask);
        // SAFETY: the mask leaves a descriptor of the ring, all of which is within the mapping.
        let first = unsafe { self.start.add(at) }.cast::<AtomicU64>();
        // SAFETY: its second half.
        let second = unsafe { first.add(1) };
        // SAFETY: at a multiple of 16, mapped for as long as `self`, and only ever accessed as an atomic.
        let first = unsafe { first.as_ref() };
        // SAFETY: as above, 8 bytes further.
        let second = unsafe { second.as_ref() };
        [first, second]
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    fn shared(size: usize) -> (Regions, OwnedFd) {
        Regions::create(size).unwrap()
    }

    #[test]
    fn what_one_writes_the_other_reads() {
        let (ours, file) = shared(8192);
        let theirs = Regions::open([(8192, file)], Unsealed::Refuse).unwrap();
        ours.place(0, 5000, 3).unwrap().write(b"abcd");
        let mut bytes = [0; 4];
        theirs.place(0, 5000, 4).unwrap().read(&mut bytes);
        assert_eq!(&bytes, b"abc\0");
        assert!(!theirs.can_shrink());
    }

    #[test]
    fn places_are_within() {
        let (ours, _file) = shared(8192);
        assert!(ours.place(0, 8192, 0).is_ok());
        for (region, offset, size) in [
            (1, 0, 0),
            (0xffff, 0, 1),
            (0, 8192, 1),
            (0, 8193, 0),
            (0, 0, 8193),
            (0, u32::MAX, u32::MAX),
            (0, 4096, u32::MAX),
        ] {
            assert!(
                ours.place(region, offset, size).is_err(),
                "{region} {offset} {size}"
            );
        }
    }

    #[test]
    fn rings_are_within_and_aligned() {
        let (ours, _file) = shared(8192);
        let ours = Arc::new(ours);
        let ring = ours.ring(0, 16, 8).unwrap();
        ring.descriptor(0xffff)[1].store(7, Ordering::Relaxed);
        assert_eq!(ring.descriptor(255)[1].load(Ordering::Relaxed), 7);
        for (region, offset, log2_len) in [
            (0, 8, 1),
            (0, 8192 - 128, 0),
            (0, 16, 9),
            (1, 0, 1),
            (0, 0, 15),
            (0, 0, 64),
            (0, 0, 255),
            (0, u32::MAX - 15, 1),
        ] {
            assert!(
                ours.ring(region, offset, log2_len).is_none(),
                "{offset} {log2_len}"
            );
        }
    }

    #[test]
    fn memory_that_can_be_taken_back_is_refused_or_watched() {
        let unsealed = || {
            let file = memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, 4096).unwrap();
            file
        };
        assert!(matches!(
            Regions::open([(4096, unsealed())], Unsealed::Refuse),
            Err(Refusal::NotSealed { index: 0 })
        ));
        let file = unsealed();
        let regions = Regions::open([(4096, file.try_clone().unwrap())], Unsealed::Bear).unwrap();
        assert!(regions.can_shrink());
        regions.check().unwrap();
        ftruncate(&file, 0).unwrap();
        assert_eq!(regions.check(), Err(Refusal::Shrunk { index: 0 }));
    }

    #[test]
    fn files_that_are_no_memory_or_too_short_are_refused() {
        // All are of a file system of memory.
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let folder: OwnedFd = std::fs::File::open("/dev").unwrap().into();
        let (pipe, _other_end) = std::io::pipe().unwrap();
        let pipe: OwnedFd = pipe.into();
        for (file, how) in [&null, &folder, &pipe]
            .into_iter()
            .flat_map(|file| [(file, Unsealed::Refuse), (file, Unsealed::Bear)])
        {
            let opened = Regions::open([(1, file.try_clone().unwrap())], how);
            assert_eq!(opened.unwrap_err(), Refusal::NotRegular { index: 0 });
        }
        let disk: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(matches!(
            Regions::open([(1, disk)], Unsealed::Bear),
            Err(Refusal::NotMemory { index: 0 })
        ));
        let (_ours, file) = shared(4096);
        let long = [(4096, file.try_clone().unwrap()), (4097, file)];
        assert_eq!(
            Regions::open(long, Unsealed::Refuse).unwrap_err(),
            Refusal::FileSize {
                index: 1,
                size: 4097,
                found: 4096
            }
        );
    }

    #[test]
    fn sizes_that_no_machine_has_are_refused() {
        let (_ours, file) = shared(4096);
        for size in [u64::MAX, 1 << 63] {
            assert!(Regions::open([(size, file.try_clone().unwrap())], Unsealed::Refuse).is_err());
        }
    }
}
