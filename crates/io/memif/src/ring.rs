//! Rings: taking frames from a peer, and giving it frames, while it may write anything at any time.
//!
//! # What is checked
//! * The peer's index may go on as far as it can have: a [`Receiver`] knows how many buffers are out, a [`Sender`] how
//!   many are in. One that goes further, or back, is a [`Lie`].
//! * A descriptor is read once, in two halves that no other access can tear. As the server we then check region,
//!   offset and length. As the client we read flags and length only; where the buffer lies we know, and write anew
//!   each time that we offer it.
//! * A frame is at most [`CHAIN_MAX`] buffers; a burst looks at no more than [`WORK_MAX`] descriptors.
//!
//! # Cost
//! A burst reads and writes one index of each side. A frame in one buffer costs a descriptor, a comparison and a copy; the
//! buffer behind it is on its way meanwhile.

use core::sync::atomic::{Ordering, fence};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::client::Layout;
use crate::message::Direction;
use crate::refusal::{Lie, Refusal};
use crate::region::{Place, Regions, RingMemory, Unsealed};
use crate::server::Offer;
use crate::{CHAIN_MAX, RingPlace};

/// What a ring begins with.
const COOKIE: u32 = 0x03E3_1F20;
/// Flag of a ring: its receiver polls.
const POLLED: u16 = 1;
/// Flag of a descriptor: the frame goes on in the next.
const NEXT: u64 = 1;
/// Descriptors that are looked at for one burst, so that empty ones and long chains cost others no time.
pub const WORK_MAX: u16 = 256;

/// One side's place in a ring: its own index, and how far the other's lets it go. Indices run freely, modulo 65,536.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The next descriptor.
    at: u16,
    /// The first one that is the other's.
    limit: u16,
    /// Descriptors of the ring.
    len: u16,
}

impl Cursor {
    /// Believes a new limit, if it can be, and says how many descriptors there are.
    #[inline]
    fn see(&mut self, limit: u16) -> Result<u16, Lie> {
        let room = self.len - self.left();
        if limit.wrapping_sub(self.limit) > room {
            return Err(Lie::Index {
                from: self.limit,
                to: limit,
                room,
            });
        }
        self.limit = limit;
        Ok(self.left())
    }

    /// Descriptors that are ours now.
    #[inline]
    fn left(&self) -> u16 {
        self.limit.wrapping_sub(self.at)
    }
}

/// Whose the buffers are.
#[derive(Clone, Copy, Debug)]
enum Buffers {
    /// The peer's: we are the server.
    Theirs,
    /// Ours, in region 0, one for each descriptor: we are the client.
    Ours {
        /// Where the first is.
        first: u32,
        /// Bytes of each.
        size: u32,
    },
}

/// What a descriptor says.
struct Piece<'a> {
    place: Place<'a>,
    is_last: bool,
}

/// Where a frame goes that came.
pub trait Sink {
    /// Exactly so many bytes to be written, never 0; none to have the frame dropped.
    fn place(&mut self, size: usize) -> Option<&mut [u8]>;
}

/// What a burst brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames that have a place.
    pub frames: usize,
    /// Frames that were empty, or for which there was no place.
    pub dropped: usize,
}

/// The end of a ring from which frames come.
#[derive(Debug)]
pub struct Receiver {
    ring: RingMemory,
    buffers: Buffers,
    cursor: Cursor,
}

impl Receiver {
    /// Reads the peer's index: how many descriptors wait. A frame has one or more.
    ///
    /// # Errors
    /// [`Lie`] if there cannot be so many.
    #[inline]
    pub fn ready(&mut self) -> Result<u16, Lie> {
        let index = match self.buffers {
            Buffers::Theirs => self.ring.head(),
            Buffers::Ours { .. } => self.ring.tail(),
        };
        self.cursor.see(index.load(Ordering::Acquire))
    }

