//! Virtqueues from the device's side: reading frames from a driver and writing frames to it, while the driver may
//! write anything at any time (virtio 1.2, sections 2.7, 2.8 and 5.1.6).
//!
//! # Checks
//! * The driver's index advances by no more entries than the ring has free, and never moves back.
//! * A descriptor is read once. Its index must be inside the table, and its buffer inside the shared memory; the
//!   buffer must be device-readable in one queue and device-writable in the other. A chain must end, and must hold at
//!   least the virtio-net header; a frame has at most [`CHAIN_MAX`] descriptors, empty ones included. Anything else
//!   is a [`ProtocolViolation`].
//! * The checksum and GSO fields of the virtio-net header are checked against the frame. An unprivileged program in a
//!   guest can make its kernel send invalid ones, so the frame is dropped and the connection stays.
//!
//! # Cost
//! A burst is processed in passes: read all descriptors, each with a prefetch of its buffer; allocate packets; copy
//! frames; then publish the used entries and check once whether the driver needs a call. Chains of one buffer, which
//! most drivers use, take only this path. All other chains are assembled one at a time.

mod chain;
mod gather;
mod header;
mod packed;
mod receive;
mod send;
mod split;

use std::sync::Arc;

pub use receive::{Limits, Received, Receiver};
pub use send::{Sender, Sent};

use crate::memory::{Memory, View};
use crate::{Features, MessageError, ProtocolViolation};
use chain::{Chain, ChainBuffers};
use packed::Packed;
use split::Split;

/// The largest number of descriptors in a ring (virtio 1.2, sections 2.7 and 2.8.10.1).
pub const RING_MAX: u16 = 32_768;
/// The largest number of buffers in a chain.
pub const CHAIN_MAX: usize = 256;

/// The configuration of a ring.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The memory that the driver shares.
    pub memory: Arc<Memory>,
    /// The number of descriptors (`VHOST_USER_SET_VRING_NUM`).
    pub size: u32,
    /// The address of the descriptor table or packed ring, in the front-end's address space.
    pub descriptors: u64,
    /// The address of the driver area: the available ring, or a packed ring's driver event suppression structure.
    pub driver: u64,
    /// The address of the device area: the used ring, or a packed ring's device event suppression structure.
    pub device: u64,
    /// The vring base: the index at which the device continues (`VHOST_USER_SET_VRING_BASE`).
    pub base: u32,
    /// The negotiated features.
    pub features: Features,
}

/// A split or a packed ring. Chains are taken and used in order.
trait Queue {
    /// Reads the driver's index if fewer than `wanted` chains are known to be available.
    fn poll_index(&mut self, wanted: usize) -> Result<(), ProtocolViolation>;

    /// Takes the next chain; reads only its first descriptor.
    fn take(&mut self) -> Result<Option<Chain>, ProtocolViolation>;

    /// Reads all descriptors of a chain that was just taken.
    fn read_chain<'a>(
        &mut self,
        chain: &mut Chain,
        view: &'a View,
        buffers: &mut ChainBuffers<'a>,
    ) -> Result<(), ProtocolViolation>;

    /// Moves back to a chain that was taken; neither it nor a later one may have been used.
    fn reset(&mut self, chain: &Chain);

    /// Marks a chain as used, with `written` bytes written to it. The driver sees it after [`Self::publish`].
    fn mark_used(&mut self, chain: &Chain, written: u32);

    /// Makes the used chains visible to the driver. Returns true if the driver needs a call.
    fn publish(&mut self) -> bool;

    /// Returns the vring base.
    fn base(&self) -> u32;

    /// Returns the number of descriptors.
    fn len(&self) -> u16;
}

/// A split or a packed ring, as the negotiated features say.
#[derive(Debug)]
enum Ring {
    Split(Split),
    Packed(Packed),
}

impl Ring {
    fn open(setup: &Setup) -> Result<Ring, MessageError> {
        if setup.features.contains(Features::RING_PACKED) {
            Packed::open(setup).map(Ring::Packed)
        } else {
            Split::open(setup).map(Ring::Split)
        }
    }

    fn base(&self) -> u32 {
        match self {
            Ring::Split(queue) => queue.base(),
            Ring::Packed(queue) => queue.base(),
        }
    }
}

impl Setup {
    /// Returns the number of descriptors.
    fn len(&self) -> Result<u16, MessageError> {
        let is_packed = self.features.contains(Features::RING_PACKED);
        u16::try_from(self.size)
            .ok()
            .filter(|len| (1..=RING_MAX).contains(len) && (is_packed || len.is_power_of_two()))
            .ok_or(MessageError::RingSize { size: self.size })
    }
}
