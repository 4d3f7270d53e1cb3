//! Egress queues of ports, with their counters.

use serde::{Deserialize, Serialize};

/// An egress queue of a port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct EgressQueue {
    /// The name of the port.
    pub port: String,
    /// The number of the queue on the port. Queue 0 takes packets that select none.
    pub id: u32,
    /// The guaranteed rate in bit/s; `null` for none.
    #[serde(default)]
    pub min_bps: Option<u64>,
    /// The maximum rate in bit/s; `null` if only the port limits it.
    #[serde(default)]
    pub max_bps: Option<u64>,
    /// The priority; queues of a higher priority are served first.
    pub priority: u8,
    /// The weight among queues of one priority.
    pub weight: u16,
    /// The capacity in packets.
    pub length: u32,
    /// The number of packets sent.
    pub packets: u64,
    /// The size of these packets in bytes.
    pub bytes: u64,
    /// The number of packets dropped because the queue was full.
    pub drops: u64,
    /// The number of packets in the queue.
    pub waiting_packets: u64,
    /// The size of these packets in bytes.
    pub waiting_bytes: u64,
    /// The time since the queue was added, in seconds.
    pub duration_seconds: f64,
}
