//! Frames from a driver: the device's side of the driver's transmit queue.

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::virtio_net::{Header, LONG};

use super::chain::{BufferAccess, Chain, ChainBuffers};
use super::gather::{Gather, PlainChain};
use super::header::{self, Limits};
use super::{Queue, Ring, Setup};
use crate::memory::{GuestSlice, View};
use crate::{Features, MessageError, ProtocolViolation};

/// The largest GSO packet in bytes: the largest IP packet, and the headers in front of it.
const GSO_MAX: usize = 65_535 + 64;

/// The outcome of receiving a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// The number of frames received.
    pub frames: usize,
    /// The number of frames dropped: empty, too long, or inconsistent with their virtio-net header.
    pub dropped: usize,
    /// True if frames remain in the ring because no mbuf was free.
    pub is_short: bool,
    /// True if the driver needs a call.
    pub needs_call: bool,
}

/// The device's end of a driver's transmit queue.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    view: View,
    rules: Rules,
}

/// The negotiated parameters of a queue.
#[derive(Clone, Copy, Debug)]
struct Rules {
    features: Features,
    limits: Limits,
    /// Size of the virtio-net header in bytes.
    header: usize,
}

impl Receiver {
    /// Opens a ring and disables the driver's notifications (kicks).
    ///
    /// # Errors
    /// [`MessageError`]
    pub fn open(setup: &Setup, limits: Limits) -> Result<Receiver, MessageError> {
        Ok(Receiver {
            ring: Ring::open(setup)?,
            view: View::new(setup.memory.clone()),
            rules: Rules {
                features: setup.features,
                limits,
                header: header::size(setup.features),
            },
        })
    }

    /// Appends available frames to a burst until it is full. `empty` appends up to the requested number of empty
    /// packets.
    ///
    /// # Errors
    /// [`ProtocolViolation`]; the ring must not be used again, and the burst is unchanged.
    #[inline]
    pub fn receive<P: Packet, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<P, N>,
        empty: impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Result<Received, ProtocolViolation> {
        let first = burst.len();
        let (view, rules) = (&self.view, &self.rules);
        let received = match &mut self.ring {
            Ring::Split(queue) => rules.receive(queue, view, burst, empty),
            Ring::Packed(queue) => rules.receive(queue, view, burst, empty),
        };
        if received.is_err() {
            burst.truncate(first);
        }
        received
    }

    /// Returns the vring base (`VHOST_USER_GET_VRING_BASE`).
    #[must_use]
    pub fn base(&self) -> u32 {
        self.ring.base()
    }
}

/// The outcome of receiving one frame.
enum Outcome {
    Received,
    Dropped,
    /// No mbuf was free, so the frame stays in the ring.
    NoMbuf,
}

impl Rules {
    #[inline(always)]
    fn receive<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        view: &View,
        burst: &mut ArrayVec<P, N>,
        mut empty: impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Result<Received, ProtocolViolation> {
        let mut received = Received::default();
        let first = burst.len();
        // A dropped frame counts, too, so that a burst has a bounded cost.
        let mut left = burst.remaining_capacity();
        let wanted = Gather {
            use_of: BufferAccess::Read,
            header: self.header,
        };
        while left > 0 && !received.is_short {
            let mut found = ArrayVec::<PlainChain<'_>, N>::new();
            let other = wanted.gather(queue, view, left, &mut found)?;
            left -= found.len();
            if !found.is_empty() {
                self.take(queue, &found, burst, &mut empty, &mut received);
            }
            let Some(chain) = other.filter(|_| !received.is_short) else {
                break;
            };
            left -= 1;
            self.take_odd(queue, view, chain, burst, &mut empty, &mut received)?;
        }
        received.frames = burst.len() - first;
        received.needs_call = queue.publish();
        Ok(received)
    }

    /// Receives frames of one buffer each.
    #[inline(always)]
    fn take<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        found: &[PlainChain<'_>],
        burst: &mut ArrayVec<P, N>,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
        received: &mut Received,
    ) {
        let mut at = burst.len();
        empty(found.len(), burst);
        let mut rest = found;
        loop {
            let (plain, header) = self.take_plain(queue, rest, burst.get_mut(at..).unwrap_or_default());
            at += plain;
            rest = rest.get(plain..).unwrap_or_default();
            let [PlainChain { chain, slice }, behind @ ..] = rest else {
                break;
            };
            rest = behind;
            let outcome = match header {
                Some(header) => self.finish(header, at, burst),
                None => self.put_one(*slice, at, burst, empty),
            };
            match outcome {
                Outcome::Received => at += 1,
                Outcome::Dropped => received.dropped += 1,
                Outcome::NoMbuf => {
                    queue.reset(chain);
                    received.is_short = true;
                    break;
                }
            }
            queue.mark_used(chain, 0);
        }
        if at < burst.len() {
            burst.truncate(at);
        }
    }

