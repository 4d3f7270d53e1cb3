//! The allocator of this program: the system's allocator, which also counts the bytes of the current thread.
//!
//! This file holds the unsafe code that an allocator needs; the crate itself forbids it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Returns the largest number of bytes that `work` had allocated at a time, beyond those before it.
pub(crate) fn peak_of(work: impl FnOnce()) -> usize {
    let before = BYTES.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

fn count(bytes: i64) {
    BYTES.set(BYTES.get() + bytes);
    PEAK.set(PEAK.get().max(BYTES.get()));
}

struct Counting;

// SAFETY: every call is passed unchanged to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, which is that of the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, which is that of the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
