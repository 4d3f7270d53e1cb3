//! Queues of ports, as they are configured, with what they counted.

use serde::{Deserialize, Serialize};

/// A queue in which packets wait that leave by a port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct EgressQueue {
    /// The name of the port.
    pub port: String,
    /// Its number on the port. Queue 0 takes packets that choose none.
    pub id: u32,
    /// What is guaranteed to it, bits a second; `null` for nothing.
    #[serde(default)]
    pub min_bps: Option<u64>,
    /// What it gets at most, bits a second; `null` for no limit but that of the port.
    #[serde(default)]
    pub max_bps: Option<u64>,
    /// Queues of a higher priority are served first.
    pub priority: u8,
    /// Its share among queues of one priority.
    pub weight: u16,
    /// Packets that can wait.
    pub length: u32,
    /// Packets that left it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that found it full.
    pub drops: u64,
    /// Packets that wait now.
    pub waiting_packets: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Seconds since it was added.
    pub duration_seconds: f64,
}
