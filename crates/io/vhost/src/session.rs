//! What a driver may say, and what follows from it, without IO.
//!
//! A driver says in any order, and again at any time, where its memory and its rings are, and which of them run. So what it
//! said is kept, and after each message rings are compared with it: one runs while all that it needs was said, and is
//! stopped before anything changes that it stands on, or an answer says that it was. Whoever stops and starts them is the
//! caller ([`Device`]).

use crate::features::Features;
use crate::memory::Span;
use crate::message::{Addresses, Message, Reply, RingMessage};
use crate::refusal::Refusal;

/// Several pairs of queues (`VHOST_USER_PROTOCOL_F_MQ`).
const MANY_QUEUES: u64 = 1 << 0;
/// Answers to everything that is said with the wish for one (`VHOST_USER_PROTOCOL_F_REPLY_ACK`).
const ACKNOWLEDGE: u64 = 1 << 3;
/// The driver's side tells of the MTU (`VHOST_USER_PROTOCOL_F_NET_MTU`).
const MTU: u64 = 1 << 4;
/// The parts of the protocol that are spoken.
const PROTOCOL: u64 = MANY_QUEUES | ACKNOWLEDGE | MTU;

/// Pairs of queues at most: rings have numbers of a byte.
pub const PAIRS_MAX: u16 = 128;

/// Where a ring is, and where it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// As many descriptors as the driver says.
    pub size: u32,
    /// Where its parts are.
    pub addresses: Addresses,
    /// Where it goes on.
    pub base: u32,
    /// What the driver takes of what was offered.
    pub features: Features,
}

/// What has the memory and the rings.
pub trait Device {
    /// What comes along with messages.
    type File;

    /// This is the memory from now on, and no other. No ring runs.
    ///
    /// # Errors
    /// [`Refusal`] for memory that cannot be had.
    fn share(&mut self, memory: Vec<(Span, Self::File)>) -> Result<(), Refusal>;

    /// A ring runs, which did not.
    ///
    /// # Errors
    /// [`Refusal`] for one that is not in the memory.
    fn start(&mut self, ring: u16, place: &Place) -> Result<(), Refusal>;

    /// A ring no longer runs, which did: when this returns, nobody touches it. Returns where it would have gone on, if it
    /// went at all.
    fn stop(&mut self, ring: u16) -> Option<u32>;

    /// By which file the driver is woken for a ring.
    fn call(&mut self, ring: u16, file: Option<Self::File>);
}

/// What was said of a ring.
#[derive(Clone, Copy, Default, Debug)]
struct Ring {
    size: Option<u32>,
    addresses: Option<Addresses>,
    base: u32,
    is_kicked: bool,
    /// What was said of that; rings of drivers who do not know that they can be enabled are.
    is_enabled: Option<bool>,
    is_running: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    offered: Features,
    features: Features,
    protocol: u64,
    has_memory: bool,
    rings: Vec<Ring>,
}

impl Session {
    /// A driver that may have so many pairs of queues, at least one and at most [`PAIRS_MAX`], and take of these features.
    pub fn new(pairs: u16, offered: Features) -> Session {
        Session {
            offered,
            features: Features::default(),
            protocol: 0,
            has_memory: false,
            rings: vec![Ring::default(); 2 * usize::from(pairs.clamp(1, PAIRS_MAX))],
        }
    }

    /// Whether a ring runs.
    pub fn is_running(&self, ring: u16) -> bool {
        self.rings
            .get(usize::from(ring))
            .is_some_and(|ring| ring.is_running)
    }

    /// Whether packets flow both ways.
    pub fn is_up(&self) -> bool {
        self.is_running(0) && self.is_running(1)
    }

    /// What the driver takes of what was offered.
    pub fn features(&self) -> Features {
        self.features
    }

    /// A message came, with as many files as it has ([`Message::files`]). Returns what is to be answered.
    ///
    /// # Errors
    /// [`Refusal`], upon which the connection ends: [`Self::end`].
    pub fn receive<D: Device>(
        &mut self,
        message: Message,
        needs_reply: bool,
        files: Vec<D::File>,
        device: &mut D,
    ) -> Result<Option<Reply>, Refusal> {
        let request = message.request();
        let reply = self.act(message, files, device)?;
        self.settle(device)?;
        let done = || Reply::number(request, 0);
        Ok(reply.or_else(|| (needs_reply && self.protocol & ACKNOWLEDGE != 0).then(done)))
    }

