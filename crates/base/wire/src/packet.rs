//! The trait of packet buffers, and its implementation for heap memory. With the trait, all code above the
//! drivers works on mbufs and on heap memory.
//!
//! The *head* of a packet is its contiguous first segment, which holds every header that is read or
//! rewritten. In front of the head is *headroom* for pushed headers. Further segments may follow; they are
//! sent without being read.

use core::fmt;
use core::num::NonZeroU16;
use std::sync::Arc;

use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;

use crate::Mark;
use crate::checksum::Sum;

/// One packet buffer: a contiguous head with headroom, perhaps followed by further segments.
pub trait Packet: Sized + Send {
    /// Returns the size of all segments in bytes.
    fn len(&self) -> usize;

    /// Returns true if the packet has no bytes.
    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the contiguous first segment.
    fn head(&self) -> &[u8];

    /// Returns the contiguous first segment, mutable.
    fn head_mut(&mut self) -> &mut [u8];

    /// Grows the head by `size` bytes at its front. The content of the new bytes is unspecified (zero in a [`Frame`]).
    ///
    /// # Errors
    /// [`NoHeadroom`] if fewer than `size` bytes are free in front; the packet is then unchanged.
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom>;

    /// Removes `size` bytes at the front of the head, or the whole head if it has fewer bytes.
    fn trim_front(&mut self, size: usize);

    /// Removes all bytes after the first `size` bytes. Returns false, and leaves the packet unchanged, if the
    /// bytes to remove are not all in the last segment.
    #[inline]
    fn truncate(&mut self, size: usize) -> bool {
        self.len() <= size
    }

    /// Grows a packet of one segment by `size` bytes at its end, and returns the new bytes; their content is
    /// unspecified. Returns `None`, and leaves the packet unchanged, if the buffer has less tailroom or the
    /// tailroom is unknown.
    #[inline]
    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        let _ = size;
        None
    }

    /// Returns the number of bytes that [`Self::append`] accepts.
    #[inline]
    fn room(&self) -> usize {
        0
    }

    /// Appends another packet as further segments.
    ///
    /// # Errors
    /// The other packet, if no more segments are possible; both are then unchanged.
    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        Err(tail)
    }

    /// Calls `see` with the bytes of each segment, in order.
    #[inline]
    fn each_segment<'a>(&'a self, see: &mut impl FnMut(&'a [u8])) {
        see(self.head());
    }

    /// Returns an independent deep copy; `None` if no buffer is free.
    fn try_clone(&self) -> Option<Self>;

    /// Returns a packet with these bytes from the same pool; `None` if no buffer is free or the bytes do not fit.
    fn alloc_like(&self, bytes: &[u8]) -> Option<Self> {
        let _ = bytes;
        None
    }

    /// Returns the Internet checksum sum of up to `size` bytes from offset `begin`, over all segments.
    fn sum(&self, begin: usize, size: usize) -> Sum {
        let head = self.head();
        let end = begin.saturating_add(size).min(head.len());
        Sum::of(head.get(begin..end).unwrap_or_default())
    }

    /// Appends the first `max_len` bytes, over all segments, to `out`.
    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize);

    /// Takes the mark that a flow rule of the device put on the packet out of the buffer. The receive path calls this once,
    /// so that no packet carries a mark further than to the worker that received it: a mark says something about the bytes
    /// that the device has seen.
    #[inline]
    fn take_mark(&mut self) -> Option<Mark> {
        None
    }

    /// Sets the mark of the packet, as a device with flow rules does (DPDK: `RTE_FLOW_ACTION_TYPE_MARK`). Copies, segments
    /// and reassembled packets have none.
    #[inline]
    fn set_mark(&mut self, mark: Mark) {
        let _ = mark;
    }

    /// Prefetches the metadata of the buffer, if it is separate from the bytes. The prefetch is for packets
    /// that another core accessed last.
    #[inline]
    fn prefetch(&self) {}

    /// Prefetches the first bytes of the head. Reads the buffer's metadata, so call [`Self::prefetch`] on all packets
    /// first.
    #[inline]
    fn prefetch_head(&self) {}

    /// Returns the address of the head in memory that other processes can map at the same address, and the size of the
    /// headroom in bytes; `None` for other memory.
    #[inline]
    fn shared_address(&self) -> Option<(u64, usize)> {
        None
    }

    /// Returns the current address ranges of the memory that [`Self::shared_address`] refers to, or none if it returns
    /// `None`. Reads data structures of the allocator, so workers must not call it.
    fn shared_memory() -> Vec<core::ops::Range<u64>> {
        Vec::new()
    }

    /// Returns the segment size of a GSO packet, in bytes of TCP data ([`segment::GsoLayout`](crate::segment::GsoLayout)). A deep
    /// copy has the same segment size.
    #[inline]
    fn segment_size(&self) -> Option<NonZeroU16> {
        None
    }

    /// Makes this a GSO packet with this segment size in bytes of TCP data, or an ordinary packet if `None`.
    /// The packet is not segmented.
    fn set_segment_size(&mut self, size: Option<NonZeroU16>) {
        let _ = size;
    }

    /// Returns a new packet of the same pool: `header`, then `size` bytes of this packet from offset `at`,
    /// over all segments. The new packet is not a GSO packet. Returns `None` if no buffer is free or this
    /// packet has fewer bytes.
    fn gso_segment(&self, header: &[u8], at: usize, size: usize) -> Option<Self> {
        let _ = (header, at, size);
        None
    }

    /// Drops all packets of a burst, in bulk if the buffers allow it.
    #[inline]
    fn discard<const N: usize>(burst: &mut ArrayVec<Self, N>) {
        burst.clear();
    }
}

