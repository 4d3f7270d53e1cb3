//! The time-stamp counter, which a worker reads once for each burst without a system call.

use millrace_dpdk_sys as sys;

use crate::Eal;

/// Returns the time-stamp counter of this core, in [`tsc_hz`] ticks a second. Cost: about 20 cycles; not serialising.
#[inline]
#[must_use]
pub fn rdtsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to user space.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: the function reads a counter of the processor and has no precondition.
        unsafe { sys::shim_rdtsc() }
    }
}

/// Returns the frequency of [`rdtsc`] in ticks per second, as EAL measured it at its start.
#[must_use]
pub fn tsc_hz(_eal: Eal) -> u64 {
    // SAFETY: the token proves that EAL is up and has measured the frequency.
    unsafe { sys::rte_get_tsc_hz() }
}
