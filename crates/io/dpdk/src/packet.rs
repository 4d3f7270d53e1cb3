//! Implements the switch's packet trait for mbufs.

use std::num::NonZeroU16;

use arrayvec::ArrayVec;
use millrace_wire::checksum::Sum;
use millrace_wire::{Mark, NoHeadroom, Packet};

use crate::{Mbuf, free_burst};

impl Packet for Mbuf {
    #[inline]
    fn len(&self) -> usize {
        Mbuf::len(self)
    }

    #[inline]
    fn head(&self) -> &[u8] {
        Mbuf::head(self)
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        Mbuf::head_mut(self)
    }

    #[inline]
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        Mbuf::prepend(self, size).map(|_| ()).ok_or(NoHeadroom)
    }

    #[inline]
    fn trim_front(&mut self, size: usize) {
        let size = size.min(Mbuf::head(self).len());
        // The head has at least `size` bytes, so this cannot fail.
        let _trimmed = self.adj(size);
    }

    #[inline]
    fn truncate(&mut self, size: usize) -> bool {
        let surplus = Mbuf::len(self).saturating_sub(size);
        surplus == 0 || self.trim(surplus)
    }

    /// Appends to the last segment, if there are several.
    #[inline]
    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        Mbuf::append(self, size)
    }

    #[inline]
    fn room(&self) -> usize {
        self.tailroom()
    }

    /// Links the segments of `tail` without copying.
    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        Mbuf::chain(self, tail)
    }

    #[inline]
    fn each_segment<'a>(&'a self, see: &mut impl FnMut(&'a [u8])) {
        for segment in self.segments() {
            see(segment);
        }
    }

    /// Returns a copy in the same pool.
    fn try_clone(&self) -> Option<Self> {
        self.deep_copy(self.pool())
    }

    fn sum(&self, begin: usize, size: usize) -> Sum {
        let (mut skip, mut left, mut done) = (begin, size, 0_usize);
        let mut sum = Sum::default();
        for segment in self.segments() {
            let from = skip.min(segment.len());
            skip -= from;
            let part = &segment[from..];
            let part = &part[..part.len().min(left)];
            // A part that begins at an odd offset is added byte-swapped (RFC 1071, section 2).
            let folded = Sum::of(part).folded();
            sum = sum.add16(if done.is_multiple_of(2) {
                folded
            } else {
                folded.swap_bytes()
            });
            done += part.len();
            left -= part.len();
        }
        sum
    }

    /// Returns a packet with these bytes, in as many segments of the same pool as needed.
    fn alloc_like(&self, bytes: &[u8]) -> Option<Self> {
        self.pool().packet(bytes)
    }

    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize) {
        let mut left = max_len;
        for segment in self.segments() {
            let take = segment.len().min(left);
            out.extend_from_slice(&segment[..take]);
            left -= take;
        }
    }

    #[inline]
    fn segment_size(&self) -> Option<NonZeroU16> {
        Mbuf::segment_size(self)
    }

    fn set_segment_size(&mut self, size: Option<NonZeroU16>) {
        Mbuf::set_segment_size(self, size);
    }

    fn gso_segment(&self, header: &[u8], at: usize, size: usize) -> Option<Self> {
        Mbuf::gso_segment(self, header, at, size)
    }

    #[inline]
    fn take_mark(&mut self) -> Option<Mark> {
        Mbuf::take_mark(self).and_then(Mark::new)
    }

    #[inline]
    fn prefetch(&self) {
        Mbuf::prefetch(self);
    }

    #[inline]
    fn prefetch_head(&self) {
        Mbuf::prefetch_head(self);
    }

    /// Returns the address of the packet in DPDK's memory, whose files other processes can map, and the size of the
    /// headroom in bytes.
    #[inline]
    fn shared_address(&self) -> Option<(u64, usize)> {
        Some((Mbuf::head(self).as_ptr() as u64, self.headroom()))
    }

    fn shared_memory() -> Vec<core::ops::Range<u64>> {
        crate::memory::areas()
    }

    #[inline]
    fn discard<const N: usize>(burst: &mut ArrayVec<Self, N>) {
        free_burst(burst);
    }
}