    /// Stops all that runs.
    pub fn end<D: Device>(&mut self, device: &mut D) {
        for at in 0..self.rings.len() {
            self.stop(at as u16, device);
        }
    }

    fn act<D: Device>(
        &mut self,
        message: Message,
        files: Vec<D::File>,
        device: &mut D,
    ) -> Result<Option<Reply>, Refusal> {
        let answer = |number| Ok(Some(Reply::number(message.request(), number)));
        match message {
            Message::GetFeatures => return answer(self.offered.bits()),
            Message::SetFeatures(bits) => self.take_features(bits, device)?,
            Message::SetOwner => {}
            Message::ResetOwner => {
                self.end(device);
                self.rings.fill(Ring::default());
                self.features = Features::default();
            }
            Message::SetMemory(spans) => {
                self.end(device);
                self.has_memory = false;
                device.share(spans.into_iter().zip(files).collect())?;
                self.has_memory = true;
            }
            Message::Ring(ring, of_ring) => return self.act_on(ring, of_ring, files, device),
            Message::GetProtocolFeatures => return answer(PROTOCOL),
            Message::SetProtocolFeatures(bits) => {
                if bits & !PROTOCOL != 0 {
                    return Err(Refusal::ProtocolFeatures {
                        bits: bits & !PROTOCOL,
                    });
                }
                self.protocol = bits;
            }
            Message::GetQueues => return answer(self.rings.len() as u64 / 2),
            // Longer packets than the port takes are not believed to be shorter.
            Message::SetMtu(_) => {}
        }
        Ok(None)
    }

    fn take_features<D: Device>(&mut self, bits: u64, device: &mut D) -> Result<(), Refusal> {
        let more = bits & !self.offered.bits();
        if more != 0 {
            return Err(Refusal::Features { bits: more });
        }
        let features = Features::from_bits(bits);
        if features == self.features {
            return Ok(());
        }
        self.end(device);
        self.features = features;
        Ok(())
    }

    fn act_on<D: Device>(
        &mut self,
        number: u32,
        message: RingMessage,
        files: Vec<D::File>,
        device: &mut D,
    ) -> Result<Option<Reply>, Refusal> {
        let rings = self.rings.len() as u32;
        if number >= rings {
            return Err(Refusal::RingNumber { ring: number, rings });
        }
        let at = number as u16;
        let is_harmless = matches!(message, RingMessage::Call { .. } | RingMessage::Error { .. });
        let is_old = self.rings.get(usize::from(at)).is_some_and(|ring| match message {
            RingMessage::Enable(enable) => ring.is_enabled == Some(enable),
            RingMessage::Kick { .. } => ring.is_kicked,
            _ => is_harmless,
        });
        if !is_old {
            self.stop(at, device);
        }
        let Some(ring) = self.rings.get_mut(usize::from(at)) else {
            return Ok(None);
        };
        match message {
            RingMessage::Size(size) => ring.size = Some(size),
            RingMessage::Place(addresses) => ring.addresses = Some(addresses),
            RingMessage::Base(base) => ring.base = base,
            RingMessage::Stop => {
                ring.is_kicked = false;
                let request = Message::Ring(number, message).request();
                return Ok(Some(Reply::of_ring(request, number, ring.base)));
            }
            RingMessage::Kick { .. } => ring.is_kicked = true,
            RingMessage::Call { .. } => device.call(at, files.into_iter().next()),
            RingMessage::Error { .. } => {}
            RingMessage::Enable(enable) => ring.is_enabled = Some(enable),
        }
        Ok(None)
    }

    /// Has a ring not run.
    fn stop<D: Device>(&mut self, at: u16, device: &mut D) {
        if let Some(ring) = self.rings.get_mut(usize::from(at))
            && ring.is_running
        {
            ring.base = device.stop(at).unwrap_or(ring.base);
            ring.is_running = false;
        }
    }

    /// Has all rings run that are to.
    fn settle<D: Device>(&mut self, device: &mut D) -> Result<(), Refusal> {
        let features = self.features;
        for (at, ring) in (0..).zip(&mut self.rings) {
            let is_enabled = ring
                .is_enabled
                .unwrap_or(!features.contains(Features::PROTOCOL_FEATURES));
            let is_ready = self.has_memory && ring.is_kicked && is_enabled && !ring.is_running;
            if is_ready && let (Some(size), Some(addresses)) = (ring.size, ring.addresses) {
                let place = Place {
                    size,
                    addresses,
                    base: ring.base,
                    features,
                };
                device.start(at, &place)?;
                ring.is_running = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
