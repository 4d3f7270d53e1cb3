//! Traces of packets, table by table.

use serde::{Deserialize, Serialize};

/// A request to trace a described packet, without sending it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The packet in the syntax of flows: `in_port=1,tcp,nw_dst=10.0.0.2,tp_dst=80`. `in_port` may be the name of a
    /// port. Besides match fields it takes `mpls_ttl` and `size`.
    #[serde(default)]
    pub packet: Option<String>,
    /// The bytes of the packet, hexadecimal; `packet` then gives only `in_port`, `metadata` and `tunnel_id`.
    #[serde(default)]
    pub hex: Option<String>,
}

/// A request to trace the next live packet that matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TraceLiveRequest {
    /// A match in the syntax of flows; empty for any packet.
    #[serde(default, rename = "match")]
    pub matching: String,
    /// The time to wait in seconds, 0.1 to 60; the default is 10.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}

/// The entry that a packet matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Matched {
    /// The priority of the entry.
    pub priority: u16,
    /// The cookie of the entry, hexadecimal.
    pub cookie: String,
    /// The match as ovs-ofctl writes it.
    #[serde(rename = "match")]
    pub matching: String,
    /// The instructions as ovs-ofctl writes them.
    pub actions: String,
}

/// A step of a trace: a table, the processing after the last table, or a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct TraceStep {
    /// The number of the table; `null` for a chain, and for the action set and the learning bridge after the tables.
    #[serde(default)]
    pub table: Option<u8>,
    /// The chain that the packet traverses; `null` for other steps.
    #[serde(default)]
    pub chain: Option<String>,
    /// The entry that matched; `null` for none.
    #[serde(default)]
    pub matched: Option<Matched>,
    /// The effects, one line each: `set vlan_vid to 0x1064`, `output to port 2`.
    pub effects: Vec<String>,
}

/// A packet that leaves the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct TraceOutput {
    /// The name of the egress port, or `CONTROLLER`; for a routed packet, the egress interface of the router.
    pub port: String,
    /// The OpenFlow number of the port; for a routed packet, that of the router's port in the bridge.
    pub number: u32,
    /// The egress queue, if one was chosen.
    #[serde(default)]
    pub queue: Option<u32>,
    /// The bytes of the packet, hexadecimal.
    pub packet: String,
}

/// The processing of one packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Trace {
    /// The name of the bridge.
    pub bridge: String,
    /// The OpenFlow number of the ingress port.
    pub in_port: u32,
    /// The bytes of the packet, hexadecimal.
    pub packet: String,
    /// The fields of the packet, as ovs-ofctl writes a match.
    pub fields: String,
    /// The steps, in order.
    pub steps: Vec<TraceStep>,
    /// The copies that leave the switch.
    pub outputs: Vec<TraceOutput>,
    /// The assumptions about values that the request lacks, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The drop reason, as in `drops`, or the chain and hop that drop the packet; `null` if it is not dropped.
    #[serde(default)]
    pub dropped: Option<String>,
}
