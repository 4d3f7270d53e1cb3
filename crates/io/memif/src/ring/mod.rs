//! Rings: receive frames from a peer and send frames to it, while the peer may write anything at any time.
//!
//! # Checks
//! * The peer's index must not pass the last descriptor that the peer owns. A [`Receiver`] knows how many
//!   buffers the peer may have filled, a [`Sender`] how many it may have emptied. An index that moves
//!   further, or back, is a [`ProtocolViolation`].
//! * A descriptor is read once, in two atomic loads of 64 bits. The server then checks region, offset and length. The
//!   client uses only flags and length: it computes the offset of its buffer, and writes the offset again with each
//!   offer.
//! * A frame has at most [`CHAIN_MAX`] buffers, and a burst begins no frame after [`WORK_MAX`] descriptors.
//!
//! # Cost
//! A burst reads one index and writes the other. A frame in one buffer costs a descriptor, a comparison and a copy, while
//! the next buffer is prefetched.
//!
//! # Descriptor
//! ```text
//!   bits 63..32       31..16      15..1     0
//! +----------------+------------+---------+------+
//! | length (bytes) | region     | flags 0 | NEXT |   first word
//! +----------------+------------+---------+------+
//! | metadata (0)   | offset in the region (bytes)|   second word
//! +----------------+-----------------------------+
//! ```

mod buffers;

use core::sync::atomic::{Ordering, fence};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::client::Layout;
use crate::direction::Direction;
use crate::error::{MessageError, ProtocolViolation};
use crate::region::{Buffer, Regions, RingMemory, UnsealedPolicy};
use crate::server::Offer;
use crate::{AddRing, CHAIN_MAX};
use buffers::{Buffers, Cursor};

/// The number that every ring begins with (libmemif, `MEMIF_COOKIE`).
const COOKIE: u32 = 0x03E3_1F20;
/// Ring flag: the receiver polls, and needs no interrupt (libmemif, `MEMIF_RING_FLAG_MASK_INT`).
const POLLED: u16 = 1;
/// The number of descriptors after which a burst begins no further frame, so that empty buffers and long chains do not
/// delay other ports.
pub const WORK_MAX: u16 = 256;

/// The packet buffers that received frames are copied to.
pub trait Sink {
    /// Returns memory of exactly `size` bytes, which is never 0, for the next frame, or `None` to drop the frame.
    fn allocate(&mut self, size: usize) -> Option<&mut [u8]>;
}

/// The result of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames that were copied to the sink.
    pub frames: usize,
    /// Frames that were empty, or that the sink had no memory for.
    pub dropped: usize,
}

/// The receiving end of a ring.
#[derive(Debug)]
pub struct Receiver {
    ring: RingMemory,
    buffers: Buffers,
    cursor: Cursor,
}

impl Receiver {
    /// Reads the peer's index. Returns the number of full descriptors; a frame has one or more.
    ///
    /// # Errors
    /// [`ProtocolViolation`] if the index is impossible.
    #[inline]
    pub fn ready(&mut self) -> Result<u16, ProtocolViolation> {
        let index = match self.buffers {
            Buffers::Peer => self.ring.head(),
            Buffers::Own { .. } => self.ring.tail(),
        };
        self.cursor.advance_limit(index.load(Ordering::Acquire))
    }

    /// Copies at most `frames` of the frames that [`Self::ready`] has counted, and returns their buffers to
    /// the peer.
    ///
    /// # Errors
    /// [`ProtocolViolation`]; the ring must not be used afterwards.
    pub fn receive(&mut self, frames: usize, sink: &mut impl Sink) -> Result<Received, ProtocolViolation> {
        let ring = &self.ring;
        let first = self.cursor.at;
        let (mut at, mut received) = (first, Received::default());
        let mut ahead = None;
        let mut left = self.cursor.available();
        while left > 0 && received.frames < frames && at.wrapping_sub(first) < WORK_MAX {
            let buffer = match ahead.take() {
                Some(buffer) => buffer,
                None => self.buffers.full(ring, at)?,
            };
            if !buffer.is_last {
                let Some(len) = self.receive_chain(at, left, buffer.bytes, sink, &mut received)? else {
                    break;
                };
                at = at.wrapping_add(len);
                left -= len;
                continue;
            }
            at = at.wrapping_add(1);
            left -= 1;
            if left > 0 {
                let next = self.buffers.full(ring, at)?;
                next.bytes.prefetch();
                ahead = Some(next);
            }
            let size = buffer.bytes.size();
            match (size != 0).then(|| sink.allocate(size)).flatten() {
                None => received.dropped += 1,
                Some(bytes) => {
                    buffer.bytes.read(bytes);
                    received.frames += 1;
                }
            }
        }
        self.cursor.at = at;
        self.return_buffers(first);
        Ok(received)
    }

