//! Prefetches of cache lines, which hide the latency of memory that another core wrote last.

#![allow(unsafe_code)]

/// Prefetches the cache line of any address, valid or not, for reading.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accepts any address and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the cache line of any address, valid or not, for writing; other cores lose the line. Stores
/// become visible in order, so a store that waits for a line of another core delays all stores behind it.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accepts any address and changes no state. Processors without `prefetchw` treat it as a no-op.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