    /// Takes at most `frames` of what [`Self::ready`] has seen, and gives the buffers back.
    ///
    /// # Errors
    /// [`Lie`]; the ring is of no use any more.
    pub fn receive(&mut self, frames: usize, sink: &mut impl Sink) -> Result<Received, Lie> {
        let ring = &self.ring;
        let first = self.cursor.at;
        let (mut at, mut received) = (first, Received::default());
        let mut ahead = None;
        let mut left = self.cursor.left();
        while left > 0 && received.frames < frames && at.wrapping_sub(first) < WORK_MAX {
            let piece = match ahead.take() {
                Some(piece) => piece,
                None => self.buffers.filled(ring, at)?,
            };
            if !piece.is_last {
                let Some(len) = self.chain(at, left, piece.place, sink, &mut received)? else {
                    break;
                };
                at = at.wrapping_add(len);
                left -= len;
                continue;
            }
            at = at.wrapping_add(1);
            left -= 1;
            if left > 0 {
                let next = self.buffers.filled(ring, at)?;
                next.place.prefetch();
                ahead = Some(next);
            }
            let size = piece.place.size();
            match (size != 0).then(|| sink.place(size)).flatten() {
                None => received.dropped += 1,
                Some(bytes) => {
                    piece.place.read(bytes);
                    received.frames += 1;
                }
            }
        }
        self.cursor.at = at;
        self.give_back(first);
        Ok(received)
    }

    /// A frame in several buffers. Returns how many; none if the last has not come yet.
    #[cold]
    fn chain(
        &self,
        at: u16,
        left: u16,
        first: Place<'_>,
        sink: &mut impl Sink,
        received: &mut Received,
    ) -> Result<Option<u16>, Lie> {
        let mut places = [first; CHAIN_MAX];
        let (mut len, mut size) = (1, first.size());
        loop {
            if len == CHAIN_MAX || len == usize::from(self.cursor.len) {
                return Err(Lie::Chain);
            }
            if len == usize::from(left) {
                return Ok(None);
            }
            let piece = self.buffers.filled(&self.ring, at.wrapping_add(len as u16))?;
            places[len] = piece.place;
            size += piece.place.size();
            len += 1;
            if piece.is_last {
                break;
            }
        }
        match (size != 0).then(|| sink.place(size)).flatten() {
            None => received.dropped += 1,
            Some(bytes) => {
                let mut rest = bytes;
                for place in &places[..len] {
                    let (part, behind) = rest.split_at_mut(place.size().min(rest.len()));
                    place.read(part);
                    rest = behind;
                }
                received.frames += 1;
            }
        }
        Ok(Some(len as u16))
    }

    /// Returns the buffers from there on.
    #[inline]
    fn give_back(&mut self, from: u16) {
        let at = self.cursor.at;
        if at == from {
            return;
        }
        match self.buffers {
            Buffers::Theirs => self.ring.tail().store(at, Ordering::Release),
            Buffers::Ours { .. } => self.offer(from),
        }
    }

    /// Offers empty buffers of ours in the place of those from there on that were taken.
    fn offer(&mut self, from: u16) {
        let (at, len) = (self.cursor.at, self.cursor.len);
        let mut index = from;
        while index != at {
            // The place in the ring is the same a round later.
            self.buffers.offer(&self.ring, index);
            index = index.wrapping_add(1);
        }
        self.ring.head().store(at.wrapping_add(len), Ordering::Release);
    }

    /// Begins: as the client, when the server is there. Servers set indices to 0 before.
    pub fn begin(&mut self) {
        if let Buffers::Ours { .. } = self.buffers {
            for index in 0..self.cursor.len {
                self.buffers.offer(&self.ring, index);
            }
            self.ring.head().store(self.cursor.len, Ordering::Release);
        }
    }
}

