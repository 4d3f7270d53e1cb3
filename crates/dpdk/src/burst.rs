//! Packets by the burst: a fixed array on a worker's stack, so that receiving, sorting and sending allocate nothing.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::slice;

use millrace_dpdk_sys as sys;

use crate::Mbuf;

/// Up to `N` packets, owned, in order. Dropping or clearing it frees them with one call.
///
/// `N` is at most 65,535; 32 to 64 suits the drivers, some of which return nothing to an array with room for fewer
/// than 4 or 8.
pub struct MbufBurst<const N: usize = 32> {
    /// The first `len` are initialised.
    slots: [MaybeUninit<Mbuf>; N],
    len: usize,
}

impl<const N: usize> MbufBurst<N> {
    /// An empty burst.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(N <= u16::MAX as usize) };
        Self {
            slots: [const { MaybeUninit::uninit() }; N],
            len: 0,
        }
    }

    /// How many more packets it takes.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        N - self.len
    }

    /// Whether it takes no more packets.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == N
    }

    /// Puts a packet at the end.
    ///
    /// # Errors
    /// The packet, where the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        match self.slots.get_mut(self.len) {
            Some(slot) => {
                slot.write(packet);
                self.len += 1;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        // SAFETY: the slot was among the first `len`, and is not any more: the packet leaves it once.
        Some(unsafe { self.slots[last].assume_init_read() })
    }

    /// Takes the packet at `index`, and moves those behind it up. `None` where there is none.
    pub fn remove(&mut self, index: usize) -> Option<Mbuf> {
        if index >= self.len {
            return None;
        }
        self[index..].rotate_left(1);
        self.pop()
    }

    /// Moves as many packets from the front of `other` to the end of this one as fit, in order.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        let count = other.len.min(self.room());
        let into = self.slots[self.len..].as_mut_ptr();
        // SAFETY: `count` packets are there in `other`, that much room is here, and the two do not overlap as both
        // are borrowed mutably; `forget_front` makes `other` forget them.
        unsafe { ptr::copy_nonoverlapping(other.slots.as_ptr(), into, count) };
        self.len += count;
        other.forget_front(count);
    }

    /// Takes all packets out, in order; those that the iterator does not return are freed with it.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, N> {
        let end = self.len;
        self.len = 0;
        Drain {
            burst: self,
            next: 0,
            end,
        }
    }

    /// Frees all packets.
    #[inline]
    pub fn clear(&mut self) {
        let len = self.len;
        self.len = 0;
        self.free(0, len);
    }

    /// Lets `fill` initialise some of the free slots, from the first on, and say how many it did.
    #[inline]
    pub(crate) fn fill(&mut self, fill: impl FnOnce(&mut [MaybeUninit<Mbuf>]) -> usize) -> usize {
        let added = fill(&mut self.slots[self.len..]);
        self.len += added;
        debug_assert!(self.len <= N);
        added
    }

    /// Lets `take` move some packets away, from the first on, and say how many it took.
    #[inline]
    pub(crate) fn take(&mut self, take: impl FnOnce(&mut [MaybeUninit<Mbuf>]) -> usize) -> usize {
        let taken = take(&mut self.slots[..self.len]).min(self.len);
        self.forget_front(taken);
        taken
    }

    /// The first `count` packets are somebody else's now; the rest move up.
    #[inline]
    fn forget_front(&mut self, count: usize) {
        if count < self.len && count > 0 {
            let first = self.slots.as_mut_ptr();
            // SAFETY: `count` is less than `len`, so this is a slot.
            let from = unsafe { first.add(count) };
            // SAFETY: both ranges are slots; those left behind are no longer counted, so no packet is there twice.
            unsafe { ptr::copy(from, first, self.len - count) };
        }
        self.len -= count;
    }

    /// Frees the packets in these slots, which are initialised and no longer counted by `len`.
    #[inline]
    fn free(&mut self, from: usize, to: usize) {
        if from < to {
            let first: *mut MaybeUninit<Mbuf> = self.slots[from..to].as_mut_ptr();
            // SAFETY: the slots hold that many packets, each the pointer that an Mbuf is, which nobody uses again.
            unsafe { sys::rte_pktmbuf_free_bulk(first.cast(), (to - from) as u32) };
        }
    }
}

impl<const N: usize> Default for MbufBurst<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Deref for MbufBurst<N> {
    type Target = [Mbuf];

    #[inline]
    fn deref(&self) -> &[Mbuf] {
        // SAFETY: the first `len` slots are initialised.
        unsafe { slice::from_raw_parts(self.slots.as_ptr().cast(), self.len) }
    }
}

impl<const N: usize> DerefMut for MbufBurst<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Mbuf] {
        // SAFETY: the first `len` slots are initialised.
        unsafe { slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast(), self.len) }
    }
}

impl<const N: usize> Drop for MbufBurst<N> {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

impl<const N: usize> fmt::Debug for MbufBurst<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// See [`MbufBurst::drain`].
pub struct Drain<'a, const N: usize> {
    burst: &'a mut MbufBurst<N>,
    /// The slots from `next` to `end` hold the packets that are still to come.
    next: usize,
    end: usize,
}

impl<const N: usize> Iterator for Drain<'_, N> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.end {
            return None;
        }
        let slot = self.next;
        self.next += 1;
        // SAFETY: the slot holds a packet, and `next` has passed it: the packet leaves it once.
        Some(unsafe { self.burst.slots[slot].assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<const N: usize> ExactSizeIterator for Drain<'_, N> {}

impl<const N: usize> Drop for Drain<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.burst.free(self.next, self.end);
    }
}
