//! Arrays of atomics in shared memory.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::sync::Arc;

use millrace_shared_memory::{prefetch, prefetch_to_write};

use super::Memory;

/// Types that may be in shared memory: atomics, and arrays of them.
///
/// # Safety
/// Every bit pattern is a valid value, and all accesses are atomic.
pub unsafe trait Shared {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU16 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an array of atomic integers.
unsafe impl Shared for [AtomicU32; 2] {}
// SAFETY: an array of atomic integers.
unsafe impl Shared for [AtomicU64; 2] {}

/// Consecutive atomics, or groups of atomics, in shared memory; at least one.
#[derive(Debug)]
pub struct AtomicArray<T> {
    start: NonNull<T>,
    len: u16,
    /// The memory that contains `start`; it stays mapped while the array exists.
    _memory: Arc<Memory>,
}

// SAFETY: the array points into the memory that `_memory` keeps mapped, and all accesses are atomic.
unsafe impl<T: Shared> Send for AtomicArray<T> {}

impl Memory {
    /// Returns `len` atomics at the front-end address `user`, or `None` if the array is not inside one region or not
    /// aligned.
    #[must_use]
    pub fn array<T: Shared>(self: &Arc<Self>, user: u64, len: u16) -> Option<AtomicArray<T>> {
        let size = (size_of::<T>() as u64) * u64::from(len);
        let found = self.regions.iter().find_map(|region| {
            let at = user.checked_sub(region.user)?;
            (size <= region.size.checked_sub(at)?).then_some((region, at))
        });
        let (region, at) = found?;
        // SAFETY: the offset is less than the region's size, as just checked, and so inside its mapping.
        let start = unsafe { region.start.add(at as usize) };
        // SAFETY: `len` elements from `start` are inside the mapping, which the array holds.
        unsafe { AtomicArray::new(start, len, Arc::clone(self)) }
    }
}

impl<T: Shared> AtomicArray<T> {
    /// Returns the array of `len` elements from `start`, or `None` if `start` is not aligned or `len` is 0.
    ///
    /// # Safety
    /// The caller guarantees that `len` elements from `start` are mapped while `memory` exists, and that they are
    /// accessed only as atomics or by copies of raw bytes.
    unsafe fn new(start: NonNull<u8>, len: u16, memory: Arc<Memory>) -> Option<AtomicArray<T>> {
        let start = start.cast::<T>();
        (start.is_aligned() && len > 0).then_some(AtomicArray {
            start,
            len,
            _memory: memory,
        })
    }

    /// Returns the number of elements.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "it has one at least")]
    pub fn len(&self) -> u16 {
        self.len
    }

    /// Prefetches the cache line of an element.
    #[inline(always)]
    pub fn prefetch(&self, index: u16) {
        prefetch(self.start.as_ptr().wrapping_add(usize::from(index)).cast());
    }

    /// Prefetches the cache line of an element, for a write.
    #[inline(always)]
    pub fn prefetch_to_write(&self, index: u16) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(usize::from(index)).cast());
    }

    /// Returns the element at `index`, or element 0 if `index` is out of range.
    #[inline(always)]
    pub fn at(&self, index: u16) -> &T {
        let index = if index < self.len { index } else { 0 };
        // SAFETY: the index is less than the length, so the element is inside the mapping.
        let slice = unsafe { self.start.add(usize::from(index)) };
        // SAFETY: mapped while `self` exists, aligned as the first element is, and valid for every bit pattern.
        unsafe { slice.as_ref() }
    }
}
