//! Memory that two processes map: the only unsafe code of the crate.
//!
//! # The promise
//! Every access is within the mapping and aligned, whatever the other process has written. What it has written may be
//! anything: numbers are read once, by an atomic load, and then checked; bytes are copied, or lent to the side that
//! owns them by the protocol in [`super`].
//!
//! # The argument
//! A [`Region`] is one shared mapping of a memory file whose size is sealed before it is handed over, so that it can
//! neither shrink nor grow under the mapping: no access faults. Cursors are `AtomicU64`s. The other process may write
//! bytes while they are copied here only if it breaks the protocol; the copy then holds some mixture, which is checked
//! as any foreign bytes are.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;

/// A shared mapping.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; nothing in it is tied to one.
unsafe impl Send for Region {}

impl Region {
    /// New memory, all zeros, and the file by which another process can map it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(name: &str, size: usize) -> io::Result<(Region, OwnedFd)> {
        let file = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len(size as u64)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let region = Region::map(&file, size)?;
        Ok((region, file.into()))
    }

    /// Memory that another process has made.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(file: &File) -> io::Result<Region> {
        let size = usize::try_from(fstat(file)?.st_size).unwrap_or(0);
        Region::map(file, size)
    }

    fn map(file: &impl AsFd, size: usize) -> io::Result<Region> {
        let length = NonZeroUsize::new(size).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes it touches no memory of ours.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Region {
            start: start.cast(),
            size,
        })
    }

    /// Bytes of it.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number at a place, a multiple of eight; the first one if that is not within.
    #[inline]
    pub(crate) fn number(&self, at: usize) -> &AtomicU64 {
        let at = match at.is_multiple_of(8) && at <= self.size.saturating_sub(8) {
            true => at,
            false => 0,
        };
        // SAFETY: eight bytes from here on are within the mapping, which begins at a page.
        let number = unsafe { self.start.add(at) }.cast::<AtomicU64>();
        // SAFETY: aligned, mapped for as long as `self`, and only ever accessed as an atomic.
        unsafe { number.as_ref() }
    }

    /// The byte at a place; the first one if that is not within.
    #[inline]
    pub(crate) fn byte(&self, at: usize) -> &AtomicU8 {
        let at = if at < self.size { at } else { 0 };
        // SAFETY: within the mapping, which has a byte at least.
        let byte = unsafe { self.start.add(at) }.cast::<AtomicU8>();
        // SAFETY: mapped for as long as `self`, and only ever accessed as an atomic.
        unsafe { byte.as_ref() }
    }

    /// Begins to fetch the line of a place, to be read.
    #[inline]
    pub(crate) fn fetch(&self, at: usize) {
        prefetch(self.start.as_ptr().wrapping_add(at));
    }

    /// Begins to fetch the line of a place, to be written: other cores lose it.
    #[inline]
    pub(crate) fn own(&self, at: usize) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(at));
    }

    /// Writes two numbers side by side, at a multiple of 16, at once; nothing if that is not within. Twice as many such
    /// stores as halves can wait for lines of another core, and while they wait, their lines are fetched side by side.
    #[inline(always)]
    pub(crate) fn write_pair(&self, at: usize, [first, second]: [u64; 2]) {
        if !at.is_multiple_of(16) || !self.holds(at, 16) {
            return;
        }
        // SAFETY: sixteen bytes from here on are within the mapping, as was just checked.
        let to = unsafe { self.start.add(at) };
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_store_si128};
            // SAFETY: all processors of this architecture have the instruction.
            let pair = unsafe { _mm_set_epi64x(second as i64, first as i64) };
            // SAFETY: mapped, aligned as the mapping begins at a page, and not read before it is told that this is there.
            unsafe { _mm_store_si128(to.as_ptr().cast::<__m128i>(), pair) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: as above.
        unsafe {
            to.cast::<[u64; 2]>().write([first, second]);
        }
    }

    /// Whether so many bytes from there on are within.
    #[inline]
    fn holds(&self, at: usize, size: usize) -> bool {
        at.checked_add(size).is_some_and(|end| end <= self.size)
    }

    /// Copies bytes in. Returns whether they are within.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> bool {
        if !self.holds(at, bytes.len()) {
            return false;
        }
        // SAFETY: within the mapping, as was just checked.
        let to = unsafe { self.start.add(at) };
        // SAFETY: both are so long, and ours does not overlap the mapping, which nobody else refers to.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        true
    }

    /// Copies bytes out. Returns whether they are within.
    #[inline]
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) -> bool {
        if !self.holds(at, bytes.len()) {
            return false;
        }
        // SAFETY: within the mapping, as was just checked.
        let from = unsafe { self.start.add(at) };
        let size = bytes.len();
        // SAFETY: both are so long, and ours does not overlap the mapping, which nobody else refers to.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(bytes).cast(), size) };
        true
    }

    /// Lends bytes to the one who owns them by the protocol; none if they are not within.
    #[inline]
    pub(crate) fn lend(&mut self, at: usize, size: usize) -> &mut [u8] {
        if !self.holds(at, size) {
            return &mut [];
        }
        // SAFETY: within the mapping, as was just checked.
        let start = unsafe { self.start.add(at) };
        // SAFETY: mapped for as long as `self`, which is borrowed for as long; the other process has given these bytes
        // away until it is told that they are done with, and loses nothing of ours if it does not keep to that.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), size) }
    }
}

