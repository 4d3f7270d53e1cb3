//! The content of a switch: its flow entries, groups, meters and ports.

use std::collections::HashMap;

use millrace_flow::Match;
use millrace_openflow::Port;
use millrace_openflow::multipart::flow::{FlowStats, FlowStatsRequest};
use millrace_openflow::multipart::group::GroupDesc;
use millrace_openflow::multipart::meter::MeterConfig;
use millrace_types::{Cookie, Priority, TableId};
use thiserror::Error;

/// The flow entries that a listing selects. Groups, meters and ports are always listed in full, because
/// OpenFlow 1.3 has no cookies for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpFilter {
    /// The table; [`TableId::ALL`] selects all.
    pub table: TableId,
    /// The required value of the cookie bits in `cookie_mask`.
    pub cookie: Cookie,
    /// The cookie bits that are compared; 0 selects all entries.
    pub cookie_mask: u64,
}

impl DumpFilter {
    /// Selects every entry.
    pub const ALL: DumpFilter = DumpFilter {
        table: TableId::ALL,
        cookie: Cookie(0),
        cookie_mask: 0,
    };

    pub(crate) fn request(self) -> FlowStatsRequest {
        FlowStatsRequest {
            table: self.table,
            cookie: self.cookie,
            cookie_mask: self.cookie_mask,
            ..FlowStatsRequest::all()
        }
    }
}

/// The complete contents of a switch. An incomplete listing is an error and never a `Dump`.
///
/// The parts are listed one after another. A change that another controller makes meanwhile may be in one
/// part and not in another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dump {
    pub ports: Vec<Port>,
    /// The meters; empty if the switch has no meters at all.
    pub meters: Vec<MeterConfig>,
    pub groups: Vec<GroupDesc>,
    /// The flow entries, with their counters.
    pub flows: Vec<FlowStats>,
}

/// The identity of a flow entry (OpenFlow 1.3.5, section 5.2). No two entries of a switch have the same
/// identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowIdentity {
    pub table: TableId,
    pub priority: Priority,
    pub matching: Match,
}

/// The error for a switch that lists the same flow entry twice.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "the switch lists two entries of table {} with priority {} and match {}: expected one",
    .0.table, .0.priority, .0.matching
)]
pub struct DuplicateEntry(pub FlowIdentity);

impl Dump {
    /// Returns the flow entries by identity. Cookies are not part of the identity, because two entries may
    /// have the same cookie.
    ///
    /// # Errors
    /// [`DuplicateEntry`].
    pub fn into_entries(self) -> Result<HashMap<FlowIdentity, FlowStats>, DuplicateEntry> {
        index(self.flows)
    }
}

/// Returns flow entries by identity.
///
/// # Errors
/// [`DuplicateEntry`] if two entries have the same identity.
pub(crate) fn index(flows: Vec<FlowStats>) -> Result<HashMap<FlowIdentity, FlowStats>, DuplicateEntry> {
    let mut entries = HashMap::with_capacity(flows.len());
    for flow in flows {
        let identity = FlowIdentity {
            table: flow.table,
            priority: flow.priority,
            matching: flow.match_.clone(),
        };
        if entries.contains_key(&identity) {
            return Err(DuplicateEntry(identity));
        }
        entries.insert(identity, flow);
    }
    Ok(entries)
}
