//! Frames to a driver: the device's side of the driver's receive queue.

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;
use millrace_wire::virtio_net::{Header, LONG};

use super::chain::{BufferAccess, Chain, ChainBuffers};
use super::gather::{Gather, PlainChain};
use super::header;
use super::{CHAIN_MAX, Queue, Ring, Setup};
use crate::memory::{GuestSlice, View};
use crate::{Features, MessageError, ProtocolViolation};

/// The outcome of sending a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// The number of packets that left the burst.
    pub packets: usize,
    /// The number of dropped packets among them: no buffers of the driver can hold the packet, or the driver
    /// did not negotiate its features.
    pub dropped: usize,
    /// True if the driver needs a call.
    pub needs_call: bool,
}

/// The device's end of a driver's receive queue.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    view: View,
    rules: Rules,
}

/// The negotiated parameters of a queue.
#[derive(Clone, Copy, Debug)]
struct Rules {
    features: Features,
    /// Size of the virtio-net header in bytes.
    header: usize,
}

impl Sender {
    /// Opens a ring and disables the driver's notifications (kicks).
    ///
    /// # Errors
    /// [`MessageError`]
    pub fn open(setup: &Setup) -> Result<Sender, MessageError> {
        Ok(Sender {
            ring: Ring::open(setup)?,
            view: View::new(setup.memory.clone()),
            rules: Rules {
                features: setup.features,
                header: header::size(setup.features),
            },
        })
    }

    /// Sends packets from the front of a burst, as many as the driver has buffers for; the others stay.
    ///
    /// # Errors
    /// [`ProtocolViolation`]; the ring must not be used again, and the burst is unchanged.
    #[inline]
    pub fn send<P: Packet, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<P, N>,
    ) -> Result<Sent, ProtocolViolation> {
        let (view, rules) = (&self.view, &self.rules);
        let sent = match &mut self.ring {
            Ring::Split(queue) => rules.send(queue, view, burst),
            Ring::Packed(queue) => rules.send(queue, view, burst),
        }?;
        if sent.packets == burst.len() {
            P::discard(burst);
        } else {
            drop(burst.drain(..sent.packets));
        }
        Ok(sent)
    }

    /// Returns true if the driver accepts this GSO packet unsegmented. A packet with CWR is never accepted, since
    /// virtio cannot express that only the first segment carries CWR.
    #[must_use]
    pub fn takes_gso(&self, gso: &GsoLayout) -> bool {
        self.rules.takes_gso(gso)
    }

    /// Returns the vring base (`VHOST_USER_GET_VRING_BASE`).
    #[must_use]
    pub fn base(&self) -> u32 {
        self.ring.base()
    }
}

/// The outcome of sending one packet.
enum Outcome {
    Sent,
    /// No buffers of the driver can hold the packet, or the driver did not negotiate its features.
    Dropped,
    /// The ring has too few buffers at the moment.
    Full,
}

impl Rules {
    fn takes_gso(&self, gso: &GsoLayout) -> bool {
        let kind = if gso.is_ipv6() {
            Features::GUEST_TSO6
        } else {
            Features::GUEST_TSO4
        };
        gso.is_plain()
            && !gso.is_udp()
            && !gso.has_cwr()
            && self.features.contains(Features::GUEST_CSUM | kind)
    }

