//! Memory that two processes map. This is the only module of the crate with unsafe code.
//!
//! # Invariant
//! Every access is within the mapping and aligned, whatever the other process has written.
//!
//! # Argument
//! A [`Region`] is one shared mapping of a memfd whose size is sealed before another process gets it. The file can neither
//! shrink nor grow under the mapping, so no access faults. Numbers are read once, by an atomic load, and then checked. Bytes
//! are copied, or lent to the side that owns them by the protocol in [`super`]. The other process can write bytes during a
//! copy only if it violates the protocol; the copy then holds a mixture, which is checked like any foreign bytes.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use millrace_shared_memory::{Mapping, MemoryFile, create, prefetch, prefetch_to_write};

/// A shared mapping.
#[derive(Debug)]
pub struct Region(Mapping);

impl Region {
    /// Creates zeroed memory of `size` bytes. Returns it with the file descriptor by which another process maps it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(name: &str, size: usize) -> io::Result<(Region, OwnedFd)> {
        let file = create(name, size as u64)?;
        let mapping = Mapping::new(&file, 0, size)?;
        Ok((Region(mapping), file))
    }

    /// Maps memory that another process has created.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(file: &File) -> io::Result<Region> {
        let size = usize::try_from(MemoryFile::size_of(file)?).unwrap_or(0);
        Ok(Region(Mapping::new(file, 0, size)?))
    }

    #[inline(always)]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    /// Returns the size of the mapping, in bytes.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Returns the number at an offset, or the first number if the offset is not a multiple of eight within the mapping.
    #[inline]
    pub(crate) fn number(&self, at: usize) -> &AtomicU64 {
        let at = match at.is_multiple_of(8) && at <= self.size().saturating_sub(8) {
            true => at,
            false => 0,
        };
        // SAFETY: the check above keeps eight bytes from this offset within the mapping.
        let number = unsafe { self.start().add(at) }.cast::<AtomicU64>();
        // SAFETY: aligned, as the mapping starts at a page; mapped for the lifetime of `self`; accessed as an atomic only.
        unsafe { number.as_ref() }
    }

    /// Returns the byte at an offset, or the first byte if the offset is not within the mapping.
    #[inline]
    pub(crate) fn byte(&self, at: usize) -> &AtomicU8 {
        let at = if at < self.size() { at } else { 0 };
        // SAFETY: the offset is within the mapping, which has at least one byte.
        let byte = unsafe { self.start().add(at) }.cast::<AtomicU8>();
        // SAFETY: mapped for the lifetime of `self`, and accessed as an atomic only.
        unsafe { byte.as_ref() }
    }

    /// Prefetches the cache line at an offset for reading.
    #[inline]
    pub(crate) fn fetch(&self, at: usize) {
        prefetch(self.start().as_ptr().wrapping_add(at));
    }

    /// Prefetches the cache line at an offset for writing, which takes it from other cores.
    #[inline]
    pub(crate) fn own(&self, at: usize) {
        prefetch_to_write(self.start().as_ptr().wrapping_add(at));
    }

    /// Writes two adjacent numbers with one store. Writes nothing unless the offset is a multiple of 16
    /// within the mapping. The processor fetches the cache lines of its pending stores in parallel. With one
    /// store for each pair instead of two, its store buffer holds twice as many pairs.
    #[inline(always)]
    pub(crate) fn write_pair(&self, at: usize, [first, second]: [u64; 2]) {
        if !at.is_multiple_of(16) || !self.holds(at, 16) {
            return;
        }
        // SAFETY: the check above keeps sixteen bytes from this offset within the mapping.
        let to = unsafe { self.start().add(at) };
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_store_si128};
            // SAFETY: all x86-64 processors have SSE2.
            let pair = unsafe { _mm_set_epi64x(second as i64, first as i64) };
            // SAFETY: mapped; aligned, as the mapping starts at a page; the other side reads it only after `given` says so.
            unsafe { _mm_store_si128(to.as_ptr().cast::<__m128i>(), pair) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: as above.
        unsafe {
            to.cast::<[u64; 2]>().write([first, second]);
        }
    }

    /// Returns whether `size` bytes at an offset are within the mapping.
    #[inline]
    fn holds(&self, at: usize, size: usize) -> bool {
        at.checked_add(size).is_some_and(|end| end <= self.size())
    }

    /// Copies bytes into the mapping. Returns false if they exceed it.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> bool {
        if !self.holds(at, bytes.len()) {
            return false;
        }
        // SAFETY: the check above keeps the bytes within the mapping.
        let to = unsafe { self.start().add(at) };
        // SAFETY: both sides have this size, and the slice cannot overlap the mapping, to which no reference exists.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        true
    }

    /// Copies bytes out of the mapping. Returns false if they exceed it.
    #[inline]
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) -> bool {
        if !self.holds(at, bytes.len()) {
            return false;
        }
        // SAFETY: the check above keeps the bytes within the mapping.
        let from = unsafe { self.start().add(at) };
        let size = bytes.len();
        // SAFETY: both sides have this size, and the slice cannot overlap the mapping, to which no reference exists.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(bytes).cast(), size) };
        true
    }

    /// Returns bytes that this side owns by the protocol. The slice is empty if they exceed the mapping.
    #[inline]
    pub(crate) fn lend(&mut self, at: usize, size: usize) -> &mut [u8] {
        if !self.holds(at, size) {
            return &mut [];
        }
        // SAFETY: the check above keeps the bytes within the mapping.
        let start = unsafe { self.start().add(at) };
        // SAFETY: mapped for the lifetime of the borrow of `self`. By the protocol the switch does not access these bytes
        // until the function reports them done.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), size) }
    }

    /// Returns bytes that this side owns by the protocol, for reading. The slice is empty if they exceed the
    /// mapping.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, size: usize) -> &[u8] {
        if !self.holds(at, size) {
            return &[];
        }
        // SAFETY: the check above keeps the bytes within the mapping.
        let start = unsafe { self.start().add(at) };
        // SAFETY: mapped for the lifetime of the borrow of `self`. By the protocol the switch does not write to a tail until the
        // function reports its packet done.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), size) }
    }
}

