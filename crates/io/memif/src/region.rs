//! Memory that two processes map. This is the only module of the crate with unsafe code.
//!
//! # Invariant
//! Every access is within a mapping and aligned, whatever the peer has written, and no access faults.
//!
//! # Argument
//! * **Bounds**: [`Regions::buffer`] creates every [`Buffer`] and [`Regions::ring`] every [`RingMemory`]. Both
//!   compare the end of the range with the size of the region, in 64 bits, so the sum cannot wrap. The peer cannot
//!   change that size, which was set when the mapping was made.
//! * **No fault**: this process seals the memfds that it creates. It maps a peer's file only if that is a regular file of
//!   tmpfs or hugetlbfs which supports seals. A device or a file of another file system, where a page fault may block, is
//!   rejected. The file must be sealed against shrinking, unless the process handles SIGBUS ([`UnsealedPolicy::Accept`]);
//!   files of huge pages are accepted only then.
//! * **Concurrent writes**: numbers are atomics. Bytes are copied by raw pointers, without references to
//!   them. The peer may write during the copy. So may another thread, if the peer offers one buffer twice.
//!   The copy then holds a mixture of bytes, which is checked like every packet from outside.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use millrace_shared_memory::UnsealedPolicy;
use millrace_shared_memory::{Mapping, MemoryFile, NotMemoryFile, create, prefetch};
use rustix::io::Errno;

use crate::error::{MessageError, ProtocolViolation};

/// A mapped region. The mapping has whole pages, and may extend past the end of the region.
#[derive(Debug)]
struct Region {
    mapping: Mapping,
    /// Size in bytes, at most that of the mapping.
    size: u64,
}

/// All memory regions of one connection.
#[derive(Debug)]
pub struct Regions {
    regions: Vec<Region>,
    /// Index, size in bytes and file of each region that can shrink.
    unsealed: Vec<(u16, u64, OwnedFd)>,
}

// SAFETY: mappings belong to the process, not to a thread, and are accessed as the module's argument says.
unsafe impl Send for Regions {}
// SAFETY: all accesses are atomics, or copies by raw pointers that any number of threads may make concurrently.
unsafe impl Sync for Regions {}

