//! Packets in DPDK buffers (mbufs).
//!
//! # Invariants
//! An [`Mbuf`] is the only reference to the packet: every segment has reference count 1, or its data area is
//! not shared (drivers may put several packets into one large buffer). Pools and drivers allocate such
//! packets, no function here shares a packet, and callers of [`Mbuf::from_raw`] must guarantee the same.
//! Lengths are consistent: the data of each segment is inside its buffer, and the packet length is the sum of
//! the segment lengths. The functions here maintain this, and drivers are trusted to maintain it.
//!
//! `&Mbuf` may therefore read and `&mut Mbuf` may write every byte of the packet without a check for each access.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroU16;
use std::ptr::NonNull;
use std::slice;

use millrace_dpdk_sys as sys;
use millrace_shared_memory::prefetch;
use sys::mbuf as field;

use crate::Mempool;
use crate::port::PortId;

/// An owned packet: one buffer, or several chained ones. Dropping it returns the buffers to their pool.
///
/// It is one pointer wide. [`free_burst`](crate::free_burst) drops many with one call.
#[repr(transparent)]
pub struct Mbuf {
    raw: NonNull<sys::rte_mbuf>,
}

// SAFETY: any thread may use and free a buffer, and its owner is the only one to use it.
unsafe impl Send for Mbuf {}
// SAFETY: `&Mbuf` only reads.
unsafe impl Sync for Mbuf {}

