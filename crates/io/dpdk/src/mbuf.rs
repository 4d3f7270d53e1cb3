//! A packet in its buffers.
//!
//! # Invariants
//! * An [`Mbuf`] is the only reference to the packet: every segment has reference count 1, or its data area is nobody
//!   else's (drivers that put several packets into one large buffer). Pools and drivers hand packets out so, and
//!   nothing here shares one; [`Mbuf::from_raw`] asks its caller to keep it.
//! * Lengths are consistent: each segment's data lies inside its buffer, and the packet's length is their sum. The
//!   functions here keep it; drivers are trusted with it.
//!
//! So `&Mbuf` may read and `&mut Mbuf` may write every byte of the packet, without a check for each access.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroU16;
use std::ptr::NonNull;
use std::slice;

use millrace_dpdk_sys as sys;
use sys::mbuf as field;

use crate::Mempool;
use crate::port::PortId;

/// An owned packet: one buffer, or several chained. Dropping it gives the buffers back to their pool.
///
/// It is one pointer wide. [`free_burst`](crate::free_burst) drops many with one call.
#[repr(transparent)]
pub struct Mbuf {
    raw: NonNull<sys::rte_mbuf>,
}

// SAFETY: a buffer may be used and freed by any thread, and its owner is the only one to use it.
unsafe impl Send for Mbuf {}
// SAFETY: `&Mbuf` only reads.
unsafe impl Sync for Mbuf {}