    /// Copies frames into empty packets and stops at the first frame that needs more than a copy. Returns the
    /// number of copied frames, and the header of the frame at which it stopped if the bytes of that frame
    /// were copied.
    #[inline(always)]
    fn take_plain<Q: Queue, P: Packet>(
        &self,
        queue: &mut Q,
        found: &[PlainChain<'_>],
        packets: &mut [P],
    ) -> (usize, Option<Header>) {
        let mut plain = 0;
        for (PlainChain { chain, slice }, packet) in found.iter().zip(packets) {
            match self.copy(packet, *slice) {
                Some(header) if header.is_plain() => queue.mark_used(chain, 0),
                header => return (plain, header),
            }
            plain += 1;
        }
        (plain, None)
    }

    /// Receives a frame from a chain of several buffers.
    #[cold]
    #[inline(never)]
    fn take_odd<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        view: &View,
        mut chain: Chain,
        burst: &mut ArrayVec<P, N>,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
        received: &mut Received,
    ) -> Result<(), ProtocolViolation> {
        let mut buffers = ChainBuffers::new(BufferAccess::Read);
        queue.read_chain(&mut chain, view, &mut buffers)?;
        if buffers.size < self.header {
            return Err(ProtocolViolation::Short {
                size: buffers.size,
                expected: self.header,
            });
        }
        let at = burst.len();
        empty(1, burst);
        match self.put_together(buffers, at, burst, empty) {
            Outcome::Received => {}
            Outcome::Dropped => {
                received.dropped += 1;
                burst.truncate(at);
            }
            Outcome::NoMbuf => {
                received.is_short = true;
                burst.truncate(at);
                queue.reset(&chain);
                return Ok(());
            }
        }
        queue.mark_used(&chain, 0);
        Ok(())
    }

    /// Copies a frame into an empty packet and returns its header. Returns `None`, and leaves the packet empty, if the
    /// frame is empty or too long.
    #[inline(always)]
    fn copy<P: Packet>(&self, packet: &mut P, slice: GuestSlice<'_>) -> Option<Header> {
        let header = slice.first()?;
        let frame = slice.behind(self.header);
        let size = frame.size();
        if size == 0 || size > self.limits.frame_size {
            return None;
        }
        frame.read(packet.append(size)?);
        Some(Header::parse(header))
    }

    /// Completes checksum and GSO metadata. Removes a packet that does not agree with its header, so that the next
    /// packet takes its index.
    #[cold]
    #[inline(never)]
    fn finish<P: Packet, const N: usize>(
        &self,
        header: Header,
        at: usize,
        burst: &mut ArrayVec<P, N>,
    ) -> Outcome {
        let is_fine = |packet: &mut P| header.finish(packet, &header::accepted(self.features, self.limits));
        if burst.get_mut(at).is_some_and(is_fine) {
            return Outcome::Received;
        }
        if at < burst.len() {
            drop(burst.remove(at));
        }
        Outcome::Dropped
    }

    /// Receives a frame of one buffer that does not fit into one mbuf.
    #[cold]
    #[inline(never)]
    fn put_one<P: Packet, const N: usize>(
        &self,
        slice: GuestSlice<'_>,
        at: usize,
        burst: &mut ArrayVec<P, N>,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Outcome {
        self.put_together(ChainBuffers::of(slice), at, burst, empty)
    }

    /// Copies a frame of several buffers, or into several mbufs.
    fn put_together<P: Packet, const N: usize>(
        &self,
        mut buffers: ChainBuffers<'_>,
        at: usize,
        burst: &mut ArrayVec<P, N>,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Outcome {
        let Some(packet) = burst.get_mut(at) else {
            return Outcome::NoMbuf;
        };
        let mut bytes = [0; LONG];
        buffers.read(&mut bytes[..self.header]);
        let [b0, b1, b2, b3, b4, b5, b6, b7, a0, a1, ..] = bytes;
        let begin = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        let header = Header::parse((begin, u16::from_le_bytes([a0, a1])));
        let most = match (header.is_gso(), self.limits.is_segmented) {
            (true, true) => GSO_MAX,
            (_, true) => self.limits.frame_size,
            (_, false) => self.limits.frame_size.min(packet.room()),
        };
        if buffers.size == 0 || buffers.size > most {
            return Outcome::Dropped;
        }
        match fill(packet, &mut buffers, empty) {
            Outcome::Received => self.finish(header, at, burst),
            outcome => outcome,
        }
    }
}

/// Copies a frame into an empty packet, and chains further mbufs to it as needed.
fn fill<P: Packet, const N: usize>(
    packet: &mut P,
    buffers: &mut ChainBuffers<'_>,
    empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
) -> Outcome {
    let room = packet.room();
    if !append(packet, buffers) {
        return Outcome::NoMbuf;
    }
    while buffers.size > 0 {
        let mut more = ArrayVec::<P, N>::new();
        empty(buffers.size.div_ceil(room).min(N), &mut more);
        let filled = more
            .iter_mut()
            .map_while(|packet| append(packet, buffers).then_some(()))
            .count();
        more.truncate(filled);
        // Chaining from the last mbuf to the first is linear; from the first, each step would walk the chain.
        let mut tail = None;
        while let Some(mut front) = more.pop() {
            if let Some(tail) = tail.take()
                && front.chain(tail).is_err()
            {
                return Outcome::NoMbuf;
            }
            tail = Some(front);
        }
        let Some(tail) = tail else { return Outcome::NoMbuf };
        if packet.chain(tail).is_err() {
            return Outcome::NoMbuf;
        }
    }
    Outcome::Received
}

/// Copies as many bytes as fit into an empty packet. Returns false if no byte fits.
fn append<P: Packet>(packet: &mut P, buffers: &mut ChainBuffers<'_>) -> bool {
    let size = buffers.size.min(packet.room());
    let slice = if size == 0 { None } else { packet.append(size) };
    slice.is_some_and(|slice| {
        buffers.read(slice);
        true
    })
}