/// The error for a packet whose headroom is too small for another header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no headroom is left in front of the packet")]
pub struct NoHeadroom;

/// A packet on the heap: the buffer of tests, packet-outs and the switch without DPDK.
///
/// A frame either owns its memory, or borrows it from a [`FramePool`] and returns it on drop.
pub struct Frame {
    buffer: Box<[u8]>,
    /// Offset of the head in `buffer`.
    start: usize,
    /// Offset of the end of the head; beyond `end` only if the frame is in one segment.
    head_end: usize,
    /// Offset of the end of the packet.
    end: usize,
    home: Option<Arc<ArrayQueue<Box<[u8]>>>>,
    mark: Option<Mark>,
    segment_size: Option<NonZeroU16>,
}

impl Frame {
    /// Size of the headroom of a new frame in bytes, equal to DPDK's `RTE_PKTMBUF_HEADROOM`.
    pub const HEADROOM: usize = 128;

    /// Returns a frame of one segment with a copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Frame {
        let end = Self::HEADROOM + bytes.len();
        let mut buffer = vec![0; end].into_boxed_slice();
        buffer[Self::HEADROOM..].copy_from_slice(bytes);
        Frame {
            buffer,
            start: Self::HEADROOM,
            head_end: end,
            end,
            home: None,
            mark: None,
            segment_size: None,
        }
    }

    /// Returns a frame with the first `head_size` bytes as its head and the rest as further segments, like a
    /// chained mbuf. If `head_size` is beyond the end, the frame has one segment.
    pub fn segmented(bytes: &[u8], head_size: usize) -> Frame {
        let mut frame = Frame::new(bytes);
        frame.head_end = frame.end.min(frame.start.saturating_add(head_size));
        frame
    }

    /// Sets the segment size of the frame, in bytes of TCP data.
    #[must_use]
    pub fn to_gso(mut self, segment_size: NonZeroU16) -> Frame {
        self.segment_size = Some(segment_size);
        self
    }

    /// Returns the bytes of all segments.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl Packet for Frame {
    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn head(&self) -> &[u8] {
        &self.buffer[self.start..self.head_end]
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.head_end]
    }

    #[inline]
    fn take_mark(&mut self) -> Option<Mark> {
        self.mark.take()
    }

    #[inline]
    fn set_mark(&mut self, mark: Mark) {
        self.mark = Some(mark);
    }

    #[inline]
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        let start = self.start.checked_sub(size).ok_or(NoHeadroom)?;
        self.buffer[start..self.start].fill(0);
        self.start = start;
        Ok(())
    }

    #[inline]
    fn trim_front(&mut self, size: usize) {
        self.start += size.min(self.head_end - self.start);
    }

    #[inline]
    fn truncate(&mut self, size: usize) -> bool {
        let end = self.end.min(self.start.saturating_add(size));
        if end < self.head_end && self.head_end < self.end {
            return false;
        }
        self.head_end = self.head_end.min(end);
        self.end = end;
        true
    }

    #[inline]
    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        let (from, to) = (self.end, self.end.checked_add(size)?);
        if self.head_end != from || to > self.buffer.len() {
            return None;
        }
        (self.head_end, self.end) = (to, to);
        self.buffer.get_mut(from..to)
    }

    #[inline]
    fn room(&self) -> usize {
        if self.head_end == self.end {
            self.buffer.len() - self.end
        } else {
            0
        }
    }

    /// Copies this frame and the tail into a new buffer, which always succeeds.
    fn chain(&mut self, tail: Frame) -> Result<(), Frame> {
        let mut bytes = self.bytes().to_vec();
        bytes.extend_from_slice(tail.bytes());
        let mut joined = Frame::segmented(&bytes, self.head_end - self.start);
        joined.segment_size = self.segment_size;
        *self = joined;
        Ok(())
    }

    fn each_segment<'a>(&'a self, see: &mut impl FnMut(&'a [u8])) {
        see(self.head());
        if self.head_end < self.end {
            see(&self.buffer[self.head_end..self.end]);
        }
    }

    /// Returns a clone from the same pool if there is one, else a new frame, so that it always succeeds.
    fn try_clone(&self) -> Option<Frame> {
        let Some(home) = &self.home else {
            return Some(self.clone());
        };
        let mut buffer = home.pop()?;
        buffer[self.start..self.end].copy_from_slice(self.bytes());
        Some(Frame {
            buffer,
            home: Some(Arc::clone(home)),
            mark: None,
            ..*self
        })
    }

    fn sum(&self, begin: usize, size: usize) -> Sum {
        let bytes = self.bytes();
        let end = begin.saturating_add(size).min(bytes.len());
        Sum::of(bytes.get(begin..end).unwrap_or_default())
    }

    /// Returns a packet from the same pool if there is one with large enough buffers, else a new frame.
    fn alloc_like(&self, bytes: &[u8]) -> Option<Frame> {
        let (Some(home), end) = (&self.home, Self::HEADROOM + bytes.len()) else {
            return Some(Frame::new(bytes));
        };
        if end > self.buffer.len() {
            return Some(Frame::new(bytes));
        }
        let mut buffer = home.pop()?;
        buffer[Self::HEADROOM..end].copy_from_slice(bytes);
        Some(Frame {
            buffer,
            start: Self::HEADROOM,
            head_end: end,
            end,
            home: Some(Arc::clone(home)),
            mark: None,
            segment_size: None,
        })
    }

    #[inline]
    fn segment_size(&self) -> Option<NonZeroU16> {
        self.segment_size
    }

    fn set_segment_size(&mut self, size: Option<NonZeroU16>) {
        self.segment_size = size;
    }

    fn gso_segment(&self, header: &[u8], at: usize, size: usize) -> Option<Frame> {
        let data = self.bytes().get(at..at.checked_add(size)?)?;
        let mut segment = self.alloc_like(header)?;
        match segment.append(size) {
            Some(room) => {
                room.copy_from_slice(data);
                Some(segment)
            }
            // The header was allocated without room for the data.
            None => Some(Frame::new(&[header, data].concat())),
        }
    }

    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize) {
        let bytes = self.bytes();
        out.extend_from_slice(&bytes[..bytes.len().min(max_len)]);
    }
}

