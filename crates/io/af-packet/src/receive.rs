//! Frames from an interface.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::virtio_net::{Accepted, Header, SHORT};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use crate::slot::{ADDRESSES_SIZE, HEADER_SIZE, Place, Slot, TAG_SIZE, is_queued};
use crate::socket::Drops;
use crate::sys::Ring;

/// Where in a slot most frames begin: loaded ahead.
const USUAL_BEGIN: usize = 96;
/// Errors of the socket, each told once, that a call may meet before it gets a frame.
const ERRORS_MAX: usize = 4;
/// Pieces of a long frame: the header, the addresses, the rest of the first segment, and as many more segments as a burst has.
const PIECES_MAX: usize = 80;

/// The outcome of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames that came.
    pub frames: usize,
    /// Frames that were dropped: not what their header says, or longer than a packet can be.
    pub dropped: usize,
    /// Long frames that the kernel had no room for in the socket's queue.
    pub missed: usize,
    /// Whether frames wait because no packet was free for them.
    pub is_short: bool,
}

/// A receive queue of an interface.
#[derive(Debug)]
pub struct Receiver {
    socket: Arc<OwnedFd>,
    ring: Ring,
    /// The next slot.
    next: usize,
}

/// The outcome of a frame.
enum Outcome {
    Came,
    Dropped,
    Missed,
    /// No packet was free for it.
    Waits,
}

impl Receiver {
    pub(crate) fn new(socket: Arc<OwnedFd>, ring: Ring) -> Receiver {
        Receiver {
            socket,
            ring,
            next: 0,
        }
    }

    /// What reads the kernel's drops.
    #[must_use]
    pub fn drops(&self) -> Drops {
        Drops::new(Arc::clone(&self.socket))
    }

    /// Adds the frames that wait to a burst, as far as there is room. `empty` adds so many empty packets, or fewer.
    #[inline]
    pub fn receive<P: Packet, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<P, N>,
        accepted: &Accepted,
        mut empty: impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Received {
        let (mut received, first) = (Received::default(), burst.len());
        let ready = self.ready(burst.remaining_capacity());
        if ready == 0 {
            return received;
        }
        empty(ready, burst);
        let mut at = first;
        for _ in 0..ready {
            let mut header = [0; HEADER_SIZE];
            self.ring.read(self.next, 0, &mut header);
            let slot = match Slot::parse(&header) {
                Ok(slot) if !slot.is_outgoing => slot,
                other => {
                    received.dropped += usize::from(other.is_err());
                    if is_queued(&header) {
                        self.discard();
                    }
                    self.advance();
                    continue;
                }
            };
            let Some(packet) = burst.get_mut(at) else {
                received.is_short = true;
                break;
            };
            let outcome = match slot.place {
                Place::Slot => self.copy(&slot, packet, accepted),
                Place::Queue => self.gather(&slot, packet, accepted, &mut empty),
                Place::Nowhere => Outcome::Missed,
            };
            match outcome {
                Outcome::Came => at += 1,
                Outcome::Waits => {
                    received.is_short = true;
                    break;
                }
                Outcome::Missed => received.missed += 1,
                Outcome::Dropped => {
                    received.dropped += 1;
                    // It may hold bytes; the next one takes its place.
                    drop(burst.remove(at));
                }
            }
            self.advance();
        }
        burst.truncate(at);
        received.frames = at - first;
        received
    }

