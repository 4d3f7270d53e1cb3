//! Frames from a driver.

use arrayvec::ArrayVec;
use millrace_wire::Packet;

use super::chain::{Chain, Pieces, Use};
use super::gather::{Found, Wanted};
use super::header::{self, Header, LONG};
use super::{Queue, Ring, Setup};
use crate::memory::{Place, View};
use crate::{Features, Lie, Refusal};

/// What a receiver lets in. Anything else is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the longest frame that is not to be cut.
    pub frame_size: usize,
    /// Bytes of the longest segment of a packet that is to be cut, from the IP header on.
    pub mtu: usize,
    /// Whether a frame may take several of our packets, one behind the other.
    pub is_segmented: bool,
}

/// Bytes of the longest packet that is to be cut: all that IP can have, and what may be in front of it.
const UNCUT_MAX: usize = 65_535 + 64;

/// What a burst brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames that came.
    pub frames: usize,
    /// Frames that were dropped: empty, too long, or not what their header said.
    pub dropped: usize,
    /// Whether frames wait because no packet was free for them.
    pub is_short: bool,
    /// Whether the driver is to be woken.
    pub wake: bool,
}

/// The end of a driver's transmit queue: frames come from here.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    view: View,
    rules: Rules,
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug)]
struct Rules {
    features: Features,
    limits: Limits,
    /// Bytes of the header.
    header: usize,
}

impl Receiver {
    /// Opens a ring, and has its driver not tell of what it makes available.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn open(setup: &Setup, limits: Limits) -> Result<Receiver, Refusal> {
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

    /// Adds what waits to a burst, as far as there is room. `empty` adds so many empty packets, or fewer.
    ///
    /// # Errors
    /// [`Lie`]; the ring is of no use any more, and the burst is as it was.
    #[inline]
    pub fn receive<P: Packet, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<P, N>,
        empty: impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Result<Received, Lie> {
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

    /// Where to go on (`VHOST_USER_GET_VRING_BASE`).
    #[must_use]
    pub fn base(&self) -> u32 {
        self.ring.base()
    }
}

/// What became of a frame.
enum Fate {
    Came,
    Dropped,
    /// There was no packet for it.
    Waits,
}

impl Rules {
    #[inline(always)]
    fn receive<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        view: &View,
        burst: &mut ArrayVec<P, N>,
        mut empty: impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Result<Received, Lie> {
        let mut received = Received::default();
        let first = burst.len();
        // What is dropped takes its time, too.
        let mut left = burst.remaining_capacity();
        let wanted = Wanted {
            use_of: Use::Read,
            header: self.header,
        };
        while left > 0 && !received.is_short {
            let mut found = ArrayVec::<Found<'_>, N>::new();
            let odd = wanted.gather(queue, view, left, &mut found)?;
            left -= found.len();
            if !found.is_empty() {
                self.take(queue, &found, burst, &mut empty, &mut received);
            }
            let Some(chain) = odd.filter(|_| !received.is_short) else {
                break;
            };
            left -= 1;
            self.take_odd(queue, view, chain, burst, &mut empty, &mut received)?;
        }
        received.frames = burst.len() - first;
        received.wake = queue.publish();
        Ok(received)
    }

    /// Frames in one buffer each.
    #[inline(always)]
    fn take<Q: Queue, P: Packet, const N: usize>(
        &self,
        queue: &mut Q,
        found: &[Found<'_>],
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
            let [Found { chain, place }, behind @ ..] = rest else {
                break;
            };
            rest = behind;
            let fate = match header {
                Some(header) => self.finish(header, at, burst),
                None => self.put_one(*place, at, burst, empty),
            };
            match fate {
                Fate::Came => at += 1,
                Fate::Dropped => received.dropped += 1,
                Fate::Waits => {
                    queue.reset(chain);
                    received.is_short = true;
                    break;
                }
            }
            queue.put(chain, 0);
        }
        if at < burst.len() {
            burst.truncate(at);
        }
    }

    /// Copies frames into empty packets until there is no more, or one is not plain. Returns how many are; and the header of
    /// the one that is not, if its packet was filled.
    #[inline(always)]
    fn take_plain<Q: Queue, P: Packet>(
        &self,
        queue: &mut Q,
        found: &[Found<'_>],
        packets: &mut [P],
    ) -> (usize, Option<Header>) {
        let mut plain = 0;
        for (Found { chain, place }, packet) in found.iter().zip(packets) {
            match self.copy(packet, *place) {
                Some(header) if header.is_plain() => queue.put(chain, 0),
                header => return (plain, header),
            }
            plain += 1;
        }
        (plain, None)
    }

    /// A frame in a chain of several buffers.
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
    ) -> Result<(), Lie> {
        let mut pieces = Pieces::new(Use::Read);
        queue.walk(&mut chain, view, &mut pieces)?;
        if pieces.size < self.header {
            return Err(Lie::Short {
                size: pieces.size,
                expected: self.header,
            });
        }
        let at = burst.len();
        empty(1, burst);
        match self.put_together(pieces, at, burst, empty) {
            Fate::Came => {}
            Fate::Dropped => {
                received.dropped += 1;
                burst.truncate(at);
            }
            Fate::Waits => {
                received.is_short = true;
                burst.truncate(at);
                queue.reset(&chain);
                return Ok(());
            }
        }
        queue.put(&chain, 0);
        Ok(())
    }