/// The copy owns its memory, even if the original is from a pool.
impl Clone for Frame {
    fn clone(&self) -> Frame {
        Frame {
            buffer: self.buffer.clone(),
            home: None,
            mark: None,
            ..*self
        }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // The pool has a slot for each of its buffers, so this never fails.
            let _ = home.push(core::mem::take(&mut self.buffer));
        }
    }
}

/// Frames are equal if their bytes are equal, regardless of segments and headroom.
impl PartialEq for Frame {
    fn eq(&self, other: &Frame) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Frame {}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes: ", self.len())?;
        for byte in self.bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// A fixed number of buffers of one size, allocated once, that [`Frame`]s borrow and return on drop.
///
/// Neither allocation nor return takes a lock or allocates memory. Clones share the buffers.
#[derive(Clone)]
pub struct FramePool {
    free: Arc<ArrayQueue<Box<[u8]>>>,
    frame_size: usize,
}

impl FramePool {
    /// Returns a pool of `len` buffers (at least one), each for a frame of up to `frame_size` bytes and its headroom.
    pub fn new(len: usize, frame_size: usize) -> FramePool {
        let free = ArrayQueue::new(len.max(1));
        while free
            .push(vec![0; Frame::HEADROOM + frame_size].into_boxed_slice())
            .is_ok()
        {}
        FramePool {
            free: Arc::new(free),
            frame_size,
        }
    }

    /// Returns a frame with a copy of `bytes`; `None` if no buffer is free or `bytes` do not fit into one.
    pub fn take(&self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.frame_size {
            return None;
        }
        let mut buffer = self.free.pop()?;
        let end = Frame::HEADROOM + bytes.len();
        buffer[Frame::HEADROOM..end].copy_from_slice(bytes);
        let home = Some(Arc::clone(&self.free));
        Some(Frame {
            buffer,
            start: Frame::HEADROOM,
            head_end: end,
            end,
            home,
            mark: None,
            segment_size: None,
        })
    }