impl Buffers {
    /// What came in a buffer.
    #[inline]
    fn filled(self, ring: &RingMemory, index: u16) -> Result<Piece<'_>, Lie> {
        let [first, second] = ring.descriptor(index);
        let word = first.load(Ordering::Relaxed);
        let length = (word >> 32) as u32;
        let place = match self {
            Buffers::Theirs => {
                let offset = second.load(Ordering::Relaxed) as u32;
                ring.memory().place((word >> 16) as u16, offset, length)?
            }
            Buffers::Ours { size, .. } => {
                if length > size {
                    return Err(Lie::Longer {
                        size: length,
                        room: size,
                    });
                }
                ring.memory().place(0, self.offset(ring, index), length)?
            }
        };
        Ok(Piece {
            place,
            is_last: word & NEXT == 0,
        })
    }

    /// A buffer to be filled, and which region it is in.
    #[inline]
    fn empty(self, ring: &RingMemory, index: u16) -> Result<(Place<'_>, u16), Lie> {
        match self {
            Buffers::Theirs => {
                let [first, second] = ring.descriptor(index);
                let word = first.load(Ordering::Relaxed);
                let offset = second.load(Ordering::Relaxed) as u32;
                let region = (word >> 16) as u16;
                let place = ring.memory().place(region, offset, (word >> 32) as u32)?;
                Ok((place, region))
            }
            Buffers::Ours { size, .. } => Ok((ring.memory().place(0, self.offset(ring, index), size)?, 0)),
        }
    }

    /// Says that a buffer was filled with so many bytes.
    #[inline]
    fn fill(self, ring: &RingMemory, index: u16, region: u16, size: usize, is_last: bool) {
        let [first, second] = ring.descriptor(index);
        let flags = if is_last { 0 } else { NEXT };
        let word = flags | u64::from(region) << 16 | (size as u64) << 32;
        first.store(word, Ordering::Relaxed);
        if let Buffers::Ours { .. } = self {
            second.store(u64::from(self.offset(ring, index)), Ordering::Relaxed);
        }
    }

    /// Says that a buffer of ours is empty.
    #[inline]
    fn offer(self, ring: &RingMemory, index: u16) {
        if let Buffers::Ours { size, .. } = self {
            self.fill(ring, index, 0, size as usize, true);
        }
    }

    /// Where a buffer of ours is.
    #[inline]
    fn offset(self, ring: &RingMemory, index: u16) -> u32 {
        match self {
            Buffers::Theirs => 0,
            // The layout has seen to it that all of them are within 32 bits.
            Buffers::Ours { first, size } => {
                first.wrapping_add(size.wrapping_mul(u32::from(index & (ring.descriptors() - 1))))
            }
        }
    }
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is in the ring, and the peer's as of [`Sender::publish`].
    Yes,
    /// No buffer is free: later.
    Full,
    /// No number of the peer's buffers would hold it: never.
    TooLong,
}

/// The end of a ring into which frames go.
#[derive(Debug)]
pub struct Sender {
    ring: RingMemory,
    buffers: Buffers,
    cursor: Cursor,
    /// Up to where the peer was told.
    published: u16,
}

impl Sender {
    /// Reads the peer's index: how many buffers are free.
    ///
    /// # Errors
    /// [`Lie`] if there cannot be so many.
    #[inline]
    pub fn ready(&mut self) -> Result<u16, Lie> {
        let limit = match self.buffers {
            Buffers::Theirs => self.ring.head().load(Ordering::Acquire),
            // What the server has emptied is free a round later.
            Buffers::Ours { .. } => self
                .ring
                .tail()
                .load(Ordering::Acquire)
                .wrapping_add(self.cursor.len),
        };
        self.cursor.see(limit)
    }

