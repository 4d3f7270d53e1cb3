//! Virtqueues, from the device's side: taking frames from a driver and giving it frames, while it may write anything at
//! any time (virtio 1.2, sections 2.7, 2.8 and 5.1.6).
//!
//! # What is checked
//! * An index of the driver's goes no further than there is room in its ring, and never back.
//! * A descriptor is read once. It names one that there is, a buffer within the memory that the driver shares, for reading
//!   in one queue and for writing in the other; a chain ends, and holds a header at least. What is otherwise is a [`Lie`].
//! * What a header says of checksums and segments is held against the frame. A guest's programs can have its kernel say
//!   such things, and so the frame is dropped, and nobody is accused.
//!
//! # What a burst costs
//! A burst is looked at as a whole: first its descriptors, each telling the cache what will be needed; then packets are
//! taken from their pool; then frames are copied; then the driver is told, once, and asked, once, whether it
//! sleeps. A chain of one buffer, which is what drivers make in most, costs nothing else. All others are put together one
//! by one.

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
use crate::{Features, Lie, Refusal};
use chain::{Chain, Pieces};
use packed::Packed;
use split::Split;

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

/// A ring of either kind. Chains are taken and used in order.
trait Queue {
    /// Reads how many chains there are, if fewer than `wanted` are known of.
    fn look(&mut self, wanted: usize) -> Result<(), Lie>;

    /// Takes the next chain, of which only the first descriptor is read.
    fn take(&mut self) -> Result<Option<Chain>, Lie>;

    /// Reads all of a chain that was just taken.
    fn walk<'a>(&mut self, chain: &mut Chain, view: &'a View, pieces: &mut Pieces<'a>) -> Result<(), Lie>;

    /// Goes back to a chain that was taken, and that no later one was used of.
    fn reset(&mut self, chain: &Chain);

    /// Gives a chain back, with so many bytes written to it. The driver sees it as of [`Self::publish`].
    fn put(&mut self, chain: &Chain, written: u32);

    /// Shows the driver what was given back. Returns whether it is to be woken.
    fn publish(&mut self) -> bool;

    /// Where to go on.
    fn base(&self) -> u32;

    /// Descriptors.
    fn len(&self) -> u16;
}

/// A ring of one kind or the other.
#[derive(Debug)]
enum Ring {
    Split(Split),
    Packed(Packed),
}

impl Ring {
    fn open(setup: &Setup) -> Result<Ring, Refusal> {
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
    /// The length of the ring.
    fn len(&self) -> Result<u16, Refusal> {
        let is_packed = self.features.contains(Features::RING_PACKED);
        u16::try_from(self.size)
            .ok()
            .filter(|len| (1..=RING_MAX).contains(len) && (is_packed || len.is_power_of_two()))
            .ok_or(Refusal::RingSize { size: self.size })
    }
}
