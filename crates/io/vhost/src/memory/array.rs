//! Numbers in shared memory, which both sides read and write as atomics.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::sync::Arc;

use super::{Memory, place};

/// What may lie in shared memory: atomics, and arrays of them.
///
/// # Safety
/// Any bytes are a value, and it is only ever accessed by atomic operations.
pub unsafe trait Shared {}

// SAFETY: an atomic.
unsafe impl Shared for AtomicU16 {}
// SAFETY: an atomic.
unsafe impl Shared for AtomicU32 {}
// SAFETY: atomics.
unsafe impl Shared for [AtomicU32; 2] {}
// SAFETY: atomics.
unsafe impl Shared for [AtomicU64; 2] {}

/// Numbers, or groups of them, one behind the other.
#[derive(Debug)]
pub struct Array<T> {
    start: NonNull<T>,
    len: u16,
    /// What `start` points into.
    _memory: Arc<Memory>,
}

// SAFETY: it points into the memory that it holds, and is accessed by atomics.
unsafe impl<T: Shared> Send for Array<T> {}

impl<T: Shared> Array<T> {
    /// None if `start` is not aligned, or there are none.
    ///
    /// # Safety
    /// `len` of them from `start` on are mapped for as long as `memory` is there, and are never accessed but by atomics
    /// and as bytes.
    pub(super) unsafe fn new(start: NonNull<u8>, len: u16, memory: Arc<Memory>) -> Option<Array<T>> {
        let start = start.cast::<T>();
        (start.is_aligned() && len > 0).then_some(Array {
            start,
            len,
            _memory: memory,
        })
    }

    /// How many.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "it has one at least")]
    pub fn len(&self) -> u16 {
        self.len
    }

    /// Begins to load the line of the one at an index.
    #[inline(always)]
    pub fn prefetch(&self, index: u16) {
        place::prefetch(self.start.as_ptr().wrapping_add(usize::from(index)).cast());
    }

    /// The same, to write to it.
    #[inline(always)]
    pub fn prefetch_to_write(&self, index: u16) {
        place::prefetch_to_write(self.start.as_ptr().wrapping_add(usize::from(index)).cast());
    }

    /// The one at an index; the first, if there are not so many.
    #[inline(always)]
    pub fn at(&self, index: u16) -> &T {
        let index = if index < self.len { index } else { 0 };
        // SAFETY: less than the length, so within the mapping.
        let place = unsafe { self.start.add(usize::from(index)) };
        // SAFETY: mapped for as long as `self`, aligned as the first one is, and any bytes are a value.
        unsafe { place.as_ref() }
    }
}
