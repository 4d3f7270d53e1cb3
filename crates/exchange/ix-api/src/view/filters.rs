//! Filters, explanations and the traffic to a destination as JSON values.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AccountName, Coded};

/// A filter at the ingress of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Filter {
    /// The identifier.
    pub id: String,
    /// The account that it protects.
    pub account: AccountName,
    /// The match, in words; for a refused BGP route the rule with its actions, as its peer has announced it.
    pub matching: String,
    /// The destination.
    pub destination: String,
    /// The names of the accounts from which packets are filtered; empty for all.
    pub peers: Vec<String>,
    /// `drop`, `shape` or `count`; `none` for a refused filter, which does nothing.
    pub action: String,
    /// The rate of `shape` in kbit/s.
    #[schema(required)]
    pub rate_kbps: Option<u32>,
    /// `page`, `api`, `rtbh` or `flowspec`.
    pub origin: String,
    /// `draft`, `checked`, `active`, `expired`, `refused` or `suspended`.
    pub state: String,
    /// The reason of a refusal or suspension.
    #[schema(required)]
    pub reason: Option<String>,
    /// The sentences of the reason as codes, for translation; empty if the reason has no code.
    pub coded: Vec<Coded>,
    /// The reason for the filter, in the words of its owner, or the rule of the BGP route.
    #[schema(required)]
    pub comment: Option<String>,
    /// The counters; null if they are not known.
    #[schema(required)]
    pub counter: Option<Counter>,
    /// The order that creates the same filter again; null for filters that come from BGP routes.
    #[schema(required)]
    pub order: Option<NewFilter>,
    /// The end of its time to live.
    #[schema(required)]
    pub expires: Option<String>,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// A new filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewFilter {
    /// The account that it protects; null for the caller's account.
    #[serde(default)]
    pub account: Option<String>,
    /// The destination: an address or a prefix.
    pub destination: String,
    /// The source: an address or a prefix.
    #[serde(default)]
    pub source: Option<String>,
    /// The IP protocol.
    #[serde(default)]
    pub protocol: Option<u8>,
    /// Any of these source ports; all if empty.
    #[serde(default)]
    pub source_ports: Vec<PortRange>,
    /// Any of these destination ports; all if empty.
    #[serde(default)]
    pub destination_ports: Vec<PortRange>,
    /// The ICMP type; with protocol 1 or 58.
    #[serde(default)]
    pub icmp_type: Option<u8>,
    /// The ICMP code; with protocol 1 or 58.
    #[serde(default)]
    pub icmp_code: Option<u8>,
    /// `not`, `any`, `first` or `later`.
    #[serde(default)]
    pub fragment: Option<String>,
    /// Bits of the TCP header; with protocol 6, if all switches have match extensions.
    #[serde(default)]
    pub tcp_flags: Option<TcpFlags>,
    /// The differentiated services code point.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// Packets from these accounts only.
    #[serde(default)]
    pub peers: Vec<String>,
    /// `drop`, `shape` or `count`.
    pub action: String,
    /// The rate of `shape` in kbit/s; 1,000 if it is null.
    #[serde(default)]
    pub rate_kbps: Option<u32>,
    /// The time to live in minutes; 60 if it is null.
    #[serde(default)]
    pub minutes: Option<u32>,
    /// The reason in the owner's words.
    #[serde(default)]
    pub comment: Option<String>,
}

/// Bits of the TCP header (RFC 9293, section 3.1; FIN is bit 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TcpFlags {
    /// The bits that are compared, 12 at most.
    pub mask: u16,
    /// Their values.
    pub value: u16,
}

/// A range of transport ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// The counters of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Counter {
    /// The packets since the filter became active.
    pub packets: u64,
    /// The bytes since the filter became active.
    pub bytes: u64,
    /// The present rate in packets a second.
    pub packets_per_s: u64,
    /// The present rate in bit/s.
    pub bits_per_s: u64,
}

