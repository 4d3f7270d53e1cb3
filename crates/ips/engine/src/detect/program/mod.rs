//! The compiled form of a rule: conditions on packet, flow and state, and lists of operations over bytes.
//!
//! ```text
//!  Rule ── header: protocols, endpoints, flow          one packet
//!       ── packet: sizes, header fields
//!       ── payload: operations                         packet payload, stream window, or both
//!       ── buffers: [BufferTest: buffer, transforms, operations]     a transaction
//!       ── state: bits and counters that must be set; rates
//!       ── effects: bits and counters to set, alert or not
//! ```

mod condition;
mod operation;
mod shared;
mod values;

use std::sync::Arc;

use millrace_ips_rules::header::Action;
use millrace_ips_rules::options::state::Rate;
use millrace_ips_rules::variables::Ranges;

use crate::app::AppProtocol;
use crate::flow::Direction;

pub use condition::{
    AddressSide, AppTest, BitMode, CountryTest, FlowTest, PacketTest, ProtocolOfFlow, ReputationTest,
    ScoreTest, Side, compare, compare_all,
};
pub use operation::{
    Absence, BufferTest, Capture, CaptureName, CaptureScope, ContentTest, Endianness, JumpBase, MathOperator,
    NumberForm, NumberSource, Operand, Operation, PcreTest, SetLookup, Step, TestOperator,
};
pub use shared::{BitTable, CounterOperator, CounterTest, CounterValue, Effect, StateTest, ThresholdTest};
pub use values::{JsonSet, Values};

/// Number of variables that `byte_extract` and `byte_math` may set in one rule.
pub const VARIABLES: usize = 16;

/// The type of a rule, with the names of Suricata's documentation. It decides when the rule is evaluated, and
/// if its action applies to the packet or to the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleType {
    /// Addresses and protocol only: once for each direction of a flow.
    IpOnly,
    /// An event of the packet decoder or of the TCP engine: packets that have one.
    DecoderEvent,
    /// Conditions on single packets.
    Packet,
    /// Content that is anchored at the beginning: packets and stream.
    PacketStream,
    /// Content in the stream.
    Stream,
    /// The protocol of the flow, without its transactions.
    AppLayer,
    /// Buffers of transactions.
    Transaction,
}

/// The protocols of a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProtocolTest {
    /// IP protocols; empty for any.
    pub ip: Vec<u8>,
    /// 4 or 6; none for both.
    pub version: Option<u8>,
    /// Application protocols; empty for any.
    pub app: Vec<AppProtocol>,
    /// True if the flow must be one of HTTP/2 that carries DNS.
    pub carries_dns: bool,
}

/// The addresses and ports of one end of a header.
#[derive(Debug, Clone, Default)]
pub struct Endpoint {
    /// The addresses; none for any.
    pub addresses: Option<Arc<Ranges>>,
    /// The ports; none for any.
    pub ports: Option<Arc<Ranges>>,
}

/// The part of a pattern that the prefilter searches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastPattern {
    pub bytes: Vec<u8>,
    /// True if ASCII letters match in upper and lower case.
    pub nocase: bool,
    /// Index of the buffer test, or none for the payload.
    pub test: Option<u16>,
}

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    /// Number of the rule.
    pub sid: u32,
    /// Generator.
    pub gid: u32,
    /// Revision.
    pub rev: u32,
    /// Message.
    pub msg: Arc<str>,
    /// Class, if there is one.
    pub class: Option<Arc<str>>,
    /// Priority; 1 is the highest, 3 the default.
    pub priority: u32,
    pub action: Action,
    pub kind: RuleType,
    pub protocol: ProtocolTest,
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// True if sender and receiver may be exchanged.
    pub is_bidirectional: bool,
    /// Conditions on the flow.
    pub flow: FlowTest,
    /// Conditions on the packet.
    pub packet: Vec<PacketTest>,
    /// True if the payload of packets is inspected.
    pub on_packets: bool,
    /// True if stream windows are inspected.
    pub on_stream: bool,
    /// Operations over the payload.
    pub payload: Vec<Operation>,
    /// Operations over headers and addresses of the packet.
    pub headers: Vec<BufferTest>,
    /// Operations over buffers.
    pub buffers: Vec<BufferTest>,
    /// One bit for each test of `buffers` that waits until the others matched: those over bodies, which grow.
    pub late: u32,
    /// True if the buffers are those of a request and of its response (`=>`).
    pub spans_transaction: bool,
    /// True if operations use variables that those over another buffer set.
    pub shares_variables: bool,
    /// Conditions on the application layer.
    pub app: Vec<AppTest>,
    /// The files that a match stores.
    pub store: Option<Store>,
    /// Conditions on shared state.
    pub state: Vec<StateTest>,
    /// Changes of shared state.
    pub effects: Vec<Effect>,
    /// Suppressions, then limits on alerts or the detection filter, then rate filters.
    pub thresholds: Vec<ThresholdTest>,
    /// True if a match raises no alert.
    pub is_silent: bool,
    /// True if a match of a pass rule raises an alert.
    pub alerts_on_pass: bool,
    /// True if the flow is not inspected any more after a match (`bypass`).
    pub bypasses: bool,
    /// The part of the engine that a match disables (`config`).
    pub disables: Option<Disabled>,
    /// The pattern of the prefilter.
    pub fast_pattern: Option<FastPattern>,
    /// A digest of the text and the addresses of a pass rule. After a reload it tells whether the set still has the rule that
    /// passed a flow.
    pub pass_digest: Option<u64>,
    /// Index of the rule in its set of rules before the rules were sorted by the order of evaluation.
    pub source_index: u32,
}

/// A part of the engine that a match of a rule disables (`config`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disabled {
    /// The records of the transaction.
    Logging,
    /// The tracking of the flow, for the packet.
    Tracking,
}

/// The files that a match of a rule stores (`filestore`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store {
    /// The direction of the files; `None` for the direction of the match.
    pub side: Option<StoreSide>,
    /// True for the files of the flow from then on, false for those of the transaction.
    pub is_of_flow: bool,
}

/// The direction of stored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreSide {
    One(Direction),
    Both,
}

impl Store {
    /// Returns the directions of the files by [`Direction::index`]; `matched` is the direction of the match.
    pub(crate) fn directions(self, matched: Direction) -> [bool; 2] {
        Direction::BOTH.map(|direction| match self.side {
            None => direction == matched,
            Some(StoreSide::One(side)) => direction == side,
            Some(StoreSide::Both) => true,
        })
    }
}

impl Rule {
    /// Returns all operations over bytes.
    pub(super) fn operations_mut(&mut self) -> impl Iterator<Item = &mut Operation> {
        let tests = self.headers.iter_mut().chain(&mut self.buffers);
        let of_tests = tests.flat_map(|test| &mut test.operations);
        self.payload.iter_mut().chain(of_tests)
    }

    /// Returns the first limit on alerts, or the detection filter.
    pub fn rate(&self) -> Option<&Rate> {
        self.thresholds.iter().find_map(|test| match test {
            ThresholdTest::Limit(rate) => Some(rate),
            _ => None,
        })
    }
}
