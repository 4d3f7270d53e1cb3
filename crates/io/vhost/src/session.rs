//! The state of one vhost-user session, without IO.
//!
//! A front-end may announce its memory, its rings and which rings are enabled in any order, and change each of them at
//! any time. The session keeps what was announced. After each message it compares the rings with that state: a ring
//! runs while everything that it needs is known. A ring is stopped before anything that it depends on changes, and
//! before a reply says that it stopped. The caller starts and stops rings ([`Device`]).

use crate::error::MessageError;
use crate::features::Features;
use crate::memory::MemoryRegion;
use crate::message::{Addresses, Message, Reply, RingMessage};

/// Protocol feature: several queue pairs (`VHOST_USER_PROTOCOL_F_MQ`).
const MANY_QUEUES: u64 = 1 << 0;
/// Protocol feature: a reply to every request that asks for one (`VHOST_USER_PROTOCOL_F_REPLY_ACK`).
const ACKNOWLEDGE: u64 = 1 << 3;
/// Protocol feature: the front-end announces its MTU (`VHOST_USER_PROTOCOL_F_NET_MTU`).
const MTU: u64 = 1 << 4;
/// The protocol features that this back-end offers.
const PROTOCOL: u64 = MANY_QUEUES | ACKNOWLEDGE | MTU;

/// The largest number of queue pairs: messages have 8 bits for the ring number.
pub const PAIRS_MAX: u16 = 128;

/// The configuration of a ring that starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingConfig {
    /// The number of descriptors, as the driver announced it.
    pub size: u32,
    /// The addresses of the ring's parts.
    pub addresses: Addresses,
    /// The vring base: the index at which the device continues.
    pub base: u32,
    /// The features that the driver accepted.
    pub features: Features,
}

/// The owner of the memory and the rings, which the session controls.
pub trait Device {
    /// The type of the file descriptors that accompany messages.
    type Fd;

    /// Replaces the shared memory by these regions. No ring runs during the call.
    ///
    /// # Errors
    /// [`MessageError`] for memory that cannot be mapped.
    fn share(&mut self, memory: Vec<(MemoryRegion, Self::Fd)>) -> Result<(), MessageError>;

    /// Starts a ring that is stopped.
    ///
    /// # Errors
    /// [`MessageError`] for a ring that is not inside the shared memory.
    fn start(&mut self, ring: u16, config: &RingConfig) -> Result<(), MessageError>;

    /// Stops a ring that runs. When the call returns, nobody accesses the ring. Returns the vring base, or `None` if
    /// the ring processed nothing.
    fn stop(&mut self, ring: u16) -> Option<u32>;

    /// Replaces the event file descriptor by which the driver of a ring is notified (call).
    fn call(&mut self, ring: u16, file: Option<Self::Fd>);
}

/// The announced state of a ring.
#[derive(Clone, Copy, Default, Debug)]
struct Ring {
    size: Option<u32>,
    addresses: Option<Addresses>,
    base: u32,
    is_kicked: bool,
    /// `None` until the driver enables or disables the ring. Rings start enabled if the driver did not negotiate
    /// `VHOST_USER_F_PROTOCOL_FEATURES`.
    is_enabled: Option<bool>,
    is_running: bool,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    offered: Features,
    features: Features,
    protocol: u64,
    has_memory: bool,
    rings: Vec<Ring>,
}

impl Session {
    /// Returns a new session with `pairs` queue pairs, clamped to 1..=[`PAIRS_MAX`], that offers the features
    /// `offered`.
    pub fn new(pairs: u16, offered: Features) -> Session {
        Session {
            offered,
            features: Features::default(),
            protocol: 0,
            has_memory: false,
            rings: vec![Ring::default(); 2 * usize::from(pairs.clamp(1, PAIRS_MAX))],
        }
    }

    /// Returns true if the ring runs.
    pub fn is_running(&self, ring: u16) -> bool {
        self.rings
            .get(usize::from(ring))
            .is_some_and(|ring| ring.is_running)
    }

    /// Returns true if both rings of the first queue pair run.
    pub fn is_up(&self) -> bool {
        self.is_running(0) && self.is_running(1)
    }

    /// Returns the features that the driver accepted.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Applies a message that arrived with [`Message::fds`] file descriptors. Returns the reply to send, if any.
    ///
    /// # Errors
    /// [`MessageError`]; the caller then closes the connection and calls [`Self::end`].
    pub fn receive<D: Device>(
        &mut self,
        message: Message,
        needs_reply: bool,
        fds: Vec<D::Fd>,
        device: &mut D,
    ) -> Result<Option<Reply>, MessageError> {
        let request = message.request();
        let reply = self.apply(message, fds, device)?;
        self.start_ready_rings(device)?;
        let done = || Reply::number(request, 0);
        Ok(reply.or_else(|| (needs_reply && self.protocol & ACKNOWLEDGE != 0).then(done)))
    }

