//! Byte ranges in shared memory, which are copied in and out.

use core::marker::PhantomData;
use core::ptr::NonNull;

use millrace_shared_memory::{prefetch, prefetch_to_write};

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// A range of bytes in shared memory (rust-vmm: `VolatileSlice`).
#[derive(Clone, Copy, Debug)]
pub struct GuestSlice<'a> {
    start: NonNull<u8>,
    size: u32,
    /// The borrow of the [`View`](super::View) that keeps the memory mapped.
    view: PhantomData<&'a ()>,
}

impl<'a> GuestSlice<'a> {
    /// Returns the range of `size` bytes from `start`.
    ///
    /// # Safety
    /// The caller guarantees that `size` bytes from `start` are mapped for `'a`, and that no reference to them exists
    /// except to atomics.
    #[inline(always)]
    pub(super) unsafe fn new(start: NonNull<u8>, size: u32) -> GuestSlice<'a> {
        GuestSlice {
            start,
            size,
            view: PhantomData,
        }
    }

    /// Returns the size in bytes.
    #[inline(always)]
    #[must_use]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the range without its first `size` bytes; empty if it has no more.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, size: usize) -> GuestSlice<'a> {
        let size = size.min(self.size());
        GuestSlice {
            // SAFETY: `size` is at most the size of the range, so the pointer is inside the mapping or one
            // past its end.
            start: unsafe { self.start.add(size) },
            size: self.size - size as u32,
            view: PhantomData,
        }
    }

    /// Copies the first bytes out, up to the length of `into`.
    #[inline(always)]
    pub fn read(&self, into: &mut [u8]) {
        let size = into.len().min(self.size());
        // SAFETY: both are `size` bytes long; `into` does not overlap the mapping, to which no other reference exists.
        unsafe { copy(self.start.as_ptr(), into.as_mut_ptr(), size) };
    }

    /// Copies `bytes` to the beginning, as far as they fit.
    #[inline(always)]
    pub fn write(&self, bytes: &[u8]) {
        let size = bytes.len().min(self.size());
        // SAFETY: both are `size` bytes long; `bytes` does not overlap the mapping, to which no other reference exists.
        unsafe { copy(bytes.as_ptr(), self.start.as_ptr(), size) };
    }

    /// Reads the first eight bytes and the next two as numbers, each once. Returns `None` if the range has fewer than
    /// ten bytes.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> Option<(u64, u16)> {
        if self.size() < 10 {
            return None;
        }
        // SAFETY: ten bytes are mapped, as just checked; the access is unaligned.
        let long = unsafe { self.start.cast::<u64>().read_unaligned() };
        // SAFETY: as above.
        let next = unsafe { self.start.add(8) };
        // SAFETY: as above.
        let short = unsafe { next.cast::<u16>().read_unaligned() };
        Some((read_once(long), read_once(u64::from(short)) as u16))
    }

    /// Reads the first two 64-bit words, each once. Returns `None` if the range is shorter or not aligned.
    #[inline]
    #[must_use]
    pub fn words(&self) -> Option<[u64; 2]> {
        let words = self.start.cast::<[u64; 2]>();
        if self.size() < 16 || !words.is_aligned() {
            return None;
        }
        // SAFETY: 16 bytes are mapped and aligned, as just checked, and every bit pattern is a number.
        Some(unsafe { words.read_volatile() })
    }

    /// Writes eight bytes to the beginning, then four more, or two if not `is_long`. Returns false, and writes
    /// nothing, if the range has fewer than twelve bytes.
    ///
    /// The arguments are numbers because an array that was assembled in memory would be read back with a different
    /// access width, which defeats the processor's store-to-load forwarding.
    #[inline(always)]
    pub fn write_first(&self, long: u64, rest: u32, is_long: bool) -> bool {
        if self.size() < 12 {
            return false;
        }
        // SAFETY: twelve bytes are mapped, as just checked; the access is unaligned.
        unsafe { self.start.cast::<u64>().write_unaligned(long) };
        // SAFETY: as above.
        let next = unsafe { self.start.add(8) };
        if is_long {
            // SAFETY: as above.
            unsafe { next.cast::<u32>().write_unaligned(rest) };
        } else {
            // SAFETY: as above.
            unsafe { next.cast::<u16>().write_unaligned(rest as u16) };
        }
        true
    }

    /// Returns true if the range begins with these numbers, as [`Self::write_first`] writes them.
    #[inline(always)]
    #[must_use]
    pub fn begins_with(&self, long: u64, rest: u32, is_long: bool) -> bool {
        if self.size() < 12 {
            return false;
        }
        // SAFETY: twelve bytes are mapped, as just checked; the access is unaligned.
        let found = unsafe { self.start.cast::<u64>().read_unaligned() };
        // SAFETY: as above.
        let next = unsafe { self.start.add(8) };
        // SAFETY: as above.
        let behind = unsafe { next.cast::<u32>().read_unaligned() };
        let mask = if is_long { u32::MAX } else { 0xffff };
        found == long && (behind ^ rest) & mask == 0
    }

    /// Returns true if byte `at` is in another cache line than the first byte.
    #[inline(always)]
    #[must_use]
    pub fn is_apart(&self, at: usize) -> bool {
        let first = self.start.addr().get();
        (first ^ first.wrapping_add(at)) >= LINE
    }

    /// Prefetches the cache line of byte `at`.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        prefetch(self.start.as_ptr().wrapping_add(at));
    }

    /// Prefetches the cache line of byte `at`, for a write.
    #[inline(always)]
    pub fn prefetch_to_write(&self, at: usize) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(at));
    }
}