/// Memory of the switch in which packets lie, mapped where the switch has it.
#[derive(Debug, Default)]
pub struct PacketMemory {
    parts: Vec<Region>,
    /// Parts that lie side by side, taken together: hundreds of huge pages are a span or two, so that the one of a packet
    /// is found at once.
    spans: Vec<Span>,
}

/// Addresses that are all mapped.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: an address of a mapping that any thread may use, as `Region` is; `PacketMemory` says who may when.
unsafe impl Send for Span {}

impl PacketMemory {
    /// Maps a part of a file at an address, where nothing else may be.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn map(&mut self, file: &File, address: usize, size: usize, offset: i64) -> io::Result<()> {
        let length = NonZeroUsize::new(size).ok_or(io::ErrorKind::InvalidInput)?;
        let address = NonZeroUsize::new(address).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: a mapping that replaces none touches no memory of ours.
        let start = unsafe { mmap(Some(address), length, protection, flags, file, offset) }?;
        let part = Region {
            start: start.cast(),
            size,
        };
        // Old kernels take the address for a hint.
        if part.start.as_ptr() as usize != address.get() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.parts.push(part);
        self.spans = self.joined();
        Ok(())
    }

    fn joined(&self) -> Vec<Span> {
        let mut parts: Vec<Span> = self
            .parts
            .iter()
            .map(|part| Span {
                start: part.start,
                size: part.size,
            })
            .collect();
        parts.sort_by_key(|part| part.start);
        let mut spans: Vec<Span> = Vec::new();
        for part in parts {
            match spans.last_mut() {
                Some(last) if last.start.as_ptr() as usize + last.size == part.start.as_ptr() as usize => {
                    last.size += part.size;
                }
                _ => spans.push(part),
            }
        }
        spans
    }

    /// Lends the bytes of packets, from an address on so many, to the one who owns them by the protocol; none of one that
    /// is not within. Those of different packets must not overlap, which the switch sees to: this is its memory. With
    /// each goes what else is known of it.
    #[inline]
    pub(crate) fn lend<T>(
        &mut self,
        packets: impl Iterator<Item = (T, u64, usize)>,
    ) -> impl Iterator<Item = (T, &mut [u8])> {
        let spans = &self.spans;
        packets.map(move |(packet, address, size)| {
            let within = spans.iter().find_map(|span| {
                let at = usize::try_from(address)
                    .ok()?
                    .checked_sub(span.start.as_ptr() as usize)?;
                let holds = at <= span.size && size <= span.size - at;
                holds.then_some((span, at))
            });
            let Some((span, at)) = within else {
                return (packet, &mut [][..]);
            };
            // SAFETY: within mappings that lie side by side, as was just checked.
            let start = unsafe { span.start.add(at) };
            // SAFETY: mapped for as long as `self`, which is borrowed for as long; the switch has given these bytes away,
            // each packet's once, until it is told that they are done with.
            let bytes = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), size) };
            (packet, bytes)
        })
    }
}

/// Begins to fetch a line that is to be read.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch may name any address; it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Begins to fetch a line that is to be written, so that the stores to it wait for no other core: they become visible in
/// their order, and one that waits keeps all behind it.
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch may name any address; it never faults. Processors of this architecture that do not know this one
    // take it for no operation.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, whole, and nobody borrows it any more.
        let _unmapped = unsafe { munmap(self.start.cast(), self.size) };
    }
}
