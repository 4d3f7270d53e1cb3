//! Detection: rules compiled to a rule set, and its evaluation on packets, streams and transactions.
//!
//! ```text
//!  rules ──compile──▶ Ruleset ─────────────┐
//!                                          ▼
//!  packet, stream window ──prefilter──▶ candidates ──evaluate──▶ matches ──rates──▶ alerts, Action
//!  transactions ───────────prefilter──▶ candidates, kept with the transaction until all buffers matched
//! ```
//!
//! [`oracle`] evaluates the same rules without a search order, a budget or a prefilter; the tests compare both.

mod bytes;
mod candidates;
mod compile;
mod conditions;
pub mod dataset;
mod detector;
mod direct;
mod evaluate;
mod fields;
mod flow_state;
mod modbus;
mod numbers;
pub mod oracle;
mod prefilter;
pub mod program;
mod rate;
mod readings;
mod reload;
mod state;
mod subject;
mod transaction;
mod transaction_state;
mod transform;

use millrace_types::Time;

use crate::flow::{Direction, Flow};
use crate::packet::Packet;
use crate::tcp::StreamWindow;

pub use compile::{CompileSettings, Hook, Names, Ruleset, compile};
pub use detector::{
    Clock, Condition, Cost, Costs, Counters, DetectSettings, Detector, GroupId, TraceOutcome, TracePlace,
    TraceRecord,
};
pub use evaluate::{Limit, STEP_BUDGET, Scratch, matches};
pub use flow_state::FlowState;
pub use numbers::Numbers;
pub use program::{Rule, RuleType};
pub use state::FlowBits;
pub use subject::{Subject, Variables};
pub use transaction_state::TransactionState;

/// The subject of an inspection: a packet with its flow and the stream data that became inspectable with it.
#[derive(Debug)]
pub struct Inspection<'a> {
    /// The packet. At the end of a flow it is a pseudo packet without payload.
    pub packet: &'a Packet<'a>,
    /// The flow; `None` for fragments and packets of protocols without flows.
    pub flow: Option<&'a mut Flow>,
    /// The direction of the packet.
    pub direction: Direction,
    /// True if stream data of its direction become inspectable with the packet.
    pub has_stream_data: bool,
    /// Raw bytes of this direction, if there are new ones to inspect.
    pub stream: Option<StreamWindow<'a>>,
    /// Time of the packet.
    pub now: Time,
}
