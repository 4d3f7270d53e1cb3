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
mod compile;
mod conditions;
pub mod dataset;
mod detector;
mod evaluate;
mod fields;
mod modbus;
pub mod oracle;
mod prefilter;
pub mod program;
mod rate;
mod readings;
mod reload;
mod state;
mod transaction;
mod transform;

use millrace_types::Time;

use crate::app::AppEvent;
use crate::flow::{Direction, Flow};
use crate::packet::Packet;
use crate::tcp::StreamWindow;

use readings::Readings;

pub use compile::{CompileSettings, Hook, Names, Ruleset, compile};
pub use detector::{
    Clock, Condition, Cost, Costs, Counters, DetectSettings, Detector, GroupId, TraceOutcome, TracePlace,
    TraceRecord,
};
pub use evaluate::{Limit, STEP_BUDGET, Scratch, Subject, Variables, matches};
pub use program::{Rule, RuleType};
pub use reload::Numbers;
pub use state::FlowBits;
pub use transaction::TransactionState;

/// Largest number of hits of the prefilter in a direction of a stream that are kept for later windows.
const PENDING: usize = 256;

/// Largest number of overruled rules that a flow keeps. One is enough to drop the flow; the others have alerts.
const OVERRULED: usize = 16;

/// The packets of a direction on which rules over addresses alone were evaluated.
#[derive(Debug, Clone, Copy, Default)]
struct IpOnly {
    /// A packet with the endpoints and the protocol of the flow.
    on_own: bool,
    /// An ICMP error about the flow, which any router may send.
    on_error: bool,
}

/// State of detection that lives with a flow.
#[derive(Debug, Default)]
pub struct FlowState {
    /// Bits and counters.
    pub bits: FlowBits,
    /// Rules that are evaluated once for each direction and have already raised an alert, by direction.
    raised: [Vec<u32>; 2],
    /// Hits of the prefilter, by direction: the rule, and the offset in the stream at which the window of the hit ends.
    pending: [Vec<(u32, u64)>; 2],
    /// Number of the flow's anomalies on which rules have been evaluated, by direction.
    events: [usize; 2],
    /// The kinds of packets on which rules over addresses alone were evaluated, by direction.
    ip_only: [IpOnly; 2],
    /// Rules that matched and drop or reject the flow, while a rule passed the packet alone: they apply with the next packet
    /// that no rule passes. At most [`OVERRULED`], the first ones in the order of the rules.
    overruled: Vec<u32>,
    /// The rules that matched messages with several readings.
    readings: Readings,
    /// The rule that passed the flow, by [`Rule::pass_digest`].
    passed_by: Option<u64>,
    /// Steps of expressions that the flow has used, less those that it got with its packets.
    steps_used: u64,
    /// The generation of the rule set to which the indexes of rules belong.
    generation: u64,
}

impl FlowState {
    /// Removes all state, and keeps the memory.
    pub(crate) fn reset(&mut self) {
        self.bits.clear();
        for direction in Direction::BOTH {
            self.raised[direction.index()].clear();
            self.pending[direction.index()].clear();
        }
        self.events = [0; 2];
        self.ip_only = Default::default();
        self.overruled.clear();
        self.readings.clear();
        self.passed_by = None;
        self.steps_used = 0;
        self.generation = 0;
    }

    /// Returns true if a rule of the set still passes the flow that a rule passed.
    pub(crate) fn is_passed_by(&self, rules: &Ruleset) -> bool {
        self.generation == rules.numbers.generation
            || self
                .passed_by
                .is_some_and(|digest| rules.numbers.passes.contains(&digest))
    }

    /// Exchanges the directions.
    pub(crate) fn turn(&mut self) {
        self.raised.swap(0, 1);
        self.pending.swap(0, 1);
        self.events.swap(0, 1);
        self.ip_only.swap(0, 1);
        self.readings.turn();
    }

    /// Returns true if rules were not evaluated on all anomalies of the flow in a direction.
    pub(crate) fn has_new_events(&self, direction: Direction, events: &[AppEvent]) -> bool {
        self.events[direction.index()] < events.len()
    }

    /// Returns the bytes that the state has allocated.
    pub(crate) fn heap(&self) -> usize {
        let raised: usize = self.raised.iter().map(Vec::capacity).sum();
        let pending: usize = self.pending.iter().map(Vec::capacity).sum();
        let raised = raised + self.overruled.capacity();
        let pending = pending * size_of::<(u32, u64)>();
        self.bits.heap() + raised * size_of::<u32>() + pending + self.readings.heap()
    }

    /// Frees the hits that wait for later windows.
    pub(crate) fn give_up_memory(&mut self) {
        self.pending = Default::default();
    }
}

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
