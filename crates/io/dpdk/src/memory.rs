//! The memory that EAL has taken: all packets lie there, and nothing of others does.

use core::ops::Range;

use millrace_dpdk_sys as sys;

/// Areas that are asked for first; most processes have fewer.
const FIRST_GUESS: usize = 64;

/// Returns the address ranges of EAL's memory as it is now, without memory that a program has lent it. None before EAL
/// starts.
pub(crate) fn areas() -> Vec<Range<u64>> {
    let mut bounds = vec![[0_u64; 2]; FIRST_GUESS];
    loop {
        let max = u32::try_from(bounds.len()).unwrap_or(u32::MAX);
        // SAFETY: `bounds` has room for that many pairs of numbers, and EAL locks its list meanwhile.
        let len = unsafe { sys::shim_memory_areas(bounds.as_mut_ptr().cast(), max) } as usize;
        let is_complete = len <= bounds.len();
        bounds.resize(len, [0; 2]);
        if is_complete {
            return bounds.into_iter().map(|[start, end]| start..end).collect();
        }
    }
}
