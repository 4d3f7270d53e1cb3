//! The compiled form of a rule: conditions on packet, flow and state, and lists of operations over bytes.
//!
//! ```text
//!  Rule ── header: protocols, endpoints, flow          one packet
//!       ── packet: sizes, header fields
//!       ── payload: operations                         packet payload, stream window, or both
//!       ── buffers: [BufferTest: buffer, transforms, operations]     a transaction
//!       ── state: bits and counters that must be set; rates
//!       ── effects: bits and counters to set, tag, alert or not
//! ```

use std::sync::Arc;

use memchr::memmem::Finder;
use millrace_ips_pcre::Regex;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::header::Action;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::state::{Rate, Track};
use millrace_ips_rules::options::words::{TextField, Transform};
use millrace_ips_rules::variables::Ranges;

use crate::app::AppProtocol;
use crate::flow::Direction;

/// Number of variables that `byte_extract` and `byte_math` may set in one rule.
pub const VARIABLES: usize = 16;

/// A number of a rule: known when it is loaded, or read from the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A number.
    Number(i64),
    /// The variable with this index.
    Variable(u8),
}

/// A pattern and the places where it may be.
#[derive(Debug)]
pub struct ContentTest {
    /// The bytes; in lower case if case does not matter.
    pub pattern: Box<[u8]>,
    /// The search of the pattern where case matters.
    pub finder: Option<Box<Finder<'static>>>,
    /// True if the pattern must not be there.
    pub is_negated: bool,
    /// True if ASCII letters match in upper and lower case.
    pub nocase: bool,
    /// First byte at which the pattern may begin.
    pub offset: Option<Operand>,
    /// Number of bytes from the offset in which the pattern lies.
    pub depth: Option<Operand>,
    /// Smallest distance from the end of the last match.
    pub distance: Option<Operand>,
    /// Number of bytes from the end of the last match, and the distance, in which the pattern lies.
    pub within: Option<Operand>,
    /// True if the pattern ends the buffer.
    pub endswith: bool,
}

impl ContentTest {
    /// Returns true if the place depends on the end of the last match.
    pub fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// A regular expression.
#[derive(Debug)]
pub struct PcreTest {
    /// The expression.
    pub regex: Arc<Regex>,
    /// True if the expression must not match.
    pub is_negated: bool,
    /// True if the subject begins at the end of the last match.
    pub is_relative: bool,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endianness {
    /// The most significant byte is first.
    Big,
    /// The least significant byte is first.
    Little,
    /// The data representation of the DCE/RPC header decides.
    Dce,
}

/// The form of a number in the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberForm {
    /// Bytes.
    Binary(Endianness),
    /// Digits in base 8, 10 or 16; base 0 is by prefix, as C does it.
    Digits(u32),
}

/// A number in the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberSource {
    /// Number of bytes.
    pub size: Operand,
    /// The place of the first byte.
    pub offset: Operand,
    /// True if the place counts from the end of the last match.
    pub is_relative: bool,
    /// The form.
    pub form: NumberForm,
    /// Bits that are kept, and shifted to the right until the lowest is one of them; 0 keeps all.
    pub bitmask: u64,
}

/// An operator of `byte_test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOperator {
    /// Less.
    Less,
    /// Greater.
    Greater,
    /// Equal.
    Equal,
    /// Less or equal.
    LessOrEqual,
    /// Greater or equal.
    GreaterOrEqual,
    /// A common bit.
    And,
    /// A different bit.
    Xor,
}

/// An operator of `byte_math`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathOperator {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient.
    Divide,
    /// Shift to the left.
    ShiftLeft,
    /// Shift to the right.
    ShiftRight,
}

/// The place from which `byte_jump` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpBase {
    /// The end of the number.
    Number,
    /// The first byte.
    Beginning,
    /// The end of the bytes.
    End,
}