/// Returns the same number through an optimisation barrier, so that the compiler cannot read the source again.
#[inline(always)]
fn read_once(mut number: u64) -> u64 {
    // SAFETY: the assembly contains no instruction.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// Largest copy in bytes that is done inline; below it, a call of `memcpy` costs as much as the copy.
const SMALL: usize = 256;

/// Copies `size` bytes, short ranges inline.
///
/// # Safety
/// The caller guarantees that `size` bytes can be read at `from` and written at `to`, and that the two do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, size: usize) {
    if size > SMALL {
        // SAFETY: the caller guarantees it.
        unsafe { core::ptr::copy_nonoverlapping(from, to, size) };
    } else if size >= 64 {
        let mut at = 0;
        // The last piece may overlap the one before.
        while at + 64 < size {
            // SAFETY: the piece ends before `size`.
            unsafe { piece::<64>(from, to, at) };
            at += 64;
        }
        // SAFETY: the piece ends at `size`.
        unsafe { piece::<64>(from, to, size - 64) };
    } else {
        // SAFETY: the caller guarantees it, and `size` is less than 64.
        unsafe { copy_few(from, to, size) };
    }
}

/// Copies fewer than 64 bytes inline.
///
/// # Safety
/// As for [`copy`]; `size` is less than 64.
#[inline(always)]
unsafe fn copy_few(from: *const u8, to: *mut u8, size: usize) {
    macro_rules! ends {
        ($half:literal) => {{
            // SAFETY: `size` is at least `$half`.
            unsafe { piece::<$half>(from, to, 0) };
            // SAFETY: as above.
            unsafe { piece::<$half>(from, to, size - $half) };
        }};
    }
    match size {
        32.. => ends!(32),
        16.. => ends!(16),
        8.. => ends!(8),
        4.. => ends!(4),
        2.. => ends!(2),
        1 => {
            // SAFETY: `size` is 1.
            unsafe { piece::<1>(from, to, 0) };
        }
        0 => {}
    }
}

/// Copies the `N` bytes at offset `at`.
///
/// # Safety
/// The caller guarantees that `N` bytes from offset `at` can be read and written.
#[inline(always)]
unsafe fn piece<const N: usize>(from: *const u8, to: *mut u8, at: usize) {
    // SAFETY: the caller guarantees it.
    let from = unsafe { from.add(at) };
    // SAFETY: the caller guarantees it.
    let to = unsafe { to.add(at) };
    // SAFETY: the caller guarantees it; byte arrays need no alignment.
    let bytes = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: as above.
    unsafe { to.cast::<[u8; N]>().write(bytes) };
}
