//! Virtqueues, from the device's side.
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::segment::Cut;

use crate::memory::Memory;
use crate::{Features, Lie, Refusal};

/// The longest ring (virtio 1.2, sections 2.7 and 2.8.10.1).
pub const RING_MAX: u16 = 32_768;
/// Buffers that one chain may have.
pub const CHAIN_MAX: usize = 256;

/// Where a ring is, and what its driver takes.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the driver shares.
    pub memory: Arc<Memory>,
    /// Descriptors (`VHOST_USER_SET_VRING_NUM`).
    pub size: u32,
    /// Where the frontend has the descriptors.
    pub descriptors: u64,
    /// Where it has what the driver writes: the available ring, or what a packed ring's driver says of events.
    pub driver: u64,
    /// Where it has what the device writes: the used ring, or what a packed ring's device says of events.
    pub device: u64,
    /// Where to go on (`VHOST_USER_SET_VRING_BASE`).
    pub base: u32,
    /// What both agreed upon.
    pub features: Features,
}

/// What a receiver lets in. Anything else is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the longest frame that is not to be cut.
    pub frame_size: usize,
    /// Bytes of the longest segment of a packet that is to be cut, from the IP header on.
    pub mtu: usize,
    /// Whether a frame may take several of our buffers.
    pub is_segmented: bool,
}

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

/// The end of a driver's transmit queue: frames come from here.
#[derive(Debug)]
pub struct Receiver {
    _setup: Setup,
}

impl Receiver {
    /// Opens a ring.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn open(setup: &Setup, _limits: Limits) -> Result<Receiver, Refusal> {
        Ok(Receiver {
            _setup: setup.clone(),
        })
    }

    /// Adds what waits to a burst, as far as there is room. `empty` adds so many empty packets, or fewer.
    ///
    /// # Errors
    /// [`Lie`]; the ring is of no use any more, and the burst as it was.
    pub fn receive<P: Packet, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<P, N>,
        empty: impl FnMut(usize, &mut ArrayVec<P, N>),
    ) -> Result<Received, Lie> {
        let _ = (burst, empty);
        Ok(Received::default())
    }

    /// Where to go on (`VHOST_USER_GET_VRING_BASE`).
    #[must_use]
    pub fn base(&self) -> u32 {
        0
    }
}

/// The end of a driver's receive queue: frames go there.
#[derive(Debug)]
pub struct Sender {
    _setup: Setup,
}

impl Sender {
    /// Opens a ring.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn open(setup: &Setup) -> Result<Sender, Refusal> {
        Ok(Sender {
            _setup: setup.clone(),
        })
    }

    /// Sends packets from the front of a burst, as many as there are buffers for; the others stay.
    ///
    /// # Errors
    /// [`Lie`]; the ring is of no use any more.
    pub fn send<P: Packet, const N: usize>(&mut self, burst: &mut ArrayVec<P, N>) -> Result<Sent, Lie> {
        let _ = burst;
        Ok(Sent::default())
    }

    /// Whether the driver takes such a packet uncut.
    #[must_use]
    pub fn takes_uncut(&self, cut: &Cut) -> bool {
        let _ = cut;
        false
    }

    /// Where to go on (`VHOST_USER_GET_VRING_BASE`).
    #[must_use]
    pub fn base(&self) -> u32 {
        0
    }
}
