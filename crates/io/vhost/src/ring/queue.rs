//! A ring as the receiver and the sender see it: its configuration, and the operations on its chains.

use std::sync::Arc;

use super::chain::{Chain, ChainBuffers};
use crate::limits::RING_MAX;
use crate::memory::{Memory, View};
use crate::{Features, MessageError, ProtocolViolation};

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

impl Setup {
    /// Returns the number of descriptors.
    pub(super) fn len(&self) -> Result<u16, MessageError> {
        let is_packed = self.features.contains(Features::RING_PACKED);
        u16::try_from(self.size)
            .ok()
            .filter(|len| (1..=RING_MAX).contains(len) && (is_packed || len.is_power_of_two()))
            .ok_or(MessageError::RingSize { size: self.size })
    }
}

/// A split or a packed ring. Chains are taken and used in order.
pub(super) trait Queue {
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
