//! Packets from pools, one by one and in bursts.

use std::ptr::NonNull;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use crate::{Mbuf, Mempool, burst};

impl Mempool {
    /// Returns an empty packet with the full headroom; `None` if the pool is empty.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool lives as long as the process.
        let raw = unsafe { sys::shim_alloc(self.as_raw()) };
        // SAFETY: the pool gave the buffer to this function alone, initialised, with reference count 1.
        NonNull::new(raw).map(|raw| unsafe { Mbuf::from_raw(raw) })
    }

    /// Returns a packet with these bytes, in as many segments as needed; `None` if the pool has too few buffers.
    #[must_use]
    pub fn packet(&self, bytes: &[u8]) -> Option<Mbuf> {
        let mut pieces = bytes.chunks(self.segment_size().max(1));
        let mut packet = self.alloc()?;
        let first = pieces.next().unwrap_or_default();
        packet.append(first.len())?.copy_from_slice(first);
        for piece in pieces {
            let mut segment = self.alloc()?;
            segment.append(piece.len())?.copy_from_slice(piece);
            packet.chain(segment).ok()?;
        }
        Some(packet)
    }

    /// Fills the rest of `burst` with empty packets, or adds none if the pool has too few. Returns the number added.
    #[inline]
    pub fn alloc_burst<const N: usize>(&self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.alloc_up_to(N, burst)
    }

    /// Adds at most `len` empty packets to `burst`: as many as fit, or none if the pool has too few. Returns the
    /// number added.
    #[inline]
    pub fn alloc_up_to<const N: usize>(&self, len: usize, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        let alloc = |first, room: u16| {
            let len = len.min(usize::from(room));
            // SAFETY: the pool lives as long as the process, and there is room for that many pointers.
            let code = unsafe { sys::shim_alloc_bulk(self.as_raw(), first, len as u32) };
            if code == 0 { len } else { 0 }
        };
        // SAFETY: the pool gives initialised buffers to this function alone: all that were requested, or none.
        unsafe { burst::fill(burst, alloc) }
    }
}