    /// Stops all rings that run.
    pub fn end<D: Device>(&mut self, device: &mut D) {
        for at in 0..self.rings.len() {
            self.stop(at as u16, device);
        }
    }

    fn apply<D: Device>(
        &mut self,
        message: Message,
        fds: Vec<D::Fd>,
        device: &mut D,
    ) -> Result<Option<Reply>, MessageError> {
        let answer = |number| Ok(Some(Reply::number(message.request(), number)));
        match message {
            Message::GetFeatures => return answer(self.offered.bits()),
            Message::SetFeatures(bits) => self.accept_features(bits, device)?,
            Message::SetOwner => {}
            Message::ResetOwner => {
                self.end(device);
                self.rings.fill(Ring::default());
                self.features = Features::default();
            }
            Message::SetMemory(regions) => {
                debug_assert_eq!(
                    regions.len(),
                    fds.len(),
                    "the connection checks the number of file descriptors"
                );
                self.end(device);
                self.has_memory = false;
                device.share(regions.into_iter().zip(fds).collect())?;
                self.has_memory = true;
            }
            Message::Ring(ring, of_ring) => return self.apply_to_ring(ring, of_ring, fds, device),
            Message::GetProtocolFeatures => return answer(PROTOCOL),
            Message::SetProtocolFeatures(bits) => {
                if bits & !PROTOCOL != 0 {
                    return Err(MessageError::ProtocolFeatures {
                        bits: bits & !PROTOCOL,
                    });
                }
                self.protocol = bits;
            }
            Message::GetQueues => return answer(self.rings.len() as u64 / 2),
            // The port keeps its configured MTU; the driver's MTU is ignored.
            Message::SetMtu(_) => {}
        }
        Ok(None)
    }

    fn accept_features<D: Device>(&mut self, bits: u64, device: &mut D) -> Result<(), MessageError> {
        let more = bits & !self.offered.bits();
        if more != 0 {
            return Err(MessageError::Features { bits: more });
        }
        let features = Features::from_bits(bits);
        if features == self.features {
            return Ok(());
        }
        self.end(device);
        self.features = features;
        Ok(())
    }

    fn apply_to_ring<D: Device>(
        &mut self,
        number: u32,
        message: RingMessage,
        fds: Vec<D::Fd>,
        device: &mut D,
    ) -> Result<Option<Reply>, MessageError> {
        let rings = self.rings.len() as u32;
        if number >= rings {
            return Err(MessageError::RingNumber { ring: number, rings });
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
            RingMessage::Addresses(addresses) => ring.addresses = Some(addresses),
            RingMessage::Base(base) => ring.base = base,
            RingMessage::Stop => {
                ring.is_kicked = false;
                let request = Message::Ring(number, message).request();
                return Ok(Some(Reply::of_ring(request, number, ring.base)));
            }
            RingMessage::Kick { .. } => ring.is_kicked = true,
            RingMessage::Call { .. } => device.call(at, fds.into_iter().next()),
            RingMessage::Error { .. } => {}
            RingMessage::Enable(enable) => ring.is_enabled = Some(enable),
        }
        Ok(None)
    }

    /// Stops a ring if it runs.
    fn stop<D: Device>(&mut self, at: u16, device: &mut D) {
        if let Some(ring) = self.rings.get_mut(usize::from(at))
            && ring.is_running
        {
            ring.base = device.stop(at).unwrap_or(ring.base);
            ring.is_running = false;
        }
    }

    /// Starts all rings that are ready and do not run.
    fn start_ready_rings<D: Device>(&mut self, device: &mut D) -> Result<(), MessageError> {
        let features = self.features;
        for (at, ring) in (0..).zip(&mut self.rings) {
            let is_enabled = ring
                .is_enabled
                .unwrap_or(!features.contains(Features::PROTOCOL_FEATURES));
            let is_ready = self.has_memory && ring.is_kicked && is_enabled && !ring.is_running;
            if is_ready && let (Some(size), Some(addresses)) = (ring.size, ring.addresses) {
                let config = RingConfig {
                    size,
                    addresses,
                    base: ring.base,
                    features,
                };
                device.start(at, &config)?;
                ring.is_running = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