/// The treatment of a packet, with every filter that was compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    /// `pass`, `drop`, `shape` or `count`.
    pub outcome: String,
    /// The filters in the order in which they are compared.
    pub steps: Vec<ExplainedStep>,
}

/// A filter that was compared with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ExplainedStep {
    /// The filter.
    pub filter: Filter,
    /// True if the packet matches the filter.
    pub matches: bool,
    /// True if the filter decides about the packet.
    pub applies: bool,
    /// The reason in words.
    pub why: String,
    /// The sentences of the reason as codes, for translation.
    pub coded: Vec<Coded>,
}

/// The destinations of an account, and the traffic to one of them.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AttackView {
    /// The destinations in descending order of their excess; empty if traffic is not measured.
    pub targets: Vec<Target>,
    /// The traffic to the destination that was asked for.
    #[schema(required)]
    pub traffic: Option<Traffic>,
}

/// A destination with its rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Target {
    /// The destination.
    pub prefix: String,
    /// The present rate in bit/s, including the part that switches drop.
    pub bits_per_s: u64,
    /// The usual rate before an attack, in bit/s; null while it is not known.
    #[schema(required)]
    pub usual_bits_per_s: Option<u64>,
}

/// The traffic to a destination.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Traffic {
    /// The destination with its rate.
    pub target: Target,
    /// The part of the rate that switches drop, for example by filters, in bit/s.
    pub dropped_bits_per_s: u64,
    /// The rate in packets a second.
    pub packets_per_s: u64,
    /// The half width of the 95 % confidence interval, in percent of the rates.
    pub error_percent: f64,
    /// The rates by minute, oldest first. The newest minute covers only its part so far.
    pub minutes: Vec<Minute>,
    /// The breakdowns of the traffic, one for each property.
    pub breakdown: Vec<Breakdown>,
    /// The filters that would help. While the usual rate is not known, they limit packets and drop none.
    pub suggestions: Vec<Suggestion>,
}

/// The rates of one minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Minute {
    /// The start of the minute.
    pub at: String,
    /// The rate of packets that passed, in bit/s; null if it is not known.
    #[schema(required)]
    pub passed_bps: Option<u64>,
    /// The rate of packets that filters dropped, in bit/s; null if it is not known.
    #[schema(required)]
    pub dropped_bps: Option<u64>,
}

/// The parts of the traffic by one property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Breakdown {
    /// `protocol`, `port`, `peer`, `source_as`, `fragment` or `size`.
    pub by: String,
    /// The parts, the largest first.
    pub shares: Vec<Share>,
}

/// A part of the traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Share {
    /// The value.
    pub label: String,
    /// The rate in bit/s.
    pub bits_per_s: u64,
}

/// A filter that would help, as a draft.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Suggestion {
    /// The match, in words.
    pub matching: String,
    /// The order that makes the filter: the body of `POST /filters`.
    pub order: NewFilter,
    /// The share of the excess that it covers, 0 to 1.
    pub covers: f64,
    /// The share of the usual traffic that it covers, 0 to 1; null if no usual traffic is known.
    #[schema(required)]
    pub collateral: Option<f64>,
    /// The reason in words.
    pub why: String,
    /// The sentences of the reason as codes, for translation. Unlike `why`, the sentences do not describe the
    /// packets.
    pub coded: Vec<Coded>,
}

/// A BGP session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BgpSession {
    /// The address of the peer.
    pub peer: String,
    /// The autonomous system of the peer.
    pub asn: u32,
    /// `member` or `route_server`.
    pub kind: String,
    /// The account of the peer.
    #[schema(required)]
    pub account: Option<AccountName>,
    /// `idle`, `open_sent`, `open_confirm` or `established`.
    pub state: String,
    /// The time at which the session entered this state.
    pub since: String,
    /// The number of unicast routes.
    pub routes: usize,
    /// The number of Flowspec rules.
    pub flowspec: usize,
    /// The last error in words.
    #[schema(required)]
    pub error: Option<String>,
}