    /// Copies a frame into an empty packet, and returns its header; none, and the packet is empty, if it has no
    /// byte, or too many.
    #[inline(always)]
    fn copy<P: Packet>(&self, packet: &mut P, place: Place<'_>) -> Option<Header> {
        let header = place.first()?;
        let frame = place.behind(self.header);
        let size = frame.size();
        if size == 0 || size > self.limits.frame_size {
            return None;
        }
        frame.read(packet.append(size)?);
        Some(Header::parse(header))
    }

    /// Does what was left to us. A packet that is not as its header says goes, so that the next one is in its place.
    #[cold]
    #[inline(never)]
    fn finish<P: Packet, const N: usize>(
        &self,
        header: Header,
        at: usize,
        burst: &mut ArrayVec<P, N>,
    ) -> Fate {
        let is_fine = |packet: &mut P| header.finish(packet, self.features, self.limits);
        if burst.get_mut(at).is_some_and(is_fine) {
            return Fate::Came;
        }
        if at < burst.len() {
            drop(burst.remove(at));
        }
        Fate::Dropped
    }

    /// Fills several packets from one buffer, or none.
    #[cold]
    #[inline(never)]
    fn put_one<P: Packet, const N: usize>(
        &self,
        place: Place<'_>,
        at: usize,
        burst: &mut ArrayVec<P, N>,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Fate {
        self.put_together(Pieces::of(place), at, burst, empty)
    }

    /// Fills an empty packet from several buffers, or several packets from one.
    fn put_together<P: Packet, const N: usize>(
        &self,
        mut pieces: Pieces<'_>,
        at: usize,
        burst: &mut ArrayVec<P, N>,
        empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Fate {
        let Some(packet) = burst.get_mut(at) else {
            return Fate::Waits;
        };
        let mut bytes = [0; LONG];
        pieces.read(&mut bytes[..self.header]);
        let [b0, b1, b2, b3, b4, b5, b6, b7, a0, a1, ..] = bytes;
        let begin = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        let header = Header::parse((begin, u16::from_le_bytes([a0, a1])));
        let most = match (header.is_cut(), self.limits.is_segmented) {
            (true, true) => UNCUT_MAX,
            (_, true) => self.limits.frame_size,
            (_, false) => self.limits.frame_size.min(packet.room()),
        };
        if pieces.size == 0 || pieces.size > most {
            return Fate::Dropped;
        }
        match fill(packet, &mut pieces, empty) {
            Fate::Came => self.finish(header, at, burst),
            fate => fate,
        }
    }
}

/// Fills an empty packet, and as many behind it as it takes.
fn fill<P: Packet, const N: usize>(
    packet: &mut P,
    pieces: &mut Pieces<'_>,
    empty: &mut impl FnMut(usize, &mut ArrayVec<P, N>),
) -> Fate {
    let room = packet.room();
    if !append(packet, pieces) {
        return Fate::Waits;
    }
    while pieces.size > 0 {
        let mut more = ArrayVec::<P, N>::new();
        empty(pieces.size.div_ceil(room).min(N), &mut more);
        let filled = more
            .iter_mut()
            .map_while(|packet| append(packet, pieces).then_some(()))
            .count();
        more.truncate(filled);
        // From the last on: it takes as long as there are, and not its square.
        let mut tail = None;
        while let Some(mut front) = more.pop() {
            if let Some(tail) = tail.take()
                && front.chain(tail).is_err()
            {
                return Fate::Waits;
            }
            tail = Some(front);
        }
        let Some(tail) = tail else { return Fate::Waits };
        if packet.chain(tail).is_err() {
            return Fate::Waits;
        }
    }
    Fate::Came
}

/// Fills an empty packet with what fits. False, if that is nothing.
fn append<P: Packet>(packet: &mut P, pieces: &mut Pieces<'_>) -> bool {
    let size = pieces.size.min(packet.room());
    let place = if size == 0 { None } else { packet.append(size) };
    place.is_some_and(|place| {
        pieces.read(place);
        true
    })
}
