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
mod queue;
mod receive;
mod send;
mod split;

pub use header::Limits;
pub use queue::Setup;
pub use receive::{Received, Receiver};
pub use send::{Sender, Sent};

pub use crate::limits::{CHAIN_MAX, RING_MAX};
use crate::{Features, MessageError};
use packed::Packed;
use queue::Queue;
use split::Split;

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