impl Regions {
    /// Creates a zeroed region 0 of `size` bytes. Returns the region and the file descriptor that shares it. The file
    /// can neither shrink nor grow.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(size: usize) -> Result<(Regions, OwnedFd), Errno> {
        let file = create("memif", size as u64)?;
        let region = Region {
            mapping: Mapping::populated(&file, size)?,
            size: size as u64,
        };
        let regions = Regions {
            regions: vec![region],
            unsealed: Vec::new(),
        };
        Ok((regions, file))
    }

    /// Maps the regions that a peer shares, given the size in bytes and the file of each.
    ///
    /// # Errors
    /// [`MessageError`] for the first region that is rejected.
    pub fn open(
        files: impl IntoIterator<Item = (u64, OwnedFd)>,
        unsealed: UnsealedPolicy,
    ) -> Result<Regions, MessageError> {
        let mut regions = Regions {
            regions: Vec::new(),
            unsealed: Vec::new(),
        };
        for (index, (size, file)) in (0..).zip(files) {
            let failed = |error| MessageError::Map { index, error };
            let found = MemoryFile::inspect(&file).map_err(|reason| match reason {
                NotMemoryFile::NotRegular => MessageError::NotRegular { index },
                NotMemoryFile::OtherFileSystem => MessageError::NotMemory { index },
                NotMemoryFile::Failed(error) => failed(error),
            })?;
            if let Some(error) = found.no_seals {
                return Err(MessageError::NoSeals { index, error });
            }
            if found.can_shrink && unsealed == UnsealedPolicy::Reject {
                return Err(MessageError::NotSealed { index });
            }
            if found.size < size {
                let found = found.size;
                return Err(MessageError::FileSize { index, size, found });
            }
            // Huge pages are mapped and unmapped as whole pages. The rounded part is not accessed.
            let whole = size.checked_next_multiple_of(found.page_size);
            let bytes = whole.and_then(|bytes| isize::try_from(bytes).ok());
            let bytes = bytes.ok_or_else(|| failed(Errno::NOMEM))?.unsigned_abs();
            let mapping = Mapping::new(&file, 0, bytes).map_err(failed)?;
            regions.regions.push(Region { mapping, size });
            if found.can_shrink {
                regions.unsealed.push((index, size, file));
            }
        }
        Ok(regions)
    }

    /// Returns true if the peer can shrink a region. The caller then calls [`Self::check`] from time to time.
    pub fn can_shrink(&self) -> bool {
        !self.unsealed.is_empty()
    }

    /// Checks that no file is shorter than its region.
    ///
    /// # Errors
    /// [`MessageError::Shrunk`] for the first file that is shorter.
    pub fn check(&self) -> Result<(), MessageError> {
        for (index, size, file) in &self.unsealed {
            if MemoryFile::size_of(file).is_ok_and(|found| found < *size) {
                return Err(MessageError::Shrunk { index: *index });
            }
        }
        Ok(())
    }

    /// Returns the size of a region, in bytes.
    pub fn size(&self, region: u16) -> Option<u64> {
        Some(self.regions.get(usize::from(region))?.size)
    }

    /// Returns the buffer of `size` bytes at an offset of a region.
    ///
    /// # Errors
    /// [`ProtocolViolation`] if there is no such region, or the buffer exceeds the region.
    #[inline]
    pub fn buffer(&self, region: u16, offset: u32, size: u32) -> Result<Buffer<'_>, ProtocolViolation> {
        let Some(found) = self.regions.get(usize::from(region)) else {
            return Err(ProtocolViolation::Region { region });
        };
        if u64::from(offset) + u64::from(size) > found.size {
            return Err(ProtocolViolation::Outside { region, offset, size });
        }
        // SAFETY: the check above keeps the offset within the mapping, or at its end.
        let start = unsafe { found.mapping.start().add(offset as usize) };
        Ok(Buffer {
            start,
            size,
            memory: PhantomData,
        })
    }

    /// Returns the ring of `2^log2_len` descriptors at an offset of a region, or `None` if it exceeds the region or is not
    /// aligned to 16 bytes.
    pub fn ring(self: &Arc<Self>, region: u16, offset: u32, log2_len: u8) -> Option<RingMemory> {
        let start = self.buffer(region, offset, ring_size(log2_len)?).ok()?.start;
        offset.is_multiple_of(16).then(|| RingMemory {
            start,
            mask: ((1_u32 << log2_len) - 1) as u16,
            memory: Arc::clone(self),
        })
    }
}

/// Returns the size in bytes of a ring with `2^log2_len` descriptors, or `None` if that is longer than allowed.
pub(crate) fn ring_size(log2_len: u8) -> Option<u32> {
    (log2_len <= crate::LOG2_RING_MAX).then(|| DESCRIPTORS as u32 + (16 << log2_len))
}

/// A packet buffer: bytes that lie within a region.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    start: NonNull<u8>,
    size: u32,
    memory: PhantomData<&'a Regions>,
}

impl Buffer<'_> {
    /// Returns the size of the buffer, in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Copies the first bytes of the buffer to `into`, as many as both hold.
    #[inline]
    pub fn read(&self, into: &mut [u8]) {
        let size = into.len().min(self.size());
        // SAFETY: both hold `size` bytes, and no Rust reference covers the mapping, so the two do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(self.start.as_ptr(), into.as_mut_ptr(), size) };
    }

    /// Copies `bytes` to the start of the buffer, as many as both hold.
    #[inline]
    pub fn write(&self, bytes: &[u8]) {
        let size = bytes.len().min(self.size());
        // SAFETY: both hold `size` bytes, and no Rust reference covers the mapping, so the two do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr(), size) };
    }

    /// Copies slices to the buffer one after the other, until the buffer is full. Returns the number of
    /// copied bytes.
    #[inline]
    pub fn write_slices<'b>(&self, slices: impl Iterator<Item = &'b [u8]>) -> usize {
        let mut at = 0;
        for slice in slices {
            let size = slice.len().min(self.size() - at);
            // SAFETY: `at` is at most the size of the buffer, so the pointer is within it, or at its end.
            let target = unsafe { self.start.add(at) };
            // SAFETY: the slice and the rest of the buffer hold `size` bytes, and no Rust reference covers the mapping, so the
            // two do not overlap.
            unsafe { core::ptr::copy_nonoverlapping(slice.as_ptr(), target.as_ptr(), size) };
            at += size;
        }
        at
    }

    /// Prefetches the first bytes.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(self.start.as_ptr());
    }
}

