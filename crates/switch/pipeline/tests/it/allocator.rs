//! The allocator of this program: the system's allocator, which also counts the calls of the current thread.
//!
//! This file holds the unsafe code that an allocator needs; the crate itself forbids it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Returns how many times this thread allocated, reallocated or freed.
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

/// Returns the bytes that this thread allocated minus those that it freed, as glibc stores them.
pub(crate) fn bytes() -> i64 {
    BYTES.get()
}

/// Returns the bytes that glibc takes for a request: eight more, in multiples of sixteen, at least 32.
fn stored(size: usize) -> i64 {
    ((size + 8).next_multiple_of(16).max(32)) as i64
}

fn count(bytes: i64) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get() + bytes);
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(stored(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-stored(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, which is that of the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(stored(size) - stored(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, which is that of the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
