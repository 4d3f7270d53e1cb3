//! Mirrors of a bridge as REST shows them.

use serde::{Deserialize, Serialize};

/// A mirror of a bridge: the packets that it selects, its output, and its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Mirror {
    /// The name of the mirror.
    pub name: String,
    /// True if the packets of all ports are selected.
    pub select_all: bool,
    /// The names of the ports whose received packets are selected.
    pub select_received: Vec<String>,
    /// The names of the ports whose sent packets are selected.
    pub select_sent: Vec<String>,
    /// The VLANs of the selected packets; empty for all of them.
    pub select_vlans: Vec<u16>,
    /// The name of the port that sends the copies; `null` if they are flooded in a VLAN.
    #[serde(default)]
    pub output_port: Option<String>,
    /// The VLAN in which copies are flooded; `null` if a port sends them.
    #[serde(default)]
    pub output_vlan: Option<u16>,
    /// The maximum size of a copy, in bytes; `null` without a limit.
    #[serde(default)]
    pub snaplen: Option<u16>,
    /// The number of packets that were selected.
    pub packets: u64,
    /// The number of bytes of the selected packets, before copies are tagged or truncated.
    pub bytes: u64,
    /// The number of copies that were not sent: no buffer was free, or the output did not take them.
    pub lost: u64,
}