/// Offset of the cookie in a ring: 4 bytes.
const COOKIE: usize = 0;
/// Offset of the flags: 2 bytes.
const FLAGS: usize = 4;
/// Offset of the client's index: 2 bytes.
const HEAD: usize = 6;
/// Offset of the server's index: 2 bytes, in the next cache line.
const TAIL: usize = 64;
/// Offset of the descriptors: 16 bytes each.
const DESCRIPTORS: usize = 128;

/// The memory of a ring.
///
/// ```text
/// 0        4       6      8        64     66       128
/// +--------+-------+------+--------+------+--------+--------------+--------------+---
/// | cookie | flags | head | unused | tail | unused | descriptor 0 | descriptor 1 | ...
/// +--------+-------+------+--------+------+--------+--------------+--------------+---
/// ```
#[derive(Debug)]
pub struct RingMemory {
    start: NonNull<u8>,
    /// The number of descriptors, a power of two, less one.
    mask: u16,
    /// The regions that contain the ring.
    memory: Arc<Regions>,
}

// SAFETY: `start` points into the regions that `memory` keeps mapped, and all accesses are atomic.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// Returns the number of descriptors.
    #[inline]
    pub fn descriptors(&self) -> u16 {
        self.mask + 1
    }

    /// Returns the regions that contain the ring.
    #[inline]
    pub fn memory(&self) -> &Arc<Regions> {
        &self.memory
    }

    /// Returns the cookie, the number that identifies a ring.
    pub fn cookie(&self) -> &AtomicU32 {
        // SAFETY: `Regions::ring` keeps the whole ring within the mapping, aligned to 16 bytes.
        let cookie = unsafe { self.start.add(COOKIE) }.cast::<AtomicU32>();
        // SAFETY: aligned, mapped for the lifetime of `self`, and accessed as an atomic only.
        unsafe { cookie.as_ref() }
    }

    /// Returns the flags. Bit 0: the receiver polls, and needs no interrupt.
    #[inline]
    pub fn flags(&self) -> &AtomicU16 {
        self.half(FLAGS)
    }

    /// Returns the client's index.
    #[inline]
    pub fn head(&self) -> &AtomicU16 {
        self.half(HEAD)
    }

    /// Returns the server's index.
    #[inline]
    pub fn tail(&self) -> &AtomicU16 {
        self.half(TAIL)
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: the callers pass offsets of the ring's header, which `Regions::ring` keeps within the mapping.
        let number = unsafe { self.start.add(at) }.cast::<AtomicU16>();
        // SAFETY: aligned, as offset and start are even; mapped for the lifetime of `self`; accessed as an atomic only.
        unsafe { number.as_ref() }
    }

    /// Returns the two words of a descriptor. The index counts modulo the number of descriptors.
    #[inline]
    pub fn descriptor(&self, index: u16) -> [&AtomicU64; 2] {
        let at = DESCRIPTORS + 16 * usize::from(index & self.mask);
        // SAFETY: the mask selects a descriptor of the ring, which `Regions::ring` keeps within the mapping.
        let first = unsafe { self.start.add(at) }.cast::<AtomicU64>();
        // SAFETY: a descriptor has two words.
        let second = unsafe { first.add(1) };
        // SAFETY: aligned to 16 bytes, mapped for the lifetime of `self`, and accessed as an atomic only.
        let first = unsafe { first.as_ref() };
        // SAFETY: 8 bytes after the first word, with the same guarantees.
        let second = unsafe { second.as_ref() };
        [first, second]
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn shared(size: usize) -> (Regions, OwnedFd) {
        Regions::create(size).unwrap()
    }

    #[test]
    fn both_processes_see_the_same_bytes() {
        let (ours, file) = shared(8192);
        let theirs = Regions::open([(8192, file)], UnsealedPolicy::Reject).unwrap();
        ours.buffer(0, 5000, 3).unwrap().write(b"abcd");
        let mut bytes = [0; 4];
        theirs.buffer(0, 5000, 4).unwrap().read(&mut bytes);
        assert_eq!(&bytes, b"abc\0");
        assert!(!theirs.can_shrink());
    }

    #[test]
    fn slices_follow_each_other_and_end_with_the_buffer() {
        let (ours, _file) = shared(8192);
        ours.buffer(0, 0, 10).unwrap().write(&[9; 10]);
        let buffer = ours.buffer(0, 2, 5).unwrap();
        let slices = |slices: &[&'static [u8]]| buffer.write_slices(slices.iter().copied());
        assert_eq!(slices(&[b"ab", b"", b"c"]), 3);
        assert_eq!(slices(&[b"xyz", b"uvw", b"t"]), 5);
        let mut bytes = [0; 10];
        ours.buffer(0, 0, 10).unwrap().read(&mut bytes);
        assert_eq!(&bytes, b"\x09\x09xyzuv\x09\x09\x09");
    }

    #[test]
    fn buffers_lie_within_their_region() {
        let (ours, _file) = shared(8192);
        assert!(ours.buffer(0, 8192, 0).is_ok());
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
                ours.buffer(region, offset, size).is_err(),
                "{region} {offset} {size}"
            );
        }
    }

    #[test]
    fn rings_lie_within_their_region_and_are_aligned() {
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
    fn memory_that_can_shrink_is_rejected_or_watched() {
        let unsealed = || {
            let file = memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, 4096).unwrap();
            file
        };
        assert!(matches!(
            Regions::open([(4096, unsealed())], UnsealedPolicy::Reject),
            Err(MessageError::NotSealed { index: 0 })
        ));
        let file = unsealed();
        let regions = Regions::open([(4096, file.try_clone().unwrap())], UnsealedPolicy::Accept).unwrap();
        assert!(regions.can_shrink());
        regions.check().unwrap();
        ftruncate(&file, 0).unwrap();
        assert_eq!(regions.check(), Err(MessageError::Shrunk { index: 0 }));
    }

    #[test]
    fn files_that_are_not_memory_or_too_short_are_rejected() {
        // `/dev` is a file system of memory (devtmpfs), so only the type of these files is wrong.
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let folder: OwnedFd = std::fs::File::open("/dev").unwrap().into();
        let (pipe, _other_end) = std::io::pipe().unwrap();
        let pipe: OwnedFd = pipe.into();
        for (file, how) in [&null, &folder, &pipe]
            .into_iter()
            .flat_map(|file| [(file, UnsealedPolicy::Reject), (file, UnsealedPolicy::Accept)])
        {
            let opened = Regions::open([(1, file.try_clone().unwrap())], how);
            assert_eq!(opened.unwrap_err(), MessageError::NotRegular { index: 0 });
        }
        let disk: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(matches!(
            Regions::open([(1, disk)], UnsealedPolicy::Accept),
            Err(MessageError::NotMemory { index: 0 })
        ));
        let (_ours, file) = shared(4096);
        let long = [(4096, file.try_clone().unwrap()), (4097, file)];
        assert_eq!(
            Regions::open(long, UnsealedPolicy::Reject).unwrap_err(),
            MessageError::FileSize {
                index: 1,
                size: 4097,
                found: 4096
            }
        );
    }

    /// Needs a free huge page, and is skipped without one.
    #[test]
    fn a_region_that_ends_within_a_huge_page_is_unmapped_as_a_whole() {
        const NAME: &str = "ends-within-a-huge-page";
        let Ok(file) = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
            eprintln!("skipped: the kernel has no huge pages");
            return;
        };
        let page = MemoryFile::inspect(&file).unwrap().page_size;
        ftruncate(&file, page).unwrap();
        let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(NAME);
        match Regions::open([(page - 4096, file)], UnsealedPolicy::Accept) {
            Err(MessageError::Map { error, .. }) if error == Errno::NOMEM => {
                eprintln!("skipped: no huge page");
            }
            regions => {
                let regions = regions.unwrap();
                assert_eq!(regions.size(0), Some(page - 4096));
                let end = page as u32 - 4096;
                assert!(regions.buffer(0, end, 0).is_ok() && regions.buffer(0, end, 1).is_err());
                assert!(is_mapped());
                drop(regions);
                assert!(!is_mapped());
            }
        }
    }

    #[test]
    fn impossible_sizes_are_rejected() {
        let (_ours, file) = shared(4096);
        for size in [u64::MAX, 1 << 63] {
            assert!(Regions::open([(size, file.try_clone().unwrap())], UnsealedPolicy::Reject).is_err());
        }
    }
}