/// An operation over bytes, with a cursor that is the end of the last match.
#[derive(Debug)]
pub enum Operation {
    /// Search a pattern; the cursor moves to its end.
    Content(ContentTest),
    /// Search an expression; the cursor moves to the end of the match.
    Pcre(PcreTest),
    /// Compare a number.
    ByteTest {
        /// The number.
        source: NumberSource,
        /// The operator.
        operator: TestOperator,
        /// True if the comparison must fail.
        is_negated: bool,
        /// The value.
        value: Operand,
    },
    /// Move the cursor by a number.
    ByteJump {
        /// The number.
        source: NumberSource,
        /// Factor of the number.
        multiplier: u64,
        /// Size to whose multiple the number is rounded up; 0 or 1 rounds nothing.
        align: u64,
        /// The place from which the number counts.
        base: JumpBase,
        /// Bytes that are added after the jump.
        post_offset: Operand,
    },
    /// Store a number.
    ByteExtract {
        /// The number.
        source: NumberSource,
        /// Factor of the number.
        multiplier: u64,
        /// Size to whose multiple the number is rounded up; 0 or 1 rounds nothing.
        align: u64,
        /// Index of the variable.
        variable: u8,
    },
    /// Compute with a number, and store the result.
    ByteMath {
        /// The number.
        source: NumberSource,
        /// The operator.
        operator: MathOperator,
        /// The other value.
        value: Operand,
        /// Index of the variable.
        variable: u8,
    },
    /// Test that there is data at a place.
    IsDataAt {
        /// The place.
        position: Operand,
        /// True if the place counts from the end of the last match.
        is_relative: bool,
        /// True if there must be none.
        is_negated: bool,
    },
    /// Compare the number of bytes.
    Size(Comparison),
    /// Compare the number of bytes behind the cursor.
    RemainingSize(Comparison),
    /// Decode Base64, and apply operations to the result.
    Base64 {
        /// Largest number of bytes to decode; none for all.
        bytes: Option<u32>,
        /// Offset of the first byte.
        offset: u32,
        /// True if the offset counts from the end of the last match.
        is_relative: bool,
        /// The operations.
        then: Vec<Operation>,
    },
}

impl Operation {
    /// Returns true if the operation depends on the end of the last match.
    pub fn is_relative(&self) -> bool {
        match self {
            Operation::Content(content) => content.is_relative(),
            Operation::Pcre(pcre) => pcre.is_relative,
            Operation::ByteTest { source, .. }
            | Operation::ByteJump { source, .. }
            | Operation::ByteExtract { source, .. }
            | Operation::ByteMath { source, .. } => source.is_relative,
            Operation::IsDataAt { is_relative, .. } | Operation::Base64 { is_relative, .. } => *is_relative,
            Operation::Size(_) => false,
            Operation::RemainingSize(_) => true,
        }
    }
}

/// Operations over a buffer of a transaction. They match if they match an instance of it.
#[derive(Debug)]
pub struct BufferTest {
    /// The buffer.
    pub buffer: Buffer,
    /// Changes of the bytes before the operations.
    pub transforms: Vec<Transform>,
    /// The operations.
    pub operations: Vec<Operation>,
    /// Index of the hook, which is a buffer with transforms.
    pub hook: u16,
}

/// The side of `stream_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
    /// Both.
    Both,
    /// One of them.
    Either,
}

/// The way in which a set of bits is compared (`flags`, `fragbits`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitMode {
    /// These and no others.
    Exact,
    /// These, and perhaps others (`+`).
    All,
    /// One of these (`*`).
    Any,
    /// None of these (`!`).
    None,
}

/// A condition on a packet.
#[derive(Debug, Clone)]
pub enum PacketTest {
    /// A field of the headers, or the size of the payload.
    Number(NumberField, Comparison),
    /// TCP flags.
    TcpFlags {
        /// The way to compare.
        mode: BitMode,
        /// The flags.
        bits: u16,
        /// Flags that are not looked at.
        ignored: u16,
    },
    /// Bits of the fragment field: reserved 4, don't fragment 2, more fragments 1.
    FragBits {
        /// The way to compare.
        mode: BitMode,
        /// The bits.
        bits: u8,
    },
    /// The protocol of IP.
    IpProtocol(Comparison),
    /// Source and destination address are equal.
    SameIp,
    /// Bytes of a direction of the stream.
    StreamSize {
        /// The side.
        side: Side,
        /// The comparison.
        comparison: Comparison,
    },
}

/// A condition on a flow (`flow`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTest {
    /// True if there is a condition that needs a flow.
    pub is_needed: bool,
    /// Established or not.
    pub is_established: Option<bool>,
    /// The direction.
    pub direction: Option<Direction>,
    /// Reassembled data only.
    pub only_stream: bool,
    /// Packets only.
    pub no_stream: bool,
    /// Reassembled fragments only, or none of them.
    pub is_reassembled: Option<bool>,
}

/// A condition on the application layer that is not a list of operations.
#[derive(Debug, Clone)]
pub enum AppTest {
    /// The protocol of the flow.
    Protocol {
        /// The protocols, of which one is enough.
        protocols: Vec<AppProtocol>,
        /// True if it must be another.
        is_negated: bool,
    },
    /// A value of the parser.
    Field(TextField, String),
    /// A number of the parser.
    Number(NumberField, Comparison),
}

