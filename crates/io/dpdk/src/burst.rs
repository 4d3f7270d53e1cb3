//! A burst is an `ArrayVec` of packets. For DPDK it is an array of pointers. The functions here append
//! packets at the end, take packets from the front, or free all packets, with one call of DPDK for the whole
//! burst.

use std::ptr;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use crate::Mbuf;

/// Frees all packets of a burst with one call; dropping them takes one call for each.
#[inline]
pub fn free_burst<const N: usize>(burst: &mut ArrayVec<Mbuf, N>) {
    let len = burst.len();
    // SAFETY: 0 is at most the capacity; the packets past the new length are freed below.
    unsafe { burst.set_len(0) };
    if len > 0 {
        // SAFETY: the array holds `len` packets, each is one pointer, and nobody uses these pointers again.
        unsafe { sys::rte_pktmbuf_free_bulk(burst.as_mut_ptr().cast(), len as u32) };
    }
}

/// Calls `fill` with the start and the length of the unused part of the burst. `fill` writes packets there
/// and returns their number; this function returns the same number.
///
/// # Safety
/// The caller guarantees that `fill` writes as many owned packets as it returns, to the first elements, and no more
/// than fit.
#[inline]
pub(crate) unsafe fn fill<const N: usize>(
    burst: &mut ArrayVec<Mbuf, N>,
    fill: impl FnOnce(*mut *mut sys::rte_mbuf, u16) -> usize,
) -> usize {
    const { assert!(N <= u16::MAX as usize) };
    let len = burst.len();
    // SAFETY: `len` is at most N, so the pointer is in the array, or one past its end when the burst is full.
    let end = unsafe { burst.as_mut_ptr().add(len) };
    let added = fill(end.cast(), burst.remaining_capacity() as u16);
    debug_assert!(added <= burst.remaining_capacity());
    // SAFETY: `fill` wrote `added` packets after the first `len`, by this function's contract.
    unsafe { burst.set_len(len + added) };
    added
}

/// Calls `take`, which takes packets from the front and returns their number. The remaining packets move to
/// the front, in order.
///
/// # Safety
/// The caller guarantees that `take` becomes the owner of the first packets, as many as it returns.
#[inline]
pub(crate) unsafe fn take<const N: usize>(
    burst: &mut ArrayVec<Mbuf, N>,
    take: impl FnOnce(*mut *mut sys::rte_mbuf, u16) -> usize,
) -> usize {
    const { assert!(N <= u16::MAX as usize) };
    let (first, len) = (burst.as_mut_ptr(), burst.len());
    let taken = take(first.cast(), len as u16);
    debug_assert!(taken <= len);
    let left = len - taken.min(len);
    // SAFETY: `left` is at most the previous length; the packets past it have another owner, or are copied to the
    // front below.
    unsafe { burst.set_len(left) };
    if left > 0 && taken > 0 {
        // SAFETY: `taken` is less than `len`, so the pointer is in the array.
        let from = unsafe { first.add(taken) };
        // SAFETY: both ranges are in the array, and hold `left` packets, each of which is counted once afterwards.
        unsafe { ptr::copy(from, first, left) };
    }
    taken
}