    /// Copies a frame in several buffers. The frame begins at index `at`, from which `left` descriptors are
    /// full. Returns the number of buffers, or `None` if the last one is not full yet.
    #[cold]
    fn receive_chain(
        &self,
        at: u16,
        left: u16,
        first: Buffer<'_>,
        sink: &mut impl Sink,
        received: &mut Received,
    ) -> Result<Option<u16>, ProtocolViolation> {
        let mut buffers = [first; CHAIN_MAX];
        let (mut len, mut size) = (1, first.size());
        loop {
            if len == CHAIN_MAX || len == usize::from(self.cursor.len) {
                return Err(ProtocolViolation::Chain);
            }
            if len == usize::from(left) {
                return Ok(None);
            }
            let next = self.buffers.full(&self.ring, at.wrapping_add(len as u16))?;
            buffers[len] = next.bytes;
            size += next.bytes.size();
            len += 1;
            if next.is_last {
                break;
            }
        }
        match (size != 0).then(|| sink.allocate(size)).flatten() {
            None => received.dropped += 1,
            Some(bytes) => {
                let mut rest = bytes;
                for buffer in &buffers[..len] {
                    let (part, behind) = rest.split_at_mut(buffer.size().min(rest.len()));
                    buffer.read(part);
                    rest = behind;
                }
                received.frames += 1;
            }
        }
        Ok(Some(len as u16))
    }

    /// Returns the buffers from index `from` to this side's index to the peer.
    #[inline]
    fn return_buffers(&mut self, from: u16) {
        let at = self.cursor.at;
        if at == from {
            return;
        }
        match self.buffers {
            Buffers::Peer => self.ring.tail().store(at, Ordering::Release),
            Buffers::Own { .. } => self.offer(from),
        }
    }

    /// Offers the emptied buffers, from index `from` to this side's index, to the peer again.
    fn offer(&mut self, from: u16) {
        let (at, len) = (self.cursor.at, self.cursor.len);
        let mut index = from;
        while index != at {
            // The buffer has the same descriptor one round later.
            self.buffers.offer(&self.ring, index);
            index = index.wrapping_add(1);
        }
        self.ring.head().store(at.wrapping_add(len), Ordering::Release);
    }

    /// Asks the peer for an interrupt with the next frame. Returns true if full descriptors are there already, so that the
    /// caller must not sleep.
    ///
    /// # Errors
    /// [`ProtocolViolation`] if the peer's index is impossible.
    pub fn request_interrupt(&mut self) -> Result<bool, ProtocolViolation> {
        self.ring.flags().store(0, Ordering::Relaxed);
        // Pairs with `Sender::publish`: the peer sees the flag, or this side sees the peer's index.
        fence(Ordering::SeqCst);
        Ok(self.ready()? > 0)
    }

    /// Tells the peer that no interrupt is needed, because this side polls.
    pub fn mask_interrupt(&mut self) {
        self.ring.flags().store(POLLED, Ordering::Relaxed);
    }

    /// Offers all buffers. The client calls this after the server is connected, because servers set the indices to 0
    /// while they connect.
    pub fn begin(&mut self) {
        if let Buffers::Own { .. } = self.buffers {
            for index in 0..self.cursor.len {
                self.buffers.offer(&self.ring, index);
            }
            self.ring.head().store(self.cursor.len, Ordering::Release);
        }
    }
}

/// The outcome of sending a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The frame is in the ring. The peer sees it after [`Sender::publish`].
    Yes,
    /// Too few buffers are empty; the caller may try again.
    Full,
    /// The frame does not fit into as many buffers as a frame may have.
    TooLong,
}

