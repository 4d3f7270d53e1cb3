//! The memory of EAL. It contains all packets, and no data of other parts of the process.

use core::ops::Range;

use millrace_dpdk_sys as sys;

/// Number of areas in the first query; most processes have fewer.
const FIRST_GUESS: usize = 64;

/// Returns the current address ranges of EAL's memory, without external memory. Returns none before EAL has started.
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
