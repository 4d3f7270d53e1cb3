//! What happens to one packet, table by table.

use serde::{Deserialize, Serialize};

/// A packet to be traced without being sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The packet in the syntax of flows: `in_port=1,tcp,nw_dst=10.0.0.2,tp_dst=80`. `in_port` may be the
    /// name of a port. Besides match fields: `mpls_ttl`, `size`.
    #[serde(default)]
    pub packet: Option<String>,
    /// The bytes of the packet instead, hexadecimal; `packet` then says no more than `in_port`, `metadata`
    /// and `tunnel_id`.
    #[serde(default)]
    pub hex: Option<String>,
}

/// A wish to trace the next live packet that matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TraceLiveRequest {
    /// A match in the syntax of flows; empty for any packet.
    #[serde(default, rename = "match")]
    pub matching: String,
    /// Seconds to wait, 0.1 to 60; 10 unless given.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}

/// The entry that a packet matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Matched {
    /// Its priority.
    pub priority: u16,
    /// Its cookie, hexadecimal.
    pub cookie: String,
    /// Its match as ovs-ofctl writes it.
    #[serde(rename = "match")]
    pub matching: String,
    /// Its instructions as ovs-ofctl writes them.
    pub actions: String,
}

/// What happened in one table, after the last one, or in a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct TraceStep {
    /// The table; `null` for what follows the tables: the action set, the learning bridge; and for a chain.
    #[serde(default)]
    pub table: Option<u8>,
    /// The chain that the packet goes through, if this step is one.
    #[serde(default)]
    pub chain: Option<String>,
    /// The entry; `null` if none matched.
    #[serde(default)]
    pub matched: Option<Matched>,
    /// What was done, one line each: `set vlan_vid to 0x1064`, `output to port 2`.
    pub effects: Vec<String>,
}

/// A packet that leaves the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct TraceOutput {
    /// Where to: the name of a port, or `CONTROLLER`.
    pub port: String,
    /// The OpenFlow number of the port.
    pub number: u32,
    /// The egress queue, if one was chosen.
    #[serde(default)]
    pub queue: Option<u32>,
    /// Its bytes, hexadecimal.
    pub packet: String,
}

/// What happens, or happened, to a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Trace {
    /// The bridge.
    pub bridge: String,
    /// Where the packet came in.
    pub in_port: u32,
    /// Its bytes, hexadecimal.
    pub packet: String,
    /// Its fields as ovs-ofctl writes a match.
    pub fields: String,
    /// Table by table.
    pub steps: Vec<TraceStep>,
    /// Every copy that leaves.
    pub outputs: Vec<TraceOutput>,
    /// What was assumed about the packet because the request does not say it, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why the packet is dropped, if it is: a reason of `drops`, or the chain and hop that drop it.
    #[serde(default)]
    pub dropped: Option<String>,
}
