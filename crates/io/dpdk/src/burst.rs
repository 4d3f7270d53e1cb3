//! A burst is an `ArrayVec` of packets, and to DPDK an array of pointers: its functions fill the free end, or take
//! from the front, or free them all, with one call for the whole burst.

use std::ptr;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use crate::Mbuf;

/// Frees all packets of a burst with one call, where dropping them takes one for each.
#[inline]
pub fn free_burst<const N: usize>(burst: &mut ArrayVec<Mbuf, N>) {
    let len = burst.len();
    // SAFETY: none is more than there are; the packets behind the new length are freed below.
    unsafe { burst.set_len(0) };
    if len > 0 {
        // SAFETY: that many packets are there, each the pointer that an Mbuf is, which nobody uses again.
        unsafe { sys::rte_pktmbuf_free_bulk(burst.as_mut_ptr().cast(), len as u32) };
    }
}

/// Has `fill` write packets into the free end, of which it is told the beginning and how many fit, and say how many
/// it wrote. Returns that.
///
/// # Safety
/// `fill` writes owned packets to the first so many places, and returns a number that is no greater.
#[inline]
pub(crate) unsafe fn fill<const N: usize>(
    burst: &mut ArrayVec<Mbuf, N>,
    fill: impl FnOnce(*mut *mut sys::rte_mbuf, u16) -> usize,
) -> usize {
    const { assert!(N <= u16::MAX as usize) };
    let len = burst.len();
    // SAFETY: `len` is at most N, so this is in the array, or just behind it when the burst is full.
    let end = unsafe { burst.as_mut_ptr().add(len) };
    let added = fill(end.cast(), burst.remaining_capacity() as u16);
    debug_assert!(added <= burst.remaining_capacity());
    // SAFETY: the caller's `fill` has written that many packets behind the first `len`.
    unsafe { burst.set_len(len + added) };
    added
}

/// Has `take` move packets away, from the first on, and say how many it took. The others move up, in order.
///
/// # Safety
/// `take` becomes the owner of the first so many packets, and returns how many.
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
    // SAFETY: fewer than there were; those that are not counted any more have another owner, or are counted by the
    // lines below, which copy them to the front.
    unsafe { burst.set_len(left) };
    if left > 0 && taken > 0 {
        // SAFETY: `taken` is less than `len`, so this is in the array.
        let from = unsafe { first.add(taken) };
        // SAFETY: both ranges are in the array, and hold `left` packets, each of which is counted once afterwards.
        unsafe { ptr::copy(from, first, left) };
    }
    taken
}
