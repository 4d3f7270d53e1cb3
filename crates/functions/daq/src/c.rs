//! The parts of C that both interfaces need: strings, handles, time.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_nf::Direction;

/// `struct timeval`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeValue {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Microseconds.
    pub micros: i64,
}

impl TimeValue {
    /// Returns the current time.
    pub(crate) fn now() -> TimeValue {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        TimeValue {
            seconds: unix.as_secs().cast_signed(),
            micros: i64::from(unix.subsec_micros()),
        }
    }
}

/// Return codes of libdaq (`DAQ_SUCCESS` and others).
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const ERROR: c_int = -1;
pub(crate) const ERROR_NODEV: c_int = -3;
pub(crate) const ERROR_NOTSUP: c_int = -4;
pub(crate) const ERROR_INVAL: c_int = -7;

/// Index of an unknown interface or interface group.
pub(crate) const UNKNOWN: i32 = -1;
/// The link type Ethernet (`DLT_EN10MB`).
pub(crate) const ETHERNET: c_int = 1;

/// The sleep between two polls while no packet arrives. An interrupt is noticed within this time.
pub(crate) const POLL: Duration = Duration::from_micros(50);
/// Empty polls before the first sleep.
pub(crate) const SPINS: u32 = 64;

/// Returns the index of the interface on which a packet arrived: 0 for forward, 1 for backward.
pub(crate) fn ingress(direction: Direction) -> i32 {
    direction.to_raw().cast_signed()
}

/// Returns the direction of packets that arrived on an interface, or the opposite direction if `is_reverse`.
pub(crate) fn direction(ingress: i32, is_reverse: bool) -> Direction {
    match (ingress == 1) != is_reverse {
        false => Direction::Forward,
        true => Direction::Backward,
    }
}

/// Returns a C string of the caller, or an empty one if the pointer is null or the bytes are not UTF-8.
///
/// # Safety
/// The pointer is null, or points to a NUL-terminated string that outlives the returned text.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: by the contract of this function.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().unwrap_or_default()
}

/// Writes a text and a NUL into a buffer of the caller. A text that is too long is truncated.
///
/// # Safety
/// The pointer is null, or points to `size` bytes that nothing else accesses during the call.
pub(crate) unsafe fn write_text(buffer: *mut c_char, size: usize, text: &str) {
    if buffer.is_null() || size == 0 {
        return;
    }
    let len = text.len().min(size - 1);
    let bytes = text.as_bytes().as_ptr().cast::<c_char>();
    // SAFETY: `len` is less than `size`, and at most the length of the text.
    unsafe { buffer.copy_from_nonoverlapping(bytes, len) };
    // SAFETY: as above.
    let end = unsafe { buffer.add(len) };
    // SAFETY: as above.
    unsafe { end.write(0) };
}

/// Returns the value that a handle refers to, or `None` for a null pointer.
///
/// # Safety
/// The handle is null, or is from `Box::into_raw` of a `T` that has not been freed.
pub(crate) unsafe fn handle<'a, T>(handle: *mut c_void) -> Option<&'a T> {
    // SAFETY: by the contract of this function. All changes of the value go through its cells.
    unsafe { handle.cast::<T>().as_ref() }
}

/// Waits between two polls that found nothing. Returns false once `limit` has passed since `began`.
pub(crate) fn pause(polls: &mut u32, began: Instant, limit: Option<Duration>) -> bool {
    *polls = polls.saturating_add(1);
    if *polls > SPINS {
        std::thread::sleep(POLL);
    } else {
        std::thread::yield_now();
    }
    limit.is_none_or(|limit| began.elapsed() < limit)
}
