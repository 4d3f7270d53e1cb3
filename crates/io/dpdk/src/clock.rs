//! The time-stamp counter: what a worker may read for each burst without a system call.

use millrace_dpdk_sys as sys;

use crate::Eal;

/// The time-stamp counter of this core, in [`tsc_hz`] ticks a second. Cost: about 20 cycles; not serialising.
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
        // SAFETY: reads a counter of the processor; no precondition.
        unsafe { sys::shim_rdtsc() }
    }
}

/// Ticks of [`rdtsc`] a second, as EAL measured it when it started.
#[must_use]
pub fn tsc_hz(_eal: Eal) -> u64 {
    // SAFETY: EAL is up, says the token, and has measured the frequency.
    unsafe { sys::rte_get_tsc_hz() }
}
