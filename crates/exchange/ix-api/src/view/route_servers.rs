//! Sessions with route servers and the routes that they reject, as JSON values.

use serde::Serialize;
use utoipa::ToSchema;

use super::Coded;

/// A session of an end of a peering LAN with a route server, as the route server reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RouteServerSession {
    /// The name of the route server.
    pub server: String,
    /// The autonomous system of the route server.
    pub server_asn: u32,
    /// `fresh`, `stale` (no answer for three intervals), `unreachable` (no answer yet) or `pending`.
    pub freshness: String,
    /// The time of the route server's last answer; null before the first answer.
    #[schema(required)]
    pub read_at: Option<String>,
    /// The time from which queries to the route server fail; null if they succeed.
    #[schema(required)]
    pub failing_since: Option<String>,
    /// The reason why queries to the route server fail; only operators see it.
    #[schema(required)]
    pub failure: Option<String>,
    /// The address of the end.
    pub address: String,
    /// The name of the session in the configuration of the route server; null without a session.
    #[schema(required)]
    pub name: Option<String>,
    /// The autonomous system that the route server expects; null without a session, or if it accepts any.
    #[schema(required)]
    pub asn: Option<u32>,
    /// `idle`, `connect`, `active`, `open_sent`, `open_confirm`, `established`, `close`, `down` (disabled), `passive`, `absent` (the
    /// route server has no session for the address and autonomous system) or `unknown`.
    pub state: String,
    /// The number of routes that the route server has from the session, including rejected routes that it
    /// keeps in a table.
    #[schema(required)]
    pub imported: Option<u64>,
    /// The number of rejected routes that are listed.
    pub rejected: usize,
    /// True if there are more rejected routes than are listed.
    pub truncated: bool,
    /// The last error of the session.
    #[schema(required)]
    pub error: Option<String>,
}

/// A route that a route server rejects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RejectedRoute {
    /// The name of the route server.
    pub server: String,
    /// The address of the end from which the route comes.
    pub address: String,
    /// The prefix.
    pub prefix: String,
    /// The next hop.
    #[schema(required)]
    pub next_hop: Option<String>,
    /// The AS path: numbers, and sets in braces.
    pub as_path: String,
    /// The causes; never empty.
    pub causes: Vec<RejectCause>,
    /// The time of the route server's answer.
    pub read_at: String,
}

/// A route that an end of a peering LAN announces to a route server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemberRoute {
    /// The name of the route server; null if the route came over a session of the engine that has no name.
    #[schema(required)]
    pub server: Option<String>,
    /// The prefix.
    pub prefix: String,
    /// The next hop.
    #[schema(required)]
    pub next_hop: Option<String>,
    /// The AS path: numbers, and sets in braces.
    pub as_path: String,
    /// The communities, standard and large ones; null if they are not known, as of rejected routes.
    #[schema(required)]
    pub communities: Option<Vec<String>>,
    /// The validity by RPKI: `valid`, `invalid`, `not_found`; null without a fresh cache.
    #[schema(required)]
    pub rpki: Option<String>,
    /// True if a route object of the member's AS-SET has prefix and origin; null without fresh objects.
    #[schema(required)]
    pub irr: Option<bool>,
    /// True if the route server passes the route on; false if it rejects it.
    pub accepted: bool,
    /// The causes of a rejection; empty for an accepted route.
    pub causes: Vec<RejectCause>,
}

/// A cause of a rejection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RejectCause {
    /// The community that states the cause: `65520:2`, `64999:1101:3`; null if the route server gives no
    /// cause.
    #[schema(required)]
    pub community: Option<String>,
    /// The cause in words.
    pub text: String,
    /// The sentences of the text as codes, for translation.
    pub coded: Vec<Coded>,
}
