//! Time series, monthly figures and the public status as JSON values.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The time that a graph shows, up to now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// 288 points of 5 minutes.
    #[default]
    Day,
    /// 336 points of 30 minutes.
    Week,
    /// 372 points of 2 hours: 31 days.
    Month,
    /// 365 points of a day.
    Year,
}

/// A graph of one or several lines over the same times.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Graph {
    /// False if this exchange keeps no series. `lines` is then empty.
    pub measured: bool,
    /// The time that the graph shows.
    pub period: Period,
    /// The start of the first point.
    pub start: String,
    /// The time from the start of a point to the start of the next one, in seconds.
    pub step_seconds: u64,
    /// The lines.
    pub lines: Vec<GraphLine>,
}

/// A line of a graph. All lists have one element for each point, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct GraphLine {
    /// The object that was measured: a connection, an end, a trunk, an account, a site. Empty for the whole exchange, and for a
    /// peer that the reader may not know.
    pub object: String,
    /// The name of the object for people.
    pub name: String,
    /// `in` (towards the exchange; from the peer; of a trunk, from its first end), `out`, `in_ipv4`, `in_ipv6`, `out_ipv4`, `out_ipv6`,
    /// `round_trip`.
    pub measure: String,
    /// `bit/s` or `us`.
    pub unit: String,
    /// True if the values are estimates from samples, and not from counters.
    pub sampled: bool,
    /// The average of each point; null where nothing is known.
    #[schema(required)]
    pub average: Vec<Option<u64>>,
    /// The highest 5-minute average in each point, or hourly average in a graph of a year; null where nothing is known.
    #[schema(required)]
    pub peak: Vec<Option<u64>>,
    /// The known share of the time of each point, 0 to 1.
    pub coverage: Vec<f64>,
}

/// The figures of a month.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Billing {
    /// False if this exchange keeps no series. `rows` is then empty.
    pub measured: bool,
    /// The month, such as `2026-11`.
    pub month: String,
    /// True if the month has ended and its figures are frozen in the audit chain.
    pub frozen: bool,
    /// The connections.
    pub rows: Vec<BillingRow>,
}

/// The 95th percentiles of a connection for a month: of its averages over 5 minutes, in the time zone of the exchange.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BillingRow {
    /// The account of the connection; empty if the connection was deleted.
    pub account: String,
    /// The name of the account; empty if the connection was deleted.
    pub account_name: String,
    /// The connection.
    pub connection: String,
    /// The name of the connection; empty if it was deleted.
    pub connection_name: String,
    /// Towards the exchange, in bit/s; null if nothing is known.
    #[schema(required)]
    pub in_bps: Option<u64>,
    /// From the exchange, in bit/s; null if nothing is known.
    #[schema(required)]
    pub out_bps: Option<u64>,
    /// The greater one of both directions, which counts, in bit/s; null if nothing is known.
    #[schema(required)]
    pub billed_bps: Option<u64>,
    /// The known share of the time, 0 to 1.
    pub coverage: f64,
    /// False if less than 98 % of the time is known: such a figure is not billed by itself.
    pub billable: bool,
    /// IPv4 towards the exchange, in bit/s, from samples; null if nothing is known.
    #[schema(required)]
    pub in_ipv4_bps: Option<u64>,
    /// IPv4 from the exchange, in bit/s, from samples; null if nothing is known.
    #[schema(required)]
    pub out_ipv4_bps: Option<u64>,
    /// IPv6 towards the exchange, in bit/s, from samples; null if nothing is known.
    #[schema(required)]
    pub in_ipv6_bps: Option<u64>,
    /// IPv6 from the exchange, in bit/s, from samples; null if nothing is known.
    #[schema(required)]
    pub out_ipv6_bps: Option<u64>,
}

/// The traffic of the exchange for everybody. It has names of sites, and no other names.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PublicTraffic {
    /// The name of the exchange.
    pub name: String,
    /// The time of this answer.
    pub at: String,
    /// The connections between sites.
    pub links: Vec<PublicLink>,
    /// The traffic of the whole exchange over a day; without lines if it is not measured.
    pub traffic: Graph,
}

/// The connection of two sites for everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PublicLink {
    /// The names of both sites.
    pub sites: [String; 2],
    /// `ok`; `degraded`: one of several trunks is down; `down`; `unknown`.
    pub state: String,
    /// The newest round-trip time in microseconds, an average over 5 minutes; null if it is not known.
    #[schema(required)]
    pub round_trip_us: Option<u64>,
}
