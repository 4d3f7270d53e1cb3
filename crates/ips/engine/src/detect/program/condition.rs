//! The conditions of a rule on a packet, a flow and the application layer, apart from operations over bytes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use millrace_ips_rules::countries::{Countries, Country};
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::protocols::ProtocolOf;
use millrace_ips_rules::options::selection::{Index, Selection};
use millrace_ips_rules::options::words::TextField;
use millrace_ips_rules::reputation::Reputation;
use millrace_wire::IpProto;

use crate::app::{AppProtocol, Progress};
use crate::flow::Direction;
use crate::packet::IpVersion;
use crate::packet::events::PacketEvent;

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
    /// The payload is a call of RPC.
    Rpc {
        program: u32,
        /// The version; `None` for any.
        version: Option<u32>,
        /// The procedure; `None` for any.
        procedure: Option<u32>,
    },
    /// An identifier of the VLAN tags, outermost first.
    Vlan {
        comparison: Comparison,
        index: Selection,
    },
    /// The checksum of a protocol over a version of IP is right or wrong; with `None` that of the IPv4 header.
    Checksum {
        version: IpVersion,
        protocol: Option<IpProto>,
        is_right: bool,
    },
    /// The IPv4 header has an option of the type; with `None` any option.
    IpOption(Option<u8>),
    /// A number of packets or bytes of the flow, by side.
    FlowCounter {
        field: NumberField,
        side: Side,
        comparison: Comparison,
    },
    /// The decoder or the TCP engine raised the event for the packet.
    Event(PacketEvent),
    /// The reputation of an address.
    Reputation(ReputationTest),
    /// The country of an address.
    Country(CountryTest),
    /// The number of bytes in a direction of the stream.
    StreamSize {
        side: Side,
        comparison: Comparison,
    },
}

/// A condition on the reputation of addresses (`iprep`).
#[derive(Debug, Clone)]
pub struct ReputationTest {
    pub side: AddressSide,
    /// Number of the category.
    pub category: u8,
    /// The name of the category.
    pub name: String,
    pub score: ScoreTest,
    pub table: Arc<Reputation>,
}

/// A condition on the country of addresses (`geoip`).
#[derive(Debug, Clone)]
pub struct CountryTest {
    pub side: AddressSide,
    pub countries: Vec<Country>,
    /// True if the country must be another one. An address without a country fulfils neither condition.
    pub is_negated: bool,
    pub table: Countries,
}

/// The address that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSide {
    Source,
    Destination,
    /// One of them.
    Any,
    Both,
}

impl AddressSide {
    /// Returns true if the tested addresses of a packet hold.
    pub fn holds(self, src: IpAddr, dst: IpAddr, holds: impl Fn(IpAddr) -> bool) -> bool {
        match self {
            AddressSide::Source => holds(src),
            AddressSide::Destination => holds(dst),
            AddressSide::Any => holds(src) || holds(dst),
            AddressSide::Both => holds(src) && holds(dst),
        }
    }

    /// Returns the side for messages.
    pub fn words(self) -> &'static str {
        match self {
            AddressSide::Source => "the source",
            AddressSide::Destination => "the destination",
            AddressSide::Any => "one of the addresses",
            AddressSide::Both => "each address",
        }
    }
}

/// The presence of an address's score in a category, and how the score compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreTest {
    /// The address has a score in the category, or has none.
    IsSet(bool),
    /// The address has a score, which compares.
    Compares(Comparison),
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

impl FlowTest {
    /// Returns false if the rule asks for packets of the other direction.
    pub(in crate::detect) fn may_be(&self, direction: Direction) -> bool {
        let asked = self.direction.filter(|_| self.is_needed);
        asked.is_none_or(|asked| asked == direction)
    }
}

/// A condition on the protocol of a flow.
#[derive(Debug, Clone)]
pub struct ProtocolOfFlow {
    /// The protocols; one of them is enough.
    pub protocols: Vec<AppProtocol>,
    /// True if the protocol must be known, and not be in the list.
    pub is_negated: bool,
    /// True if a protocol that is not known yet is enough.
    pub takes_unknown: bool,
    /// The bytes whose protocol it is.
    pub of: ProtocolOf,
}

impl ProtocolOfFlow {
    /// Returns true if a protocol satisfies the condition; `None` stands for one that is not known yet. A flow of HTTP/2 that carries
    /// DNS is one of both protocols.
    pub(in crate::detect) fn takes(&self, app: Option<AppProtocol>, carries_dns: bool) -> bool {
        const BOTH: [AppProtocol; 3] = [AppProtocol::Http2, AppProtocol::Dns, AppProtocol::Doh2];
        let is_of_both = |app: AppProtocol| carries_dns && BOTH.contains(&app);
        let is_in = |app: AppProtocol| {
            self.protocols.contains(&app)
                || is_of_both(app) && BOTH.iter().any(|other| self.protocols.contains(other))
        };
        match app {
            Some(app) => is_in(app) != self.is_negated,
            None => self.takes_unknown,
        }
    }
}

/// A condition on the application layer that is not a list of operations.
#[derive(Debug, Clone)]
pub enum AppTest {
    /// The protocol of the flow.
    Protocol(ProtocolOfFlow),
    /// The message of the direction of the packet has come at least so far.
    Progress(Progress),
    /// A value of the parser.
    Field(TextField, String),
    /// A number of the parser.
    Number(NumberField, Comparison, Selection),
    /// A file whose digest is in a list, or is not.
    Digest {
        field: TextField,
        list: Arc<HashSet<Vec<u8>>>,
        is_negated: bool,
    },
}

/// Returns true if values satisfy a comparison, as the index says.
pub fn compare_all(comparison: Comparison, selection: Selection, values: &[u64]) -> bool {
    let Selection { index, part } = selection;
    let values = part.map_or(values, |part| part.of(values));
    let holds = |value: &u64| compare(comparison, *value);
    let at = |index: i32| match usize::try_from(index) {
        Ok(index) => values.get(index),
        Err(_) => {
            (values.len().checked_sub(index.unsigned_abs() as usize)).and_then(|index| values.get(index))
        }
    };
    match index {
        Index::Any => values.iter().any(holds),
        Index::All => !values.is_empty() && values.iter().all(holds),
        Index::AllOrAbsent => values.iter().all(holds),
        Index::OrAbsent => values.is_empty() || values.iter().any(holds),
        Index::At(index) => at(index).is_some_and(holds),
        Index::OutOfBoundsOr(index) => at(index).is_none_or(holds),
        Index::Times(times) => compare(times, values.iter().filter(|value| holds(value)).count() as u64),
        Index::Count => compare(comparison, values.len() as u64),
    }
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
        Comparison::Outside(low, high) => number <= low || high <= number,
        Comparison::Mask {
            mask,
            value,
            is_negated,
        } => (number & mask == value) != is_negated,
    }
}
