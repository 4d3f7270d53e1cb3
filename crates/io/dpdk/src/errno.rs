//! DPDK's error numbers, which functions return as negative values or leave in `rte_errno`.

use std::ffi::CStr;
use std::fmt;

use millrace_dpdk_sys as sys;

/// An error number of the system or of DPDK (DPDK's numbers begin at 1001).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// Returns the number. It is positive if DPDK set one.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// Converts a return value: zero or more is success, a negative number the error.
    pub(crate) fn check(code: i32) -> Result<i32, Self> {
        if code < 0 { Err(Self(-code)) } else { Ok(code) }
    }

    /// Returns the thread's `rte_errno` after a failed call.
    pub(crate) fn last() -> Self {
        // SAFETY: the function reads a variable of this thread and has no precondition.
        Self(unsafe { sys::shim_errno() })
    }

    /// Returns true if this is the system's error number `errno`.
    pub(crate) fn is(self, errno: nix::errno::Errno) -> bool {
        self.0 == errno as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the function accepts any number; the text lives in this thread until the next call.
        let text = unsafe { sys::rte_strerror(self.0) };
        // SAFETY: rte_strerror never returns null, and its text ends with a zero byte.
        let text = unsafe { CStr::from_ptr(text) };
        f.write_str(&text.to_string_lossy())
    }
}
