//! The receive half of a packet socket: bursts of frames from an interface of the kernel.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::virtio_net::{Accepted, Header, SHORT};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use crate::slot::{ADDRESSES_SIZE, DataLocation, HEADER_SIZE, Slot, TAG_SIZE, is_queued};
use crate::state::SocketState;
use crate::sys::Ring;

/// Offset of most frames in their slots, for prefetching.
const USUAL_BEGIN: usize = 96;
/// Greatest number of pending socket errors that are skipped before a frame.
const ERRORS_MAX: usize = 4;
/// Greatest number of buffers for one `recvmsg`: the header, the addresses, the rest of the first segment, and one
/// buffer for each further segment.
const PIECES_MAX: usize = 80;

/// The outcome of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Number of received frames.
    pub frames: usize,
    /// Number of frames that were dropped because they did not agree with their header or were too long for a
    /// packet.
    pub dropped: usize,
    /// Number of long frames for which the socket's queue had no room.
    pub missed: usize,
    /// True if frames wait in the ring because no packet buffer was free.
    pub is_short: bool,
}

/// A receive queue of an interface.
#[derive(Debug)]
pub struct Receiver {
    socket: Arc<OwnedFd>,
    ring: Ring,
    /// Index of the next slot.
    next: usize,
}

/// The outcome of a frame.
enum Outcome {
    Received,
    Dropped,
    Missed,
    /// No packet buffer was free.
    NoBuffer,
}

impl AsFd for Receiver {
    /// The descriptor is readable when frames have arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Receiver {
    pub(crate) fn new(socket: Arc<OwnedFd>, ring: Ring) -> Receiver {
        Receiver {
            socket,
            ring,
            next: 0,
        }
    }

    /// Returns a handle that reads the state of the socket.
    #[must_use]
    pub fn state(&self) -> SocketState {
        SocketState::new(Arc::clone(&self.socket))
    }

    /// Receives waiting frames into a burst until it is full. `empty` appends at most the given number of empty
    /// packets.
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
            let outcome = match slot.location {
                DataLocation::Slot => self.copy(&slot, packet, accepted),
                DataLocation::Queue => self.gather(&slot, packet, accepted, &mut empty),
                DataLocation::Lost => Outcome::Missed,
            };
            match outcome {
                Outcome::Received => at += 1,
                Outcome::NoBuffer => {
                    received.is_short = true;
                    break;
                }
                Outcome::Missed => received.missed += 1,
                Outcome::Dropped => {
                    received.dropped += 1;
                    // The packet may hold bytes, and must not be filled again.
                    drop(burst.remove(at));
                }
            }
            self.advance();
        }
        burst.truncate(at);
        received.frames = at - first;
        received
    }

    /// Returns the number of consecutive filled slots, at most `most`, and prefetches their frames.
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
        self.ring.release_slot(self.next);
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

    /// Fills an empty packet, and further segments as needed, from the socket's queue.
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
                return Outcome::NoBuffer;
            }
        }
        let mut header = [0; SHORT];
        let mut pieces = ArrayVec::<IoSliceMut<'_>, PIECES_MAX>::new();
        pieces.push(IoSliceMut::new(&mut header));
        let Some(first) = packet.append(left.min(room)) else {
            return Outcome::NoBuffer;
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
                return Outcome::NoBuffer;
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

    /// Receives the next frame of the socket's queue. Returns the size of the whole frame with the header,
    /// even if the pieces are shorter; `None` if the queue is empty.
    fn take(&self, pieces: &mut [IoSliceMut<'_>]) -> Option<usize> {
        for _ in 0..ERRORS_MAX {
            let mut control = RecvAncillaryBuffer::default();
            // With MSG_TRUNC, the kernel returns the size of the frame instead of the size of the copy.
            match recvmsg(
                &*self.socket,
                pieces,
                &mut control,
                RecvFlags::DONTWAIT | RecvFlags::TRUNC,
            ) {
                Ok(message) => return Some(message.bytes),
                Err(Errno::AGAIN) => return None,
                // The kernel reports a pending socket error (ENETDOWN) once, before it returns the frame.
                Err(_) => {}
            }
        }
        None
    }

    /// Drops the next frame of the socket's queue.
    fn discard(&self) {
        let mut header = [0; SHORT];
        self.take(&mut [IoSliceMut::new(&mut header)]);
    }
}

/// Completes checksums and sets GSO metadata.
#[inline(always)]
fn finish<P: Packet>(header: Header, tag_size: usize, packet: &mut P, accepted: &Accepted) -> Outcome {
    if header.is_plain() || header.shifted(tag_size as u16).finish(packet, accepted) {
        Outcome::Received
    } else {
        Outcome::Dropped
    }
}

/// Appends packets to another as further segments. Returns false if a packet cannot have so many segments.
fn chain<P: Packet, const N: usize>(packet: &mut P, mut more: ArrayVec<P, N>) -> bool {
    // From the last to the first: chaining walks the segments of the front packet, so this takes linear time.
    let Some(mut tail) = more.pop() else { return true };
    while let Some(mut front) = more.pop() {
        if front.chain(tail).is_err() {
            return false;
        }
        tail = front;
    }
    packet.chain(tail).is_ok()
}
