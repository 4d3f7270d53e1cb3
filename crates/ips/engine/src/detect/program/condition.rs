//! The conditions of a rule on a packet, a flow and the application layer, apart from operations over bytes.

use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::words::TextField;

use crate::app::AppProtocol;
use crate::flow::Direction;

/// The side of `stream_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
    Both,
    /// One of them.
    Either,
}

/// The comparison of a set of bits (`flags`, `fragbits`).
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
    TcpFlags {
        /// The comparison.
        mode: BitMode,
        /// The flags.
        bits: u16,
        /// Flags that are not compared.
        ignored: u16,
    },
    /// Bits of the fragment field: reserved 4, don't fragment 2, more fragments 1.
    FragBits {
        /// The comparison.
        mode: BitMode,
        bits: u8,
    },
    IpProtocol(Comparison),
    /// Source and destination address are equal.
    SameIp,
    /// The number of bytes in a direction of the stream.
    StreamSize {
        side: Side,
        comparison: Comparison,
    },
}

/// A condition on a flow (`flow`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTest {
    /// True if the rule has the keyword. The state of a flow changes from packet to packet, so a rule over addresses that has
    /// the keyword, with whichever option, is a rule over packets.
    pub is_present: bool,
    /// True if there is a condition that needs a flow.
    pub is_needed: bool,
    /// True if the flow must be established, false if it must not.
    pub is_established: Option<bool>,
    pub direction: Option<Direction>,
    /// Reassembled data only.
    pub only_stream: bool,
    /// Packets only.
    pub no_stream: bool,
    /// True for reassembled packets only, false for other packets only.
    pub is_reassembled: Option<bool>,
}

/// A condition on the application layer that is not a list of operations.
#[derive(Debug, Clone)]
pub enum AppTest {
    /// The protocol of the flow.
    Protocol {
        /// The protocols; one of them is enough.
        protocols: Vec<AppProtocol>,
        /// True if the flow must have a protocol that is not in the list.
        is_negated: bool,
    },
    /// A value of the parser.
    Field(TextField, String),
    /// A number of the parser.
    Number(NumberField, Comparison),
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