    /// Returns the number of free buffers.
    pub fn free_len(&self) -> usize {
        self.free.len()
    }

    /// Returns the largest frame that fits, in bytes.
    pub fn frame_size(&self) -> usize {
        self.frame_size
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FramePool({} of {} free, {} bytes)",
            self.free.len(),
            self.free.capacity(),
            self.frame_size
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_grows_and_shrinks_at_its_front() {
        let mut frame = Frame::new(&[1, 2, 3]);
        frame.trim_front(1);
        frame.prepend(2).unwrap();
        assert_eq!(frame.bytes(), [0, 0, 2, 3]);
        frame.trim_front(99);
        assert!(frame.is_empty());
    }

    #[test]
    fn headroom_is_at_least_128_bytes_and_then_refused_without_change() {
        let mut frame = Frame::new(&[7]);
        frame.prepend(Frame::HEADROOM).unwrap();
        assert_eq!(frame.prepend(1), Err(NoHeadroom));
        assert_eq!(frame.len(), 129);
    }

    #[test]
    fn the_head_of_a_segmented_frame_is_its_first_segment_only() {
        let mut frame = Frame::segmented(&[1, 2, 3, 4], 2);
        assert_eq!((frame.head(), frame.len()), (&[1, 2][..], 4));
        frame.trim_front(3);
        assert_eq!(frame.bytes(), [3, 4]);
        let mut out = vec![9];
        Frame::segmented(&[1, 2, 3, 4], 2).copy_to(&mut out, 3);
        assert_eq!(out, [9, 1, 2, 3]);
    }

    #[test]
    fn a_pool_lends_each_buffer_once_and_gets_it_back() {
        let pool = FramePool::new(2, 64);
        let first = pool.take(&[1; 64]).unwrap();
        let second = first.try_clone().unwrap();
        assert_eq!(first, second);
        assert!(pool.take(&[]).is_none() && first.try_clone().is_none());
        drop(first);
        assert_eq!(pool.free_len(), 1);
        drop(second);
        assert_eq!(pool.free_len(), 2);
        assert!(pool.take(&[0; 65]).is_none());
    }

    #[test]
    fn a_frame_grows_at_its_end_as_far_as_its_buffer_goes() {
        let pool = FramePool::new(1, 8);
        let mut frame = pool.take(&[1]).unwrap();
        frame.append(3).unwrap().copy_from_slice(&[2, 3, 4]);
        frame.append(4).unwrap().fill(5);
        assert_eq!(frame.append(1), None);
        assert_eq!(frame.append(usize::MAX), None);
        assert_eq!(frame.bytes(), [1, 2, 3, 4, 5, 5, 5, 5]);
        assert_eq!(Frame::segmented(&[1, 2], 1).append(0), None);
    }

    #[test]
    fn a_frame_is_truncated_within_its_last_segment_only() {
        let mut frame = Frame::new(b"0123456789");
        assert!(frame.truncate(20) && frame.truncate(4));
        assert_eq!((frame.bytes(), frame.head()), (&b"0123"[..], &b"0123"[..]));
        let mut frame = Frame::segmented(b"0123456789", 6);
        assert!(!frame.truncate(5) && frame.truncate(8));
        assert_eq!((frame.bytes(), frame.head()), (&b"01234567"[..], &b"012345"[..]));
        assert!(frame.truncate(6));
        assert_eq!(frame.bytes(), b"012345");
    }

    #[test]
    fn a_frame_behind_another_is_its_further_segment() {
        let pool = FramePool::new(1, 8);
        let mut frame = pool.take(&[1, 2]).unwrap();
        assert_eq!(frame.room(), 6);
        frame.chain(Frame::new(&[3])).unwrap();
        assert_eq!((frame.head(), frame.room(), pool.free_len()), (&[1, 2][..], 0, 1));
        frame.chain(Frame::new(&[4])).unwrap();
        let mut segments = Vec::new();
        frame.each_segment(&mut |bytes| segments.push(bytes.to_vec()));
        assert_eq!(segments, [&[1, 2], &[3, 4]]);
    }

    #[test]
    fn a_clone_of_a_pooled_frame_takes_nothing_from_the_pool() {
        let pool = FramePool::new(1, 64);
        let frame = pool.take(&[5]).unwrap();
        let copy = frame.clone();
        drop(frame);
        assert_eq!((copy.bytes(), pool.free_len()), (&[5][..], 1));
        drop(copy);
        assert_eq!(pool.free_len(), 1);
    }

    #[test]
    fn a_frame_outlives_its_pool() {
        let frame = FramePool::new(1, 8).take(&[1, 2]).unwrap();
        assert_eq!(frame.bytes(), [1, 2]);
    }
}