/// Packet memory of the switch, mapped at the same addresses as in the switch.
#[derive(Debug, Default)]
pub struct PacketMemory {
    parts: Vec<Mapping>,
    /// The parts, with adjacent ones merged. Hundreds of huge pages become a few areas, so that the area of a
    /// packet is found quickly.
    areas: Vec<Area>,
}

/// A contiguous mapped address range.
#[derive(Debug, Clone, Copy)]
struct Area {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; `PacketMemory` controls the accesses.
unsafe impl Send for Area {}

impl PacketMemory {
    /// Maps a part of a file at an address that must be free.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn map(&mut self, file: &File, address: usize, size: usize, offset: u64) -> io::Result<()> {
        self.parts.push(Mapping::at(address, file, offset, size)?);
        self.areas = self.joined();
        Ok(())
    }

    fn joined(&self) -> Vec<Area> {
        let mut parts: Vec<Area> = self
            .parts
            .iter()
            .map(|part| Area {
                start: part.start(),
                size: part.size(),
            })
            .collect();
        parts.sort_by_key(|part| part.start);
        let mut areas: Vec<Area> = Vec::new();
        for part in parts {
            match areas.last_mut() {
                Some(last) if last.start.as_ptr() as usize + last.size == part.start.as_ptr() as usize => {
                    last.size += part.size;
                }
                _ => areas.push(part),
            }
        }
        areas
    }

    /// Returns the pointer for `size` bytes at an address, or `None` if they exceed the memory.
    pub(super) fn address(&self, address: u64, size: usize) -> Option<NonNull<u8>> {
        self.areas.iter().find_map(|area| {
            let at = usize::try_from(address)
                .ok()?
                .checked_sub(area.start.as_ptr() as usize)?;
            let holds = at <= area.size && size <= area.size - at;
            holds.then(|| NonNull::new(area.start.as_ptr().wrapping_add(at)))?
        })
    }

    /// Returns the bytes of packets that this side owns by the protocol. `packets` has a value, the address
    /// and the size of each packet; the result has the value and the bytes. The bytes are empty if a packet
    /// exceeds the memory. The switch ensures that packets do not overlap.
    #[inline]
    pub(crate) fn lend<T>(
        &mut self,
        packets: impl Iterator<Item = (T, u64, usize)>,
    ) -> impl Iterator<Item = (T, &mut [u8])> {
        let areas = &self.areas;
        packets.map(move |(packet, address, size)| {
            let within = areas.iter().find_map(|area| {
                let at = usize::try_from(address)
                    .ok()?
                    .checked_sub(area.start.as_ptr() as usize)?;
                let holds = at <= area.size && size <= area.size - at;
                holds.then_some((area, at))
            });
            let Some((area, at)) = within else {
                return (packet, &mut [][..]);
            };
            // SAFETY: the check above keeps the bytes within adjacent mappings.
            let start = unsafe { area.start.add(at) };
            // SAFETY: mapped for the lifetime of the borrow of `self`. The switch gives each packet once, and does not
            // access it until the function reports it done.
            let bytes = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), size) };
            (packet, bytes)
        })
    }
}
