//! Ports and learned MAC addresses.

use serde::{Deserialize, Serialize};

/// The administrative state of a port, set by the operator or a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AdminState {
    /// In use.
    Up,
    /// Disabled (`OFPPC_PORT_DOWN`).
    Down,
}

/// The operational state of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The link has a signal, or the peer is connected.
    Up,
    /// The link has no signal, or no peer is connected (`OFPPS_LINK_DOWN`).
    Down,
    /// The device could not be opened; `status` contains the reason.
    Missing,
}

/// The counters of one direction of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Counters {
    /// The number of packets.
    pub packets: u64,
    /// The number of bytes, from the first byte of the Ethernet header to the last before the frame check sequence.
    pub bytes: u64,
    /// The number of packets dropped because a queue was full or no buffer was free.
    pub drops: u64,
    /// The number of packets with errors.
    pub errors: u64,
}

/// The rates of a port, measured over about the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Rates {
    /// Packets received per second.
    pub rx_pps: f64,
    /// Bits received per second, counted as `bytes` are.
    pub rx_bps: f64,
    /// Packets sent per second.
    pub tx_pps: f64,
    /// Bits sent per second, counted as `bytes` are.
    pub tx_bps: f64,
    /// Packets dropped per second, in both directions.
    pub drop_pps: f64,
}

/// A port of a bridge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Port {
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the port, unique in its bridge.
    pub name: String,
    /// The OpenFlow number; 0xfffffffe is LOCAL.
    pub number: u32,
    /// The device: a PCI address, the arguments of a DPDK device, or a port type with its parameters, as
    /// `kernel:eth1`.
    pub device: String,
    /// The driver of the device; `null` until the device is open.
    #[serde(default)]
    pub driver: Option<String>,
    /// The number of open receive queues.
    #[serde(default)]
    pub rx_queues: u16,
    /// The header fields by which the device distributes flows over its queues (`ip,tcp,udp`); `null` without RSS.
    #[serde(default)]
    pub rss: Option<String>,
    /// The rule types that the device applies in hardware (`flows,marks,vlans,labels`); `null` for none.
    #[serde(default)]
    pub offload: Option<String>,
    /// The number of RETA buckets of each worker while workers hand flows off to each other; empty otherwise.
    #[serde(default)]
    pub spread: Vec<u32>,
    /// The MAC address of the port.
    pub mac: String,
    /// The administrative state.
    pub admin: AdminState,
    /// The operational state.
    pub link: LinkState,
    /// The link speed in bit/s; `null` if unknown.
    #[serde(default)]
    pub speed_bps: Option<u64>,
    /// The MTU in bytes: the longest payload of a frame.
    pub mtu: u32,
    /// The counters of received packets.
    pub rx: Counters,
    /// The counters of sent packets.
    pub tx: Counters,
    /// The policer with its counters; `null` if the port has none.
    #[serde(default)]
    pub policer: Option<Policer>,
    /// The rates, which the server samples every second; `null` in the first second.
    #[serde(default)]
    pub rates: Option<Rates>,
}

/// The policer of a port, with its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Policer {
    /// The type: `srtcm` (RFC 2697), `trtcm` (RFC 2698) or `trtcm-4115` (RFC 4115).
    pub kind: String,
    /// The committed information rate in bit/s.
    pub cir_bps: u64,
    /// The peak rate (RFC 2698) or the excess rate (RFC 4115) in bit/s; `null` for `srtcm`.
    #[serde(default)]
    pub second_bps: Option<u64>,
    /// Packets within the committed rate.
    pub green: Colored,
    /// Packets above the committed rate.
    pub yellow: Colored,
    /// Packets above all rates.
    pub red: Colored,
}

/// The action of a policer on packets of one color, with counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Colored {
    /// `pass`, `mark` or `drop`.
    pub action: String,
    /// The number of packets.
    pub packets: u64,
    /// The size of these packets in bytes.
    pub bytes: u64,
}

/// A MAC address that the bridge has learned (output to NORMAL, and fail-standalone).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct MacEntry {
    /// The VLAN id; 0 for untagged packets.
    pub vlan: u16,
    /// The MAC address.
    pub mac: String,
    /// The OpenFlow number of the port on which the address was last seen.
    pub port: u32,
    /// The time since the address was last seen, in seconds.
    pub age_seconds: f64,
}