/// The sending end of a ring.
#[derive(Debug)]
pub struct Sender {
    ring: RingMemory,
    buffers: Buffers,
    cursor: Cursor,
    /// The index that this side last wrote into the ring.
    published: u16,
}

impl Sender {
    /// Reads the peer's index. Returns the number of empty buffers.
    ///
    /// # Errors
    /// [`ProtocolViolation`] if the index is impossible.
    #[inline]
    pub fn ready(&mut self) -> Result<u16, ProtocolViolation> {
        let limit = match self.buffers {
            Buffers::Peer => self.ring.head().load(Ordering::Acquire),
            // A buffer that the server has emptied is used again one round later.
            Buffers::Own { .. } => self
                .ring
                .tail()
                .load(Ordering::Acquire)
                .wrapping_add(self.cursor.len),
        };
        self.cursor.advance_limit(limit)
    }

    /// Copies a frame into buffers that [`Self::ready`] has counted.
    ///
    /// # Errors
    /// [`ProtocolViolation`]; the ring must not be used afterwards.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<Sent, ProtocolViolation> {
        if self.cursor.available() == 0 {
            return Ok(Sent::Full);
        }
        let at = self.cursor.at;
        let (buffer, region) = self.buffers.empty(&self.ring, at)?;
        if frame.len() > buffer.size() {
            return self.send_chain(frame);
        }
        buffer.write(frame);
        self.buffers
            .write_descriptor(&self.ring, at, region, frame.len(), true);
        self.cursor.at = at.wrapping_add(1);
        Ok(Sent::Yes)
    }

    /// Copies a frame of `size` bytes, which the slices hold in order, into one buffer that [`Self::ready`] has counted.
    ///
    /// # Errors
    /// [`ProtocolViolation`]; the ring must not be used afterwards.
    #[inline]
    pub fn send_slices<'a>(
        &mut self,
        size: usize,
        slices: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Sent, ProtocolViolation> {
        if self.cursor.available() == 0 {
            return Ok(Sent::Full);
        }
        let at = self.cursor.at;
        let (buffer, region) = self.buffers.empty(&self.ring, at)?;
        if size > buffer.size() {
            return Ok(Sent::TooLong);
        }
        let written = buffer.write_slices(slices).min(size);
        self.buffers
            .write_descriptor(&self.ring, at, region, written, true);
        self.cursor.at = at.wrapping_add(1);
        Ok(Sent::Yes)
    }

    /// Copies a frame into several buffers.
    #[cold]
    fn send_chain(&mut self, frame: &[u8]) -> Result<Sent, ProtocolViolation> {
        let at = self.cursor.at;
        let (first, region) = self.buffers.empty(&self.ring, at)?;
        let mut buffers = [(first, region); CHAIN_MAX];
        let (mut len, mut room) = (1, first.size());
        while room < frame.len() {
            if len == CHAIN_MAX || len == usize::from(self.cursor.len) {
                return Ok(Sent::TooLong);
            }
            if len == usize::from(self.cursor.available()) {
                return Ok(Sent::Full);
            }
            buffers[len] = self.buffers.empty(&self.ring, at.wrapping_add(len as u16))?;
            room += buffers[len].0.size();
            len += 1;
        }
        let mut rest = frame;
        for (offset, (buffer, region)) in (0_u16..).zip(&buffers[..len]) {
            let index = at.wrapping_add(offset);
            let (part, behind) = rest.split_at(buffer.size().min(rest.len()));
            buffer.write(part);
            self.buffers
                .write_descriptor(&self.ring, index, *region, part.len(), behind.is_empty());
            rest = behind;
        }
        self.cursor.at = at.wrapping_add(len as u16);
        Ok(Sent::Yes)
    }

    /// Makes the frames visible to the peer. Returns true if the peer sleeps and needs an interrupt.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let at = self.cursor.at;
        if at == self.published {
            return false;
        }
        self.published = at;
        match self.buffers {
            Buffers::Peer => self.ring.tail().store(at, Ordering::Release),
            Buffers::Own { .. } => self.ring.head().store(at, Ordering::Release),
        }
        // Pairs with the peer, which clears POLLED and then reads the index once more before it sleeps: at least one of the
        // two sees the other's store.
        fence(Ordering::SeqCst);
        self.ring.flags().load(Ordering::Relaxed) & POLLED == 0
    }
}

