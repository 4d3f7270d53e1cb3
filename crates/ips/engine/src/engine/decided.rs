//! The outcome of a packet of a flow.

use crate::flow::{Direction, Flow, FlowIndex};
use crate::packet::events::PacketEvents;
use crate::tcp::normalize::{Edits, SegmentLocation};
use crate::verdict::{Action, DropReason, Verdict};

/// The outcome of a packet of a flow.
pub(super) enum Decided {
    /// The decision about the packet.
    Verdict(Verdict),
    /// The packet is changed first.
    Changed(Box<Changed>),
}

/// A packet that the normaliser changes before it is inspected, and its flow.
pub(super) struct Changed {
    pub(super) edits: Edits,
    pub(super) location: SegmentLocation,
    pub(super) index: FlowIndex,
    pub(super) flow: Box<Flow>,
    pub(super) direction: Direction,
    pub(super) is_encrypted: bool,
    pub(super) ends_handshake: bool,
    pub(super) events: PacketEvents,
}

/// Returns the decision for an action that drops or rejects a packet, and the reason of a drop.
pub(super) fn rejection(action: Action, reason: DropReason) -> Verdict {
    let reject = |source, destination| Verdict::Reject { source, destination };
    match action {
        Action::RejectSource => reject(true, false),
        Action::RejectDestination => reject(false, true),
        Action::RejectBoth => reject(true, true),
        _ => Verdict::Drop(reason),
    }
}