impl Mbuf {
    /// Takes ownership of a packet.
    ///
    /// # Safety
    /// `raw` is a packet that DPDK initialised and that meets this module's invariants. The caller gives up
    /// the only reference to it.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<sys::rte_mbuf>) -> Self {
        Self { raw }
    }

    /// Releases ownership: the receiver of the pointer must free it.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<sys::rte_mbuf> {
        ManuallyDrop::new(self).raw
    }

    /// Returns the pool of the first buffer, for a copy of the packet.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> Mempool {
        // SAFETY: the packet is ours, by the module's invariant, so its pool is set.
        let pool = unsafe { field::pool(self.raw.as_ptr()) };
        // SAFETY: a buffer's pool is never null.
        let pool = unsafe { NonNull::new_unchecked(pool) };
        // SAFETY: pools of packets are made by `Mempool::new` and live as long as the process.
        unsafe { Mempool::from_raw(pool) }
    }

    /// Returns the size of the whole packet in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: the packet is ours, by the module's invariant.
        unsafe { field::pkt_len(self.raw.as_ptr()) as usize }
    }

    /// Returns true if the packet has no byte.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of buffers of the packet, at least one.
    #[inline]
    #[must_use]
    pub fn segment_count(&self) -> usize {
        // SAFETY: the packet is ours, by the module's invariant.
        usize::from(unsafe { field::nb_segs(self.raw.as_ptr()) })
    }

    /// Returns true if [`Self::head`] is the whole packet.
    #[inline]
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.segment_count() == 1
    }

    /// Returns the bytes of the first segment: the headers, unless a driver splits packets very early.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &[u8] {
        Segment(self.raw).bytes()
    }

    /// Returns the bytes of the first segment, for writing.
    #[inline]
    #[must_use]
    pub fn head_mut(&mut self) -> &mut [u8] {
        Segment(self.raw).bytes_mut()
    }

    /// Returns the bytes of each segment, in order.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        Segments {
            next: Some(Segment(self.raw)),
            packet: PhantomData,
        }
    }

    /// Returns the bytes of each segment, in order, for writing.
    #[inline]
    #[must_use]
    pub fn segments_mut(&mut self) -> SegmentsMut<'_> {
        SegmentsMut {
            next: Some(Segment(self.raw)),
            packet: PhantomData,
        }
    }

    /// Returns the size of the headroom in bytes.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        usize::from(Segment(self.raw).data_off())
    }

    /// Returns the size of the tailroom of the last segment, in bytes.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.last().tailroom()
    }

    /// Prepends `len` bytes and returns them; their content is unspecified. Returns `None`, and changes nothing, if
    /// the headroom is smaller.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, len: usize) -> Option<&mut [u8]> {
        let head = Segment(self.raw);
        let grown = u16::try_from(len).ok()?;
        let data_off = head.data_off().checked_sub(grown)?;
        let data_len = head.data_len().checked_add(grown)?;
        head.set_data(data_off, data_len);
        self.set_len(self.len() + len);
        self.head_mut().get_mut(..len)
    }

    /// Removes `len` bytes from the front. Returns false, and changes nothing, if the first segment has fewer.
    #[inline]
    #[must_use]
    pub fn adj(&mut self, len: usize) -> bool {
        let head = Segment(self.raw);
        let Some((cut, data_len)) = shrink(head.data_len(), len) else {
            return false;
        };
        head.set_data(head.data_off() + cut, data_len);
        self.set_len(self.len() - len);
        true
    }

    /// Appends `len` bytes and returns them; their content is unspecified. Returns `None`, and changes nothing, if the
    /// tailroom is smaller.
    #[inline]
    #[must_use]
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        let last = self.last();
        let grown = u16::try_from(len).ok().filter(|_| len <= last.tailroom())?;
        let old_len = last.data_len();
        last.set_data(last.data_off(), old_len + grown);
        self.set_len(self.len() + len);
        last.bytes_mut().get_mut(usize::from(old_len)..)
    }

    /// Removes `len` bytes from the end. Returns false, and changes nothing, if the last segment has fewer.
    #[inline]
    #[must_use]
    pub fn trim(&mut self, len: usize) -> bool {
        let last = self.last();
        let Some((_, data_len)) = shrink(last.data_len(), len) else {
            return false;
        };
        last.set_data(last.data_off(), data_len);
        self.set_len(self.len() - len);
        true
    }

    /// Moves all bytes into the first segment (`rte_pktmbuf_linearize`). Returns false, and changes nothing, if that
    /// segment's tailroom is too small.
    #[must_use]
    pub fn linearize(&mut self) -> bool {
        // SAFETY: the packet is ours and its segments are unshared, by the module's invariant.
        unsafe { sys::shim_linearize(self.raw.as_ptr()) == 0 }
    }

    /// Appends another packet without copying.
    ///
    /// # Errors
    /// `tail`, unchanged, if the packet would have too many segments.
    pub fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let raw = tail.into_raw();
        // SAFETY: both packets are ours, by the module's invariant, and distinct as both were owned.
        let code = unsafe { sys::shim_chain(self.raw.as_ptr(), raw.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a chain that failed left the tail unchanged and owned by this function.
        Err(unsafe { Self::from_raw(raw) })
    }

    /// Returns an independent copy of the packet, its port and its flags in buffers of `pool`; `None` if the
    /// pool has too few buffers, or the packet is empty.
    #[must_use]
    pub fn deep_copy(&self, pool: Mempool) -> Option<Self> {
        // SAFETY: the packet is ours to read, and the pool lives as long as the process.
        let raw = unsafe { sys::rte_pktmbuf_copy(self.raw.as_ptr(), pool.as_raw(), 0, u32::MAX) };
        // SAFETY: the pool gave the buffers of the copy to this function alone.
        NonNull::new(raw).map(|raw| unsafe { Self::from_raw(raw) })
    }

    /// Copies bytes from `offset` into `into`, across segments, and returns the number copied.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> usize {
        let mut skip = offset;
        let mut done = 0;
        for segment in self.segments() {
            let start = skip.min(segment.len());
            skip -= start;
            let count = (segment.len() - start).min(into.len() - done);
            into[done..done + count].copy_from_slice(&segment[start..start + count]);
            done += count;
        }
        done
    }

    /// Returns the port that received the packet. The value is meaningless for a packet that this process allocated.
    #[inline]
    #[must_use]
    pub fn port(&self) -> PortId {
        // SAFETY: the packet is ours, by the module's invariant.
        PortId(unsafe { field::port(self.raw.as_ptr()) })
    }

    /// Takes the mark that a flow rule of the device put on the packet ([`crate::FlowAction::Mark`]) out of the buffer.
    #[inline]
    pub fn take_mark(&mut self) -> Option<u32> {
        // SAFETY: the packet is ours, by the module's invariant.
        let flags = unsafe { field::ol_flags(self.raw.as_ptr()) };
        if flags & sys::SHIM_MBUF_F_MARK == 0 {
            return None;
        }
        // SAFETY: as above.
        unsafe { field::set_ol_flags(self.raw.as_ptr(), flags & !sys::SHIM_MBUF_F_MARK) };
        // SAFETY: as above; the flag said that the field is set.
        Some(unsafe { field::mark(self.raw.as_ptr()) })
    }

    /// Returns the hash that the device's RSS computed, if it delivers one.
    #[inline]
    #[must_use]
    pub fn rss_hash(&self) -> Option<u32> {
        // SAFETY: the packet is ours, by the module's invariant.
        let flags = unsafe { field::ol_flags(self.raw.as_ptr()) };
        if flags & sys::SHIM_MBUF_F_RSS_HASH == 0 {
            return None;
        }
        // SAFETY: as above; the flag says that the field is set.
        Some(unsafe { field::rss(self.raw.as_ptr()) })
    }

    /// Returns the segment size of a GSO packet in bytes of TCP data; `None` for any other packet.
    #[inline]
    #[must_use]
    pub fn segment_size(&self) -> Option<NonZeroU16> {
        // SAFETY: the packet is ours, by the module's invariant.
        let flags = unsafe { field::ol_flags(self.raw.as_ptr()) };
        if flags & sys::SHIM_MBUF_F_GSO == 0 {
            return None;
        }
        // SAFETY: as above; the flag says that the field is set.
        let offload = unsafe { field::tx_offload(self.raw.as_ptr()) };
        NonZeroU16::new((offload >> sys::SHIM_MBUF_SEGMENT_SIZE_SHIFT) as u16)
    }

    /// Makes this a GSO packet with the segment size `size` in bytes of TCP data, or an ordinary packet for
    /// `None`. Does not segment the packet.
    pub fn set_segment_size(&mut self, size: Option<NonZeroU16>) {
        match size {
            // SAFETY: the packet is ours, by the module's invariant.
            Some(size) => unsafe { sys::shim_set_segment_size(self.raw.as_ptr(), size.get()) },
            // SAFETY: as above.
            None => unsafe { sys::shim_clear_segment_size(self.raw.as_ptr()) },
        }
    }

    /// Returns a packet of the same pool: `header`, then `size` bytes of this packet from offset `at`, in as many
    /// buffers as needed, with the header in the first. Returns `None` if the pool has too few buffers, a buffer
    /// cannot hold the header, or the packet has fewer bytes.
    #[must_use]
    pub fn gso_segment(&self, header: &[u8], at: usize, size: usize) -> Option<Self> {
        if at.checked_add(size)? > self.len() {
            return None;
        }
        let pool = self.pool();
        let mut piece = pool.alloc()?;
        let mut done = size.min(piece.tailroom().checked_sub(header.len())?);
        let appended = piece.append(header.len() + done)?;
        let (front, data) = appended.split_at_mut(header.len());
        front.copy_from_slice(header);
        self.read_at(at, data);
        while done < size {
            let mut more = pool.alloc()?;
            let part = (size - done).min(more.tailroom());
            if part == 0 {
                return None;
            }
            self.read_at(at + done, more.append(part)?);
            piece.chain(more).ok()?;
            done += part;
        }
        Some(piece)
    }

    /// Prefetches the mbuf structure: the fields that the functions above read, and the fields needed to free
    /// the packet.
    #[inline(always)]
    pub fn prefetch(&self) {
        let description: *const u8 = self.raw.as_ptr().cast();
        prefetch(description);
        // Two cache lines: the packet's fields and the pool pointer.
        prefetch(description.wrapping_add(64));
    }

    /// Prefetches the first bytes of the packet. Reads the mbuf structure, so call [`Self::prefetch`] first.
    #[inline(always)]
    pub fn prefetch_head(&self) {
        prefetch(Segment(self.raw).start());
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        // SAFETY: the packet is ours; every caller has just changed a segment's length by the same amount.
        unsafe { field::set_pkt_len(self.raw.as_ptr(), len as u32) };
    }

    #[inline]
    fn last(&self) -> Segment {
        let mut last = Segment(self.raw);
        // The link to the next segment is in another cache line, which most packets need not load.
        if self.is_contiguous() {
            return last;
        }
        while let Some(next) = last.next() {
            last = next;
        }
        last
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the packet is ours, by the module's invariant, and not used again.
        unsafe { sys::shim_free(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("segments", &self.segment_count())
            .finish()
    }
}

/// Returns `len`, and `data_len` reduced by `len`; `None` if `data_len` is smaller than `len`.
#[inline]
fn shrink(data_len: u16, len: usize) -> Option<(u16, u16)> {
    let cut = u16::try_from(len).ok()?;
    Some((cut, data_len.checked_sub(cut)?))
}

/// One buffer of a packet, used inside a borrow of the [`Mbuf`].
#[derive(Clone, Copy)]
struct Segment(NonNull<sys::rte_mbuf>);

impl Segment {
    #[inline]
    fn data_off(self) -> u16 {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        unsafe { field::data_off(self.0.as_ptr()) }
    }

    #[inline]
    fn data_len(self) -> u16 {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        unsafe { field::data_len(self.0.as_ptr()) }
    }

    #[inline]
    fn buf_len(self) -> u16 {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        unsafe { field::buf_len(self.0.as_ptr()) }
    }

    #[inline]
    fn tailroom(self) -> usize {
        usize::from(self.buf_len())
            .saturating_sub(usize::from(self.data_off()) + usize::from(self.data_len()))
    }

    #[inline]
    fn next(self) -> Option<Self> {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        NonNull::new(unsafe { field::next(self.0.as_ptr()) }).map(Self)
    }

    #[inline]
    fn start(self) -> *mut u8 {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        let buffer = unsafe { field::buf_addr(self.0.as_ptr()) };
        // SAFETY: the data begins inside the buffer, by the module's invariant.
        unsafe { buffer.add(usize::from(self.data_off())) }
    }

    /// Sets data offset and length. The caller has checked that the data stays inside the buffer, and adjusts the
    /// packet length.
    #[inline]
    fn set_data(self, data_off: u16, data_len: u16) {
        // SAFETY: the segment belongs to a mutably borrowed Mbuf, and the callers checked the value.
        unsafe { field::set_data_off(self.0.as_ptr(), data_off) };
        // SAFETY: as above.
        unsafe { field::set_data_len(self.0.as_ptr(), data_len) };
    }

    /// Returns the bytes with a lifetime that the caller limits to its borrow of the Mbuf.
    #[inline]
    fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: these bytes are inside a buffer that the borrowed Mbuf owns alone, by the module's invariant.
        unsafe { slice::from_raw_parts(self.start(), usize::from(self.data_len())) }
    }

    /// Returns the bytes as `bytes` does, for a caller that borrowed the Mbuf mutably and makes no second slice of
    /// this segment.
    #[inline]
    fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        let owners = unsafe { field::refcnt(self.0.as_ptr()) };
        debug_assert_eq!(owners, 1, "a segment has one owner");
        // SAFETY: these bytes are inside a buffer that the borrowed Mbuf owns alone, by the module's invariant.
        unsafe { slice::from_raw_parts_mut(self.start(), usize::from(self.data_len())) }
    }
}

/// The iterator of [`Mbuf::segments`].
pub struct Segments<'a> {
    next: Option<Segment>,
    packet: PhantomData<&'a Mbuf>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let segment = self.next?;
        self.next = segment.next();
        Some(segment.bytes())
    }
}

/// The iterator of [`Mbuf::segments_mut`].
pub struct SegmentsMut<'a> {
    next: Option<Segment>,
    packet: PhantomData<&'a mut Mbuf>,
}

impl<'a> Iterator for SegmentsMut<'a> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let segment = self.next?;
        self.next = segment.next();
        Some(segment.bytes_mut())
    }
}
