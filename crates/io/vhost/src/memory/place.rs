//! Bytes in shared memory, copied in and out.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::View;

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Bytes of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    start: NonNull<u8>,
    size: u32,
    memory: PhantomData<&'a View>,
}

impl<'a> Place<'a> {
    /// # Safety
    /// So many bytes from there on are mapped for as long as `'a`, and nobody makes a reference to them that is not to
    /// atomics.
    #[inline(always)]
    pub(super) unsafe fn new(start: NonNull<u8>, size: u32) -> Place<'a> {
        Place {
            start,
            size,
            memory: PhantomData,
        }
    }

    /// How many.
    #[inline(always)]
    #[must_use]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// All but the first `size` bytes; none of them if there are no more.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, size: usize) -> Place<'a> {
        let size = size.min(self.size());
        Place {
            // SAFETY: no more than the place has, so within the mapping, or just behind it.
            start: unsafe { self.start.add(size) },
            size: self.size - size as u32,
            memory: PhantomData,
        }
    }

    /// Copies its first bytes out: as many as there are, and are wanted.
    #[inline(always)]
    pub fn read(&self, into: &mut [u8]) {
        let size = into.len().min(self.size());
        // SAFETY: both are so long; ours does not overlap the mapping, to which nobody else has a reference.
        unsafe { copy(self.start.as_ptr(), into.as_mut_ptr(), size) };
    }

    /// Copies bytes to its beginning: as many as there are, and fit.
    #[inline(always)]
    pub fn write(&self, bytes: &[u8]) {
        let size = bytes.len().min(self.size());
        // SAFETY: both are so long; ours does not overlap the mapping, to which nobody else has a reference.
        unsafe { copy(bytes.as_ptr(), self.start.as_ptr(), size) };
    }

    /// Its first eight bytes as a number, and the next two, read once; none if there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> Option<(u64, u16)> {
        if self.size() < 10 {
            return None;
        }
        // SAFETY: so many bytes are mapped, aligned or not.
        let long = unsafe { self.start.cast::<u64>().read_unaligned() };
        // SAFETY: as above.
        let next = unsafe { self.start.add(8) };
        // SAFETY: as above.
        let short = unsafe { next.cast::<u16>().read_unaligned() };
        Some((settle(long), settle(u64::from(short)) as u16))
    }

    /// Its first two numbers, read once; none if there are fewer, or they are not aligned.
    #[inline]
    #[must_use]
    pub fn words(&self) -> Option<[u64; 2]> {
        let words = self.start.cast::<[u64; 2]>();
        if self.size() < 16 || !words.is_aligned() {
            return None;
        }
        // SAFETY: so many bytes are mapped, aligned, and any bytes are numbers.
        Some(unsafe { words.read_volatile() })
    }

    /// Writes eight bytes to its beginning, and two more, or four. False, and nothing is written, if it has no twelve.
    ///
    /// As numbers: an array that was put together in memory is read back in other pieces than it was written in, for which
    /// a processor waits.
    #[inline(always)]
    pub fn write_first(&self, long: u64, rest: u32, is_long: bool) -> bool {
        if self.size() < 12 {
            return false;
        }
        // SAFETY: so many bytes are mapped, aligned or not.
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

    /// Whether it begins with these numbers, as [`Self::write_first`] writes them.
    #[inline(always)]
    #[must_use]
    pub fn begins_with(&self, long: u64, rest: u32, is_long: bool) -> bool {
        if self.size() < 12 {
            return false;
        }
        // SAFETY: so many bytes are mapped, aligned or not.
        let found = unsafe { self.start.cast::<u64>().read_unaligned() };
        // SAFETY: as above.
        let next = unsafe { self.start.add(8) };
        // SAFETY: as above.
        let behind = unsafe { next.cast::<u32>().read_unaligned() };
        let mask = if is_long { u32::MAX } else { 0xffff };
        found == long && (behind ^ rest) & mask == 0
    }

    /// Whether byte `at` is in another line of the cache than the first one.
    #[inline(always)]
    #[must_use]
    pub fn is_apart(&self, at: usize) -> bool {
        let first = self.start.addr().get();
        (first ^ first.wrapping_add(at)) >= LINE
    }

    /// Begins to load the line of byte `at`.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        prefetch(self.start.as_ptr().wrapping_add(at));
    }

    /// Begins to load the line of byte `at`, to be written to.
    #[inline(always)]
    pub fn prefetch_to_write(&self, at: usize) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(at));
    }
}

/// Begins to load the line of an address, whatever it is.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch may name any address; it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same, to write to it.
#[inline(always)]
pub(super) fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch may name any address, and changes nothing; processors that do not know this one pass over it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same number, of which the compiler does not know where it is from: it is not read again.
#[inline(always)]
fn settle(mut number: u64) -> u64 {
    // SAFETY: it does nothing.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// Up to this size bytes are moved here; a call of `memcpy` costs as much as they do.
const SMALL: usize = 256;

/// # Safety
/// `size` bytes can be read and written, and do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, size: usize) {
    if size > SMALL {
        // SAFETY: the caller's.
        unsafe { core::ptr::copy_nonoverlapping(from, to, size) };
    } else if size >= 64 {
        let mut at = 0;
        // The last piece overlaps the one before.
        while at + 64 < size {
            // SAFETY: it ends before `size`.
            unsafe { piece::<64>(from, to, at) };
            at += 64;
        }
        // SAFETY: it ends at `size`.
        unsafe { piece::<64>(from, to, size - 64) };
    } else {
        // SAFETY: the caller's.
        unsafe { copy_few(from, to, size) };
    }
}

/// # Safety
/// As [`copy`]'s, and `size` is less than 64.
#[inline(always)]
unsafe fn copy_few(from: *const u8, to: *mut u8, size: usize) {
    macro_rules! ends {
        ($half:literal) => {{
            // SAFETY: `size` is no less than the half.
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
            // SAFETY: there is one.
            unsafe { piece::<1>(from, to, 0) };
        }
        0 => {}
    }
}

/// # Safety
/// `N` bytes from `at` on can be read and written.
#[inline(always)]
unsafe fn piece<const N: usize>(from: *const u8, to: *mut u8, at: usize) {
    // SAFETY: the caller's.
    let from = unsafe { from.add(at) };
    // SAFETY: the caller's.
    let to = unsafe { to.add(at) };
    // SAFETY: the caller's; arrays of bytes need no alignment.
    let bytes = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: as above.
    unsafe { to.cast::<[u8; N]>().write(bytes) };
}