/// This side's ends of a connection's rings.
#[derive(Debug)]
pub struct Rings {
    /// The receiving ends, by ring index.
    pub receivers: Vec<Receiver>,
    /// The sending ends, by ring index.
    pub senders: Vec<Sender>,
    /// The regions that contain rings and buffers.
    pub memory: Arc<Regions>,
}

impl Rings {
    /// Maps the regions and rings of a client, as the server. Returns the rings, and the eventfds of the senders.
    ///
    /// # Errors
    /// [`MessageError`]
    pub fn open(
        offer: Offer<OwnedFd>,
        unsealed: UnsealedPolicy,
    ) -> Result<(Rings, Vec<OwnedFd>), MessageError> {
        let memory = Arc::new(Regions::open(offer.regions, unsealed)?);
        let open = |ring: AddRing| {
            let AddRing {
                direction,
                index,
                region,
                offset,
                log2_len,
                ..
            } = ring;
            let ring = memory.ring(region, offset, log2_len);
            let ring = ring.ok_or(MessageError::RingOutside {
                direction,
                index,
                region,
                offset,
            })?;
            let cookie = ring.cookie().load(Ordering::Relaxed);
            if cookie != COOKIE {
                return Err(MessageError::Cookie {
                    direction,
                    index,
                    cookie,
                });
            }
            // The client initialises the server's index, to 0.
            let at = ring.tail().load(Ordering::Acquire);
            let cursor = Cursor {
                at,
                limit: at,
                len: ring.descriptors(),
            };
            Ok((ring, cursor))
        };
        let mut receivers = Vec::with_capacity(offer.to_server.len());
        for (ring, _interrupt) in offer.to_server {
            let (ring, cursor) = open(ring)?;
            ring.flags().store(POLLED, Ordering::Relaxed);
            receivers.push(Receiver {
                ring,
                buffers: Buffers::Peer,
                cursor,
            });
        }
        let (mut senders, mut interrupts) = (Vec::new(), Vec::new());
        for (ring, interrupt) in offer.to_client {
            let (ring, cursor) = open(ring)?;
            senders.push(Sender {
                ring,
                buffers: Buffers::Peer,
                cursor,
                published: cursor.at,
            });
            interrupts.push(interrupt);
        }
        let rings = Rings {
            receivers,
            senders,
            memory,
        };
        Ok((rings, interrupts))
    }

    /// Creates memory with rings, as the client. Returns the rings, and the file descriptor that shares the memory. No
    /// buffer is offered before [`Receiver::begin`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(layout: &Layout) -> Result<(Rings, OwnedFd), Errno> {
        let (memory, file) = Regions::create(layout.size())?;
        let memory = Arc::new(memory);
        let ring = |direction, index| {
            let AddRing { offset, log2_len, .. } = layout.ring(direction, index);
            let ring = memory.ring(0, offset, log2_len).ok_or(Errno::INVAL)?;
            ring.cookie().store(COOKIE, Ordering::Relaxed);
            let buffers = Buffers::Own {
                first: layout.first_buffer(direction, index),
                size: layout.buffer_size(),
            };
            Ok::<_, Errno>((ring, buffers))
        };
        let mut receivers = Vec::new();
        for index in 0..layout.rings(Direction::ToClient) {
            let (ring, buffers) = ring(Direction::ToClient, index)?;
            ring.flags().store(POLLED, Ordering::Relaxed);
            let len = ring.descriptors();
            receivers.push(Receiver {
                ring,
                buffers,
                cursor: Cursor { at: 0, limit: 0, len },
            });
        }
        let mut senders = Vec::new();
        for index in 0..layout.rings(Direction::ToServer) {
            let (ring, buffers) = ring(Direction::ToServer, index)?;
            let len = ring.descriptors();
            let cursor = Cursor {
                at: 0,
                limit: len,
                len,
            };
            senders.push(Sender {
                ring,
                buffers,
                cursor,
                published: 0,
            });
        }
        let rings = Rings {
            receivers,
            senders,
            memory,
        };
        Ok((rings, file))
    }
}