impl Mbuf {
    /// Takes ownership of a packet.
    ///
    /// # Safety
    /// `raw` is a packet that DPDK initialised, the caller gives up the only reference to it, and it meets this
    /// module's invariants.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<sys::rte_mbuf>) -> Self {
        Self { raw }
    }

    /// Gives up ownership: whoever gets the pointer frees it.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<sys::rte_mbuf> {
        ManuallyDrop::new(self).raw
    }

    /// The pool that its first buffer came from, and that a copy can be made in.
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

    /// Bytes of the whole packet.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: the packet is ours, by the module's invariant.
        unsafe { field::pkt_len(self.raw.as_ptr()) as usize }
    }

    /// Whether the packet has no byte.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buffers hold the packet; at least one.
    #[inline]
    #[must_use]
    pub fn segment_count(&self) -> usize {
        // SAFETY: the packet is ours, by the module's invariant.
        usize::from(unsafe { field::nb_segs(self.raw.as_ptr()) })
    }

    /// Whether [`Self::head`] is the whole packet.
    #[inline]
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.segment_count() == 1
    }

    /// The bytes of the first segment: the headers, unless a driver splits packets very early.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &[u8] {
        Segment(self.raw).bytes()
    }

    /// The bytes of the first segment.
    #[inline]
    #[must_use]
    pub fn head_mut(&mut self) -> &mut [u8] {
        Segment(self.raw).bytes_mut()
    }

    /// The bytes of each segment, in order.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        Segments {
            next: Some(Segment(self.raw)),
            packet: PhantomData,
        }
    }

    /// The bytes of each segment, in order.
    #[inline]
    #[must_use]
    pub fn segments_mut(&mut self) -> SegmentsMut<'_> {
        SegmentsMut {
            next: Some(Segment(self.raw)),
            packet: PhantomData,
        }
    }

    /// Free bytes in front of the packet.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        usize::from(Segment(self.raw).data_off())
    }

    /// Free bytes behind the packet, in its last segment.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.last().tailroom()
    }

    /// Puts `len` bytes in front of the packet and returns them to be written: they hold whatever the buffer held.
    /// `None`, and nothing changes, where the headroom is less.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, len: usize) -> Option<&mut [u8]> {
        let head = Segment(self.raw);
        let grown = u16::try_from(len).ok()?;
        let data_off = head.data_off().checked_sub(grown)?;
        let data_len = head.data_len().checked_add(grown)?;
        head.place(data_off, data_len);
        self.set_len(self.len() + len);
        self.head_mut().get_mut(..len)
    }

    /// Takes `len` bytes off the front. False, and nothing changes, where the first segment has fewer.
    #[inline]
    #[must_use]
    pub fn adj(&mut self, len: usize) -> bool {
        let head = Segment(self.raw);
        let Some((cut, data_len)) = shrink(head.data_len(), len) else {
            return false;
        };
        head.place(head.data_off() + cut, data_len);
        self.set_len(self.len() - len);
        true
    }

    /// Puts `len` bytes behind the packet and returns them to be written: they hold whatever the buffer held. `None`,
    /// and nothing changes, where the tail room is less.
    #[inline]
    #[must_use]
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        let last = self.last();
        let grown = u16::try_from(len).ok().filter(|_| len <= last.tailroom())?;
        let old_len = last.data_len();
        last.place(last.data_off(), old_len + grown);
        self.set_len(self.len() + len);
        last.bytes_mut().get_mut(usize::from(old_len)..)
    }

    /// Takes `len` bytes off the end. False, and nothing changes, where the last segment has fewer.
    #[inline]
    #[must_use]
    pub fn trim(&mut self, len: usize) -> bool {
        let last = self.last();
        let Some((_, data_len)) = shrink(last.data_len(), len) else {
            return false;
        };
        last.place(last.data_off(), data_len);
        self.set_len(self.len() - len);
        true
    }

    /// Moves all bytes into the first segment. False, and nothing changes, where its tail room is too small.
    #[must_use]
    pub fn linearize(&mut self) -> bool {
        // SAFETY: the packet is ours and its segments are unshared, by the module's invariant.
        unsafe { sys::shim_linearize(self.raw.as_ptr()) == 0 }
    }

    /// Puts another packet behind this one without copying.
    ///
    /// # Errors
    /// `tail`, and nothing changes, where the packet would have too many segments.
    pub fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let raw = tail.into_raw();
        // SAFETY: both packets are ours, by the module's invariant, and distinct as both were owned.
        let code = unsafe { sys::shim_chain(self.raw.as_ptr(), raw.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a chain that failed left the tail as it was, and ours.
        Err(unsafe { Self::from_raw(raw) })
    }

    /// A packet of its own with the same bytes, from `pool`; `None` when the pool has too few buffers. Port and flags
    /// are copied too.
    #[must_use]
    pub fn deep_copy(&self, pool: Mempool) -> Option<Self> {
        // SAFETY: the packet is ours to read, and the pool lives as long as the process.
        let raw = unsafe { sys::rte_pktmbuf_copy(self.raw.as_ptr(), pool.as_raw(), 0, u32::MAX) };
        // SAFETY: the copy is in buffers that the pool gave to us alone.
        NonNull::new(raw).map(|raw| unsafe { Self::from_raw(raw) })
    }

    /// Copies bytes from `offset` on into `into`, across segments, and returns how many there were.
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

    /// The port that received the packet. Meaningless in one that was made here.
    #[inline]
    #[must_use]
    pub fn port(&self) -> PortId {
        // SAFETY: the packet is ours, by the module's invariant.
        PortId(unsafe { field::port(self.raw.as_ptr()) })
    }

    /// The number that a rule of the device has put on the packet ([`crate::FlowAction::Mark`]).
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Option<u32> {
        // SAFETY: the packet is ours, by the module's invariant.
        let flags = unsafe { field::ol_flags(self.raw.as_ptr()) };
        // SAFETY: as above; the flag says that the field is set.
        (flags & sys::SHIM_MBUF_F_MARK != 0).then(|| unsafe { field::mark(self.raw.as_ptr()) })
    }

    /// Bytes of data of each segment that the packet is to be cut into; `None` of one that is not to be cut.
    #[inline]
    #[must_use]
    pub fn segment_size(&self) -> Option<NonZeroU16> {
        // SAFETY: the packet is ours, by the module's invariant.
        let flags = unsafe { field::ol_flags(self.raw.as_ptr()) };
        if flags & sys::SHIM_MBUF_F_UNCUT == 0 {
            return None;
        }
        // SAFETY: as above; the flag says that the field is set.
        let offload = unsafe { field::tx_offload(self.raw.as_ptr()) };
        NonZeroU16::new((offload >> sys::SHIM_MBUF_SEGMENT_SIZE_SHIFT) as u16)
    }

    /// Has the packet be cut into segments of so many bytes of data; or not at all. Nothing is cut here.
    pub fn set_segment_size(&mut self, size: Option<NonZeroU16>) {
        match size {
            // SAFETY: the packet is ours, by the module's invariant.
            Some(size) => unsafe { sys::shim_set_segment_size(self.raw.as_ptr(), size.get()) },
            // SAFETY: as above.
            None => unsafe { sys::shim_clear_segment_size(self.raw.as_ptr()) },
        }
    }

    /// A packet of the same pool: `header`, and behind it `size` bytes of this packet from the byte `at` on, in as many
    /// buffers as they need, the header in the first. `None` when the pool has too few, when a buffer does not hold the
    /// header, or when there are fewer bytes.
    #[must_use]
    pub fn piece(&self, header: &[u8], at: usize, size: usize) -> Option<Self> {
        if at.checked_add(size)? > self.len() {
            return None;
        }
        let pool = self.pool();
        let mut piece = pool.alloc()?;
        let mut done = size.min(piece.tailroom().checked_sub(header.len())?);
        let place = piece.append(header.len() + done)?;
        let (front, data) = place.split_at_mut(header.len());
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

    /// Begins to load the buffer's description: what the functions above read, and what is needed to free it. Costs
    /// nothing where it is cached.
    #[inline(always)]
    pub fn prefetch(&self) {
        let description: *const u8 = self.raw.as_ptr().cast();
        prefetch(description);
        // Two cache lines: the packet's, and the pool's.
        prefetch(description.wrapping_add(64));
    }

    /// Begins to load the first bytes of the packet. Reads the buffer's description, so [`Self::prefetch`] that first.
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
        // The link to the next segment is in another cache line, which most packets need not touch.
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

/// The shortened length, where it has `len` bytes to lose.
#[inline]
fn shrink(data_len: u16, len: usize) -> Option<(u16, u16)> {
    let cut = u16::try_from(len).ok()?;
    Some((cut, data_len.checked_sub(cut)?))
}

#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch may name any address; it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// One buffer of a packet that somebody else owns: made and dropped inside a borrow of the [`Mbuf`].
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
        // SAFETY: data begins inside the buffer, by the module's invariant.
        unsafe { buffer.add(usize::from(self.data_off())) }
    }

    /// Callers have checked that the data stays inside the buffer, and then adjust the packet's length.
    #[inline]
    fn place(self, data_off: u16, data_len: u16) {
        // SAFETY: the segment belongs to a mutably borrowed Mbuf, and the callers checked the value.
        unsafe { field::set_data_off(self.0.as_ptr(), data_off) };
        // SAFETY: as above.
        unsafe { field::set_data_len(self.0.as_ptr(), data_len) };
    }

    /// The lifetime is the caller's, who gives it that of its borrow of the Mbuf.
    #[inline]
    fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: these bytes lie inside a buffer that the borrowed Mbuf owns alone, by the module's invariant.
        unsafe { slice::from_raw_parts(self.start(), usize::from(self.data_len())) }
    }

    /// As `bytes`, for a caller that borrowed the Mbuf mutably and makes no second slice of this segment.
    #[inline]
    fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: the segment belongs to a borrowed Mbuf.
        let owners = unsafe { field::refcnt(self.0.as_ptr()) };
        debug_assert_eq!(owners, 1, "a segment has one owner");
        // SAFETY: these bytes lie inside a buffer that the borrowed Mbuf owns alone, by the module's invariant.
        unsafe { slice::from_raw_parts_mut(self.start(), usize::from(self.data_len())) }
    }
}

/// See [`Mbuf::segments`].
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

/// See [`Mbuf::segments_mut`].
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
