//! Frames to a driver.

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::segment::Cut;

use super::chain::{Chain, Pieces, Use};
use super::gather::{Found, Wanted};
use super::header::{self, Header, LONG};
use super::{CHAIN_MAX, Queue, Ring, Setup};
use crate::memory::{Place, View};
use crate::{Features, Lie, Refusal};

/// What became of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Packets that are not in the burst any more.
    pub packets: usize,
    /// How many of them no buffers of the driver's would hold, or it does not take.
    pub dropped: usize,
    /// Whether the driver is to be woken.
    pub wake: bool,
}

/// The end of a driver's receive queue: frames go there.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    view: View,
    rules: Rules,
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug)]
struct Rules {
    features: Features,
    /// Bytes of the header.
    header: usize,
}

impl Sender {
    /// Opens a ring, and has its driver not tell of what it makes available.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn open(setup: &Setup) -> Result<Sender, Refusal> {
        Ok(Sender {
            ring: Ring::open(setup)?,
            view: View::new(setup.memory.clone()),
            rules: Rules {
                features: setup.features,
                header: header::size(setup.features),
            },
        })
    }

    /// Sends packets from the front of a burst, as many as there are buffers for; the others stay.
    ///
    /// # Errors
    /// [`Lie`]; the ring is of no use any more, and the burst is as it was.
    #[inline]
    pub fn send<P: Packet, const N: usize>(&mut self, burst: &mut ArrayVec<P, N>) -> Result<Sent, Lie> {
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

    /// Whether the driver takes such a packet uncut. It cannot be told that CWR is to be on the first segment only.
    #[must_use]
    pub fn takes_uncut(&self, cut: &Cut) -> bool {
        self.rules.takes_uncut(cut)
    }

    /// Where to go on (`VHOST_USER_GET_VRING_BASE`).
    #[must_use]
    pub fn base(&self) -> u32 {
        self.ring.base()
    }
}

/// What became of a packet.
enum Fate {
    Went,
    /// No buffers would hold it, or the driver does not take it.
    Dropped,
    /// There are too few buffers as yet.
    Full,
}

impl Rules {
    fn takes_uncut(&self, cut: &Cut) -> bool {
        let kind = if cut.is_ipv6() {
            Features::GUEST_TSO6
        } else {
            Features::GUEST_TSO4
        };
        cut.is_plain() && !cut.has_cwr() && self.features.contains(Features::GUEST_CSUM | kind)
    }

    #[inline(always)]
    fn send<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        view: &View,
        burst: &mut ArrayVec<P, N>,
    ) -> Result<Sent, Lie> {
        let mut sent = Sent::default();
        let wanted = Wanted {
            use_of: Use::Write,
            header: self.header,
        };
        while sent.packets < burst.len() {
            let mut found = ArrayVec::<Found<'_>, N>::new();
            let rest = burst.get_mut(sent.packets..).unwrap_or_default();
            let mut odd = wanted.gather(queue, view, rest.len(), &mut found)?;
            for (Found { chain, place }, packet) in found.iter().zip(rest) {
                let Some(size) = self.copy(packet, *place) else {
                    odd = Some(*chain);
                    break;
                };
                queue.put(chain, size);
                sent.packets += 1;
            }
            let Some(chain) = odd else {
                // All of them went, or there are no more buffers.
                break;
            };
            queue.reset(&chain);
            match self.spread(queue, view, &mut burst[sent.packets])? {
                Fate::Went => {}
                Fate::Dropped => sent.dropped += 1,
                Fate::Full => break,
            }
            sent.packets += 1;
        }
        sent.wake = queue.publish();
        Ok(sent)
    }

    /// Copies a packet of one segment that is whole into a buffer that holds it, and returns how many bytes there are with
    /// the header; none, if it is otherwise.
    #[inline(always)]
    fn copy<P: Packet>(&self, packet: &P, place: Place<'_>) -> Option<u32> {
        let head = packet.head();
        let size = head.len();
        if size != packet.len() || self.header + size > place.size() || packet.segment_size().is_some() {
            return None;
        }
        // In one chain, and nothing else to be said.
        let is_long = self.header == LONG;
        // A buffer that goes round holds it already, and its driver has looked at it. Where it has a line of its own, as in
        // DPDK's drivers, both keep that line as long as nobody writes to it.
        let is_there = place.is_apart(self.header) && place.begins_with(0, 1 << 16, is_long);
        if !is_there && !place.write_first(0, 1 << 16, is_long) {
            return None;
        }
        place.behind(self.header).write(head);
        Some((self.header + size) as u32)
    }

    /// Any packet into any chains.
    #[cold]
    #[inline(never)]
    fn spread<Q: Queue, P: Packet>(&self, queue: &mut Q, view: &View, packet: &mut P) -> Result<Fate, Lie> {
        let (mut header, mut headers) = (Header::default(), 0);
        if packet.segment_size().is_some() {
            let cut = Cut::of(packet).filter(|cut| self.takes_uncut(cut));
            let uncut = cut.and_then(|cut| Some((Header::uncut(packet, &cut)?, cut.headers_size())));
            let Some((found, size)) = uncut else {
                return Ok(Fate::Dropped);
            };
            (header, headers) = (found, size as u16);
        }
        let is_mergeable = self.features.contains(Features::MRG_RXBUF);
        let size = self.header + packet.len();
        let mut pieces = Pieces::new(Use::Write);
        let mut chains = ArrayVec::<(Chain, usize), CHAIN_MAX>::new();
        let (mut room, mut slots) = (0, 0);
        while room < size {
            let is_too_long =
                slots >= queue.len() || chains.is_full() || (!is_mergeable && !chains.is_empty());
            queue.look(1)?;
            let next = if is_too_long { None } else { queue.take()? };
            let Some(mut chain) = next else {
                if let Some((first, _)) = chains.first() {
                    queue.reset(first);
                }
                return Ok(if is_too_long { Fate::Dropped } else { Fate::Full });
            };
            queue.walk(&mut chain, view, &mut pieces)?;
            if pieces.size < self.header {
                return Err(Lie::Short {
                    size: pieces.size,
                    expected: self.header,
                });
            }
            slots += chain.slots;
            chains.push((chain, pieces.size - room));
            room = pieces.size;
        }
        pieces.write(&header.emit(headers, chains.len() as u16)[..self.header]);
        packet.each_segment(&mut |bytes| pieces.write(bytes));
        let mut left = size;
        for (chain, room) in &chains {
            let part = left.min(*room);
            queue.put(chain, part as u32);
            left -= part;
        }
        Ok(Fate::Went)
    }
}
