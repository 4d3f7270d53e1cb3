//! Detection: rules compiled to a rule set, and its evaluation on packets, streams and transactions.

use millrace_types::Time;

use crate::event::Events;
use crate::flow::{Direction, Flow};
use crate::packet::Packet;
use crate::tcp::StreamWindow;
use crate::verdict::Action;

/// State of detection that lives with a flow.
#[derive(Debug, Default)]
pub struct FlowState {}

/// State of detection that lives with a transaction.
#[derive(Debug, Default)]
pub struct TransactionState {}

/// A compiled rule set.
#[derive(Debug, Default)]
pub struct Ruleset {}

/// The subject of an inspection: a packet with its flow and the stream data that became inspectable with it.
#[derive(Debug)]
pub struct Inspection<'a> {
    /// The packet. At the end of a flow it is a pseudo packet without payload.
    pub packet: &'a Packet<'a>,
    /// The flow; `None` for fragments and packets of protocols without flows.
    pub flow: Option<&'a mut Flow>,
    /// The direction of the packet.
    pub direction: Direction,
    /// Raw bytes of this direction, if there are new ones to inspect.
    pub stream: Option<StreamWindow<'a>>,
    /// Time of the packet.
    pub now: Time,
}

/// State of detection of a lane: scratch memory, thresholds, bits of hosts and address pairs.
#[derive(Debug, Default)]
pub struct Detector {}

impl Detector {
    /// Evaluates the rules on a packet, the new stream data, and the transactions of the flow.
    pub fn inspect(&mut self, _rules: &Ruleset, _what: Inspection<'_>, _out: &mut Events) -> Action {
        Action::None
    }
}
