//! Packets that functions sent, until they traverse the hops that follow.

use arrayvec::ArrayVec;
use millrace_nf::{Direction, Effects, SENT_MAX};

/// Limit of the packets of a lane that functions have sent and that wait to be forwarded.
const SENT_IN_LANE_MAX: usize = 8 * SENT_MAX;

/// A packet that a function sent.
pub(crate) struct SentPacket<P> {
    pub(crate) packet: P,
    pub(crate) direction: Direction,
    /// The number of the sender's hop, whose index an edit of the chain may change.
    pub(crate) hop: u32,
}

/// The effects of the functions that a burst traverses. Its memory is allocated with the lane.
pub(crate) struct BurstEffects<P> {
    /// The effects of the function that is called.
    pub(crate) of_call: Effects,
    /// Packets of all functions. They traverse the chain after the burst.
    pub(crate) sent: ArrayVec<SentPacket<P>, SENT_IN_LANE_MAX>,
}

impl<P> BurstEffects<P> {
    pub(crate) fn new() -> BurstEffects<P> {
        BurstEffects {
            of_call: Effects::new(),
            sent: ArrayVec::new(),
        }
    }
}