/// The table of a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitTable {
    /// The flow.
    Flow,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The pair of addresses.
    Pair,
}

/// A condition on bits or counters that rules share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateTest {
    /// Bits are set.
    Bits {
        /// The table.
        table: BitTable,
        /// The bits.
        bits: Vec<u32>,
        /// True if all are meant, false if any is.
        is_all: bool,
        /// True if they must not be set.
        is_negated: bool,
    },
    /// A counter compares with a value.
    Counter {
        /// The counter.
        counter: u32,
        /// The comparison.
        test: CounterTest,
    },
}

/// The value of a counter operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterValue {
    /// A number.
    Number(u32),
    /// Another counter.
    Counter(u32),
}

/// A comparison of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterTest {
    /// The counter exists or not.
    IsSet(bool),
    /// Equal.
    Equal(CounterValue),
    /// Not equal.
    NotEqual(CounterValue),
    /// Less.
    Less(CounterValue),
    /// Less or equal.
    LessOrEqual(CounterValue),
    /// Greater.
    Greater(CounterValue),
    /// Greater or equal.
    GreaterOrEqual(CounterValue),
}

/// A change of shared state by a rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Bits are set, unset or inverted.
    Bits {
        /// The table.
        table: BitTable,
        /// The bits.
        bits: Vec<u32>,
        /// The new value; none inverts.
        value: Option<bool>,
        /// Time after which a bit of an address expires, in seconds; 0 is never.
        expire: u32,
    },
    /// A counter is set or changed.
    Counter {
        /// The counter.
        counter: u32,
        /// The operator: `=`, `+` or `-`.
        operator: CounterOperator,
        /// The value.
        value: CounterValue,
    },
}

/// A change of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterOperator {
    /// Set.
    Set,
    /// Add.
    Add,
    /// Subtract.
    Subtract,
}

/// The type of a rule, as the documentation of Suricata names them: it decides when the rule is evaluated, and whether
/// its action takes the packet or the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleType {
    /// Addresses and protocol only: once for each direction of a flow.
    IpOnly,
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
}

/// One end of a header.
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
    /// The bytes.
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
    /// Action.
    pub action: Action,
    /// Type.
    pub kind: RuleType,
    /// Protocols.
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
    /// Operations over buffers.
    pub buffers: Vec<BufferTest>,
    /// Conditions on the application layer.
    pub app: Vec<AppTest>,
    /// Conditions on shared state.
    pub state: Vec<StateTest>,
    /// Changes of shared state.
    pub effects: Vec<Effect>,
    /// Limit on alerts, or detection filter.
    pub rate: Option<Rate>,
    /// Thresholds and suppressions of the table.
    pub thresholds: Vec<ThresholdTest>,
    /// True if a match raises no alert.
    pub is_silent: bool,
    /// Packets to record after the alert.
    pub tag: Option<Tag>,
    /// The pattern of the prefilter.
    pub fast_pattern: Option<FastPattern>,
    /// Index of the rule in its set of rules before the order of evaluation was made.
    pub source_index: u32,
}

/// A row of the threshold table, for a rule.
#[derive(Debug, Clone)]
pub enum ThresholdTest {
    /// No alerts, from all or from the given addresses.
    Suppress(Option<(Track, Arc<Ranges>)>),
    /// A limit on the number of alerts.
    Limit(Rate),
    /// Another action while a rate is exceeded.
    RateFilter {
        /// The rate.
        rate: Rate,
        /// The other action.
        new_action: Action,
        /// Time for which the other action stays, in seconds.
        timeout: u32,
    },
}

/// Packets that are recorded after an alert (`tag`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// True for the packets of the flow, false for those of the host.
    pub is_session: bool,
    /// Number of units.
    pub count: u32,
    /// Unit of the count.
    pub unit: TagUnit,
}

/// The unit of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagUnit {
    /// Packets.
    Packets,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// Returns true if a number satisfies a comparison.
#[inline]
pub fn compare(comparison: Comparison, number: u64) -> bool {
    match comparison {
        Comparison::Equal(n) => number == n,
        Comparison::NotEqual(n) => number != n,
        Comparison::Less(n) => number < n,
        Comparison::LessOrEqual(n) => number <= n,
        Comparison::Greater(n) => number > n,
        Comparison::GreaterOrEqual(n) => number >= n,
        Comparison::Between(low, high) => low < number && number < high,
        Comparison::Within(low, high) => low <= number && number <= high,
    }
}
