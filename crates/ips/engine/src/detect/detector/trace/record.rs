//! The records of a trace.

use crate::app::{AppProtocol, FrameView};
use crate::event;
use crate::flow::Direction;

/// A condition of a rule, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The condition in words.
    pub words: String,
    /// True if it holds.
    pub holds: bool,
    /// The value that was compared; empty if `words` contains it.
    pub found: String,
}

/// The unit that a rule is evaluated on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracePlace {
    Packet,
    /// A packet, with stream data from this offset on.
    Stream {
        /// Offset of the first byte in the stream.
        offset: u64,
        /// Number of bytes.
        size: usize,
    },
    Transaction {
        /// Number in the flow.
        id: u64,
        /// The protocol.
        app: AppProtocol,
    },
    Frame(FrameView),
}

/// The result for a packet or a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceOutcome {
    /// A condition does not hold.
    NoMatch,
    /// All conditions hold, and an alert is raised.
    Alert,
    /// All conditions hold, and no alert is raised because the rule has `noalert`.
    Silent,
    /// All conditions hold, and no alert is raised because of a rate, a threshold, a rule with `pass`, or the number of
    /// alerts of the packet.
    Withheld,
    /// All conditions hold, but the rule matched the same data before.
    Repeated,
}

/// The conditions of a rule on a packet or a transaction, up to the first that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRecord {
    /// Packet and flow.
    pub subject: event::Subject,
    /// The direction of the packet in its flow.
    pub direction: Direction,
    /// True for the last inspection of a flow that ends.
    pub is_pseudo: bool,
    /// The unit of the evaluation.
    pub place: TracePlace,
    /// The conditions in the order of evaluation.
    pub conditions: Vec<Condition>,
    /// The result.
    pub outcome: TraceOutcome,
}

/// The trace of a rule.
#[derive(Debug)]
pub(in crate::detect::detector) struct Tracer {
    pub(super) rule: u32,
    pub(super) records: Vec<TraceRecord>,
    /// The index of the first record of the current packet.
    pub(super) first: usize,
    /// The matches of the rule on the current packet, each with its transaction and its frame.
    pub(super) matched: Vec<Matched>,
}

/// A transaction and a frame, by their numbers; a frame also by its direction.
pub(super) type Matched = (Option<u64>, Option<(u64, Direction)>);