    #[inline(always)]
    fn send<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        view: &View,
        burst: &mut ArrayVec<P, N>,
    ) -> Result<Sent, ProtocolViolation> {
        let mut sent = Sent::default();
        let wanted = Gather {
            use_of: BufferAccess::Write,
            header: self.header,
        };
        while sent.packets < burst.len() {
            let mut found = ArrayVec::<PlainChain<'_>, N>::new();
            let rest = burst.get_mut(sent.packets..).unwrap_or_default();
            let mut other = wanted.gather(queue, view, rest.len(), &mut found)?;
            for (PlainChain { chain, slice }, packet) in found.iter().zip(rest) {
                let Some(size) = self.copy(packet, *slice) else {
                    other = Some(*chain);
                    break;
                };
                queue.mark_used(chain, size);
                sent.packets += 1;
            }
            let Some(chain) = other else {
                // All packets were sent, or the ring has no more buffers.
                break;
            };
            queue.reset(&chain);
            match self.spread(queue, view, &mut burst[sent.packets])? {
                Outcome::Sent => {}
                Outcome::Dropped => sent.dropped += 1,
                Outcome::Full => break,
            }
            sent.packets += 1;
        }
        sent.needs_call = queue.publish();
        Ok(sent)
    }

    /// Copies a plain packet of one segment into one buffer, and returns the number of bytes including the header.
    /// Returns `None` for any other packet, and if the buffer is too small.
    #[inline(always)]
    fn copy<P: Packet>(&self, packet: &P, slice: GuestSlice<'_>) -> Option<u32> {
        let head = packet.head();
        let size = head.len();
        if size != packet.len() || self.header + size > slice.size() || packet.segment_size().is_some() {
            return None;
        }
        // The packet is in one chain, without flags.
        let is_long = self.header == LONG;
        // A buffer that is used again often holds this header already. If the header has a cache line of its own, as
        // with DPDK's drivers, not writing it keeps the line shared between both processors.
        let is_there = slice.is_apart(self.header) && slice.begins_with(0, 1 << 16, is_long);
        if !is_there && !slice.write_first(0, 1 << 16, is_long) {
            return None;
        }
        slice.behind(self.header).write(head);
        Some((self.header + size) as u32)
    }

    /// Sends any packet into any chains.
    #[cold]
    #[inline(never)]
    fn spread<Q: Queue, P: Packet>(
        &self,
        queue: &mut Q,
        view: &View,
        packet: &mut P,
    ) -> Result<Outcome, ProtocolViolation> {
        let (mut header, mut headers) = (Header::default(), 0);
        if packet.segment_size().is_some() {
            let gso = GsoLayout::of(packet).filter(|gso| self.takes_gso(gso));
            let gso_header = gso.and_then(|gso| Some((Header::for_gso(packet, &gso)?, gso.headers_size())));
            let Some((found, size)) = gso_header else {
                return Ok(Outcome::Dropped);
            };
            (header, headers) = (found, size as u16);
        }
        let is_mergeable = self.features.contains(Features::MRG_RXBUF);
        let size = self.header + packet.len();
        let mut buffers = ChainBuffers::new(BufferAccess::Write);
        let mut chains = ArrayVec::<(Chain, usize), CHAIN_MAX>::new();
        let (mut room, mut slots) = (0, 0);
        while room < size {
            let is_too_long =
                slots >= queue.len() || chains.is_full() || (!is_mergeable && !chains.is_empty());
            queue.poll_index(1)?;
            let next = if is_too_long { None } else { queue.take()? };
            let Some(mut chain) = next else {
                if let Some((first, _)) = chains.first() {
                    queue.reset(first);
                }
                return Ok(if is_too_long {
                    Outcome::Dropped
                } else {
                    Outcome::Full
                });
            };
            queue.read_chain(&mut chain, view, &mut buffers)?;
            // Each chain must hold a header, also those after the first (virtio 1.2, section 5.1.6.3.1).
            let chain_size = buffers.size - room;
            if chain_size < self.header {
                return Err(ProtocolViolation::Short {
                    size: chain_size,
                    expected: self.header,
                });
            }
            slots += chain.slots;
            chains.push((chain, chain_size));
            room = buffers.size;
        }
        buffers.write(&header.emit(headers, chains.len() as u16)[..self.header]);
        packet.each_segment(&mut |bytes| buffers.write(bytes));
        let mut left = size;
        for (chain, room) in &chains {
            let part = left.min(*room);
            queue.mark_used(chain, part as u32);
            left -= part;
        }
        Ok(Outcome::Sent)
    }
}