    /// Copies a frame into buffers that [`Self::ready`] has seen.
    ///
    /// # Errors
    /// [`Lie`]; the ring is of no use any more.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<Sent, Lie> {
        if self.cursor.left() == 0 {
            return Ok(Sent::Full);
        }
        let at = self.cursor.at;
        let (place, region) = self.buffers.empty(&self.ring, at)?;
        if frame.len() > place.size() {
            return self.chain(frame);
        }
        place.write(frame);
        self.buffers.fill(&self.ring, at, region, frame.len(), true);
        self.cursor.at = at.wrapping_add(1);
        Ok(Sent::Yes)
    }

    /// A frame that needs several buffers.
    #[cold]
    fn chain(&mut self, frame: &[u8]) -> Result<Sent, Lie> {
        let at = self.cursor.at;
        let (first, region) = self.buffers.empty(&self.ring, at)?;
        let mut places = [(first, region); CHAIN_MAX];
        let (mut len, mut room) = (1, first.size());
        while room < frame.len() {
            if len == CHAIN_MAX || len == usize::from(self.cursor.len) {
                return Ok(Sent::TooLong);
            }
            if len == usize::from(self.cursor.left()) {
                return Ok(Sent::Full);
            }
            places[len] = self.buffers.empty(&self.ring, at.wrapping_add(len as u16))?;
            room += places[len].0.size();
            len += 1;
        }
        let mut rest = frame;
        for (index, (place, region)) in (at..).zip(&places[..len]) {
            let (part, behind) = rest.split_at(place.size().min(rest.len()));
            place.write(part);
            self.buffers
                .fill(&self.ring, index, *region, part.len(), behind.is_empty());
            rest = behind;
        }
        self.cursor.at = at.wrapping_add(len as u16);
        Ok(Sent::Yes)
    }

    /// Tells the peer of what was sent. Returns whether it sleeps, and wants to be woken.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let at = self.cursor.at;
        if at == self.published {
            return false;
        }
        self.published = at;
        match self.buffers {
            Buffers::Theirs => self.ring.tail().store(at, Ordering::Release),
            Buffers::Ours { .. } => self.ring.head().store(at, Ordering::Release),
        }
        // It says that it sleeps, and then looks once more; we tell, and then look whether it sleeps.
        fence(Ordering::SeqCst);
        self.ring.flags().load(Ordering::Relaxed) & POLLED == 0
    }
}

/// Both ends that we have of a connection's rings.
#[derive(Debug)]
pub struct Rings {
    /// What comes: as many as the peer and we agreed upon.
    pub receivers: Vec<Receiver>,
    /// What goes.
    pub senders: Vec<Sender>,
    /// All of it.
    pub memory: Arc<Regions>,
}

impl Rings {
    /// Maps what a client offers, as the server.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn open(offer: Offer<OwnedFd>, unsealed: Unsealed) -> Result<(Rings, Vec<OwnedFd>), Refusal> {
        let memory = Arc::new(Regions::open(offer.regions, unsealed)?);
        let ring = |place: RingPlace| {
            let ring = memory.ring(place.region, place.offset, place.log2_len);
            let ring = ring.ok_or(Refusal::RingOutside {
                direction: place.direction,
                index: place.index,
                region: place.region,
                offset: place.offset,
            })?;
            let cookie = ring.cookie().load(Ordering::Relaxed);
            if cookie != COOKIE {
                return Err(Refusal::Cookie {
                    direction: place.direction,
                    index: place.index,
                    cookie,
                });
            }
            // Where the client has it, so do we: it begins at 0.
            let at = ring.tail().load(Ordering::Acquire);
            let cursor = Cursor {
                at,
                limit: at,
                len: ring.descriptors(),
            };
            Ok((ring, cursor))
        };
        let mut receivers = Vec::with_capacity(offer.to_server.len());
        for (place, _bell) in offer.to_server {
            let (ring, cursor) = ring(place)?;
            ring.flags().store(POLLED, Ordering::Relaxed);
            receivers.push(Receiver {
                ring,
                buffers: Buffers::Theirs,
                cursor,
            });
        }
        let (mut senders, mut bells) = (Vec::new(), Vec::new());
        for (place, bell) in offer.to_client {
            let (ring, cursor) = ring(place)?;
            senders.push(Sender {
                ring,
                buffers: Buffers::Theirs,
                cursor,
                published: cursor.at,
            });
            bells.push(bell);
        }
        let rings = Rings {
            receivers,
            senders,
            memory,
        };
        Ok((rings, bells))
    }

    /// Makes memory with rings in it, as the client, and the file to share it by. Nothing is offered before
    /// [`Receiver::begin`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(layout: &Layout) -> Result<(Rings, OwnedFd), Errno> {
        let (memory, file) = Regions::create(layout.size())?;
        let memory = Arc::new(memory);
        let ring = |direction, index| {
            let place = layout.ring(direction, index);
            let ring = memory.ring(0, place.offset, place.log2_len).ok_or(Errno::INVAL)?;
            ring.cookie().store(COOKIE, Ordering::Relaxed);
            let buffers = Buffers::Ours {
                first: layout.buffers(direction, index),
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
