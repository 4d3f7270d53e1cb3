//! sFlow of a bridge as REST shows it.

use serde::{Deserialize, Serialize};

/// sFlow of a bridge: its collectors, and the samples of its ports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Sflow {
    /// The IP address by which collectors identify the switch.
    pub agent: String,
    /// The number by which collectors distinguish bridges with the same agent address.
    pub sub_agent: u32,
    /// The collectors.
    pub collectors: Vec<SflowCollector>,
    /// The ports, by number.
    pub ports: Vec<SflowPort>,
    /// The number of notifications of dropped packets.
    pub discards: u64,
    /// The number of notifications that were not sent, because of the rate limit or because the switch was
    /// late.
    pub discards_lost: u64,
}

/// A collector of sFlow datagrams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct SflowCollector {
    /// The IP address and UDP port.
    pub address: String,
    /// The number of datagrams sent.
    pub datagrams: u64,
    /// The number of datagrams that the kernel did not send.
    pub errors: u64,
    /// The last error; `null` after a datagram was sent.
    #[serde(default)]
    pub last_error: Option<String>,
}

/// The samples of a port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct SflowPort {
    /// The name of the port.
    pub port: String,
    /// The number of the port as an interface of sFlow.
    pub number: u32,
    /// The mean number of packets for each sample; 0 for no samples.
    pub rate: u32,
    /// The number of packet samples.
    pub samples: u64,
    /// The number of packets from which the samples were chosen (sample pool).
    pub pool: u64,
    /// The number of samples that were lost because the switch was late.
    pub lost: u64,
    /// The number of counter samples.
    pub counter_samples: u64,
}