    /// How many slots in a row are ours, `most` at most. Their headers begin to load.
    #[inline(always)]
    fn ready(&self, most: usize) -> usize {
        let ours = |index: &usize| self.ring.is_ours(self.next.wrapping_add(*index));
        let ready = (0..most).take_while(ours);
        ready
            .inspect(|index| self.ring.prefetch(self.next.wrapping_add(*index), USUAL_BEGIN))
            .count()
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.ring.give_back(self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// Fills an empty packet from the slot.
    #[inline(always)]
    fn copy<P: Packet>(&self, slot: &Slot, packet: &mut P, accepted: &Accepted) -> Outcome {
        let mut header = [0; SHORT];
        self.ring.read(self.next, slot.at - SHORT, &mut header);
        let tag_size = if slot.tag.is_some() { TAG_SIZE } else { 0 };
        let Some(place) = packet.append(slot.size + tag_size) else {
            return Outcome::Dropped;
        };
        let is_read = match slot.tag {
            None => self.ring.read(self.next, slot.at, place),
            Some(tag) => {
                let (addresses, rest) = place.split_at_mut(ADDRESSES_SIZE);
                let (tag_place, rest) = rest.split_at_mut(TAG_SIZE);
                tag_place.copy_from_slice(&tag);
                self.ring.read(self.next, slot.at, addresses)
                    && self.ring.read(self.next, slot.at + ADDRESSES_SIZE, rest)
            }
        };
        if !is_read {
            return Outcome::Dropped;
        }
        finish(Header::from_bytes(header), tag_size, packet, accepted)
    }

    /// Fills an empty packet, and as many behind it as it takes, from the socket's queue.
    #[cold]
    #[inline(never)]
    fn gather<P: Packet, const N: usize>(
        &self,
        slot: &Slot,
        packet: &mut P,
        accepted: &Accepted,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Outcome {
        let tag_size = if slot.tag.is_some() { TAG_SIZE } else { 0 };
        let room = packet.room();
        let mut left = slot.size + tag_size;
        let mut more = ArrayVec::<P, N>::new();
        if room <= ADDRESSES_SIZE + TAG_SIZE || left.div_ceil(room) > N.min(PIECES_MAX - 3) {
            self.discard();
            return Outcome::Dropped;
        }
        let wanted = left.div_ceil(room) - 1;
        if wanted > 0 {
            empty(wanted, &mut more);
            if more.len() < wanted || more.iter().any(|packet| packet.room() < room) {
                return Outcome::Waits;
            }
        }
        let mut header = [0; SHORT];
        let mut pieces = ArrayVec::<IoSliceMut<'_>, PIECES_MAX>::new();
        pieces.push(IoSliceMut::new(&mut header));
        let Some(first) = packet.append(left.min(room)) else {
            return Outcome::Waits;
        };
        left -= first.len();
        let (addresses, rest) = first.split_at_mut(ADDRESSES_SIZE);
        let (tag_place, rest) = rest.split_at_mut(tag_size);
        if let Some(tag) = slot.tag {
            tag_place.copy_from_slice(&tag);
        }
        pieces.push(IoSliceMut::new(addresses));
        pieces.push(IoSliceMut::new(rest));
        for packet in &mut more {
            let Some(piece) = packet.append(left.min(room)) else {
                return Outcome::Waits;
            };
            left -= piece.len();
            pieces.push(IoSliceMut::new(piece));
        }
        let is_whole = self.take(&mut pieces) == Some(SHORT + slot.size);
        drop(pieces);
        if !is_whole || !chain(packet, more) {
            return Outcome::Dropped;
        }
        finish(Header::from_bytes(header), tag_size, packet, accepted)
    }

    /// Takes the next frame out of the socket's queue. Returns its size with the header, or none if there is none, or if it is
    /// longer than the pieces.
    fn take(&self, pieces: &mut [IoSliceMut<'_>]) -> Option<usize> {
        for _ in 0..ERRORS_MAX {
            let mut control = RecvAncillaryBuffer::default();
            // Flags say TRUNC in and out: the size is that of the frame then.
            match recvmsg(
                &*self.socket,
                pieces,
                &mut control,
                RecvFlags::DONTWAIT | RecvFlags::TRUNC,
            ) {
                Ok(message) => return Some(message.bytes),
                Err(Errno::AGAIN) => return None,
                // An interface that went down is told first, and once; the frame is still there.
                Err(_) => {}
            }
        }
        None
    }

    /// Takes the next frame out of the socket's queue, for nobody.
    fn discard(&self) {
        let mut header = [0; SHORT];
        self.take(&mut [IoSliceMut::new(&mut header)]);
    }
}

/// Does what was left to us.
#[inline(always)]
fn finish<P: Packet>(header: Header, tag_size: usize, packet: &mut P, accepted: &Accepted) -> Outcome {
    if header.is_plain() || header.shifted(tag_size as u16).finish(packet, accepted) {
        Outcome::Came
    } else {
        Outcome::Dropped
    }
}

/// Puts packets behind another. Returns false where there can be no more segments.
fn chain<P: Packet, const N: usize>(packet: &mut P, mut more: ArrayVec<P, N>) -> bool {
    // From the last on: it takes as long as there are, and not its square.
    let Some(mut tail) = more.pop() else { return true };
    while let Some(mut front) = more.pop() {
        if front.chain(tail).is_err() {
            return false;
        }
        tail = front;
    }
    packet.chain(tail).is_ok()
}
