//! IPFIX of a bridge as REST shows it.

use serde::{Deserialize, Serialize};

/// IPFIX of a bridge: its collectors, and what it made of samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Ipfix {
    /// The observation domain, by which collectors distinguish the bridges of a switch.
    pub domain: u32,
    /// The content of a record: `flows` or `packets`.
    pub content: String,
    /// The collectors.
    pub collectors: Vec<IpfixCollector>,
    /// The number of flows that are kept until their record is sent.
    pub flows: u64,
    /// The number of packet samples.
    pub samples: u64,
    /// The number of packets from which the samples were chosen.
    pub pool: u64,
    /// The number of samples that were lost because the switch was late.
    pub lost: u64,
    /// The number of records of flows or packets.
    pub records: u64,
    /// The number of records that were sent early, because `max_flows` was reached.
    pub evicted: u64,
}

/// A collector of IPFIX messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct IpfixCollector {
    /// The transport, the IP address and the port.
    pub target: String,
    /// False while there is no TCP connection, or no socket.
    pub connected: bool,
    /// The number of messages sent.
    pub messages: u64,
    /// The number of records sent, with those of samplers, interfaces and counts.
    pub records: u64,
    /// The number of bytes sent.
    pub bytes: u64,
    /// The number of records that were not sent.
    pub not_sent: u64,
    /// The last error; `null` after a message was sent.
    #[serde(default)]
    pub last_error: Option<String>,
}
