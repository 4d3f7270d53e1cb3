//! Ports and what was learned behind them.

use serde::{Deserialize, Serialize};

/// What the operator or a controller wants of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AdminState {
    /// In use.
    Up,
    /// Switched off (`OFPPC_PORT_DOWN`).
    Down,
}

/// What the port can do at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// A signal, or a peer, is there.
    Up,
    /// None is there (`OFPPS_LINK_DOWN`).
    Down,
    /// The device could not be opened; `status` says why.
    Missing,
}

/// Totals of one direction of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Packets that passed.
    pub packets: u64,
    /// Bytes that passed, from the first byte of the Ethernet header to the last before the check sequence.
    pub bytes: u64,
    /// Packets that were dropped, because a queue was full or no buffer was free.
    pub drops: u64,
    /// Packets that were bad.
    pub errors: u64,
}

/// Rates over about the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Rates {
    /// Received packets a second.
    pub rx_pps: f64,
    /// Received bits a second, counted as `bytes` are.
    pub rx_bps: f64,
    /// Sent packets a second.
    pub tx_pps: f64,
    /// Sent bits a second, counted as `bytes` are.
    pub tx_bps: f64,
    /// Packets dropped a second, both directions.
    pub drop_pps: f64,
}

/// A port of a bridge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Port {
    /// The bridge it belongs to.
    pub bridge: String,
    /// Its name, unique in the bridge.
    pub name: String,
    /// Its OpenFlow number; 0xfffffffe is LOCAL.
    pub number: u32,
    /// The device: a PCI address, or the arguments of a DPDK device.
    pub device: String,
    /// The driver that serves it, once it is open.
    #[serde(default)]
    pub driver: Option<String>,
    /// Receive queues that are open.
    #[serde(default)]
    pub rx_queues: u16,
    /// By what the device spreads flows over its queues (`ip,tcp,udp`), if it does.
    #[serde(default)]
    pub rss: Option<String>,
    /// Which rules the device applies by itself (`flows,marks,vlans,labels`), if any.
    #[serde(default)]
    pub offload: Option<String>,
    /// How many buckets of flows each worker has, while the workers that receive give flows to others; else empty.
    #[serde(default)]
    pub spread: Vec<u32>,
    /// Its MAC address.
    pub mac: String,
    /// What is wanted of it.
    pub admin: AdminState,
    /// What it can do.
    pub link: LinkState,
    /// Bits a second.
    #[serde(default)]
    pub speed_bps: Option<u64>,
    /// The longest payload of a frame, bytes.
    pub mtu: u32,
    /// Received.
    pub rx: Counters,
    /// Sent.
    pub tx: Counters,
    /// What its policer does and counted; `null` if it has none.
    #[serde(default)]
    pub policer: Option<Policer>,
    /// Filled in by the server, which samples every second; `null` in the first.
    #[serde(default)]
    pub rates: Option<Rates>,
}

/// What the policer of a port does and counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Policer {
    /// `srtcm` (RFC 2697), `trtcm` (RFC 2698) or `trtcm-4115` (RFC 4115).
    pub kind: String,
    /// The committed rate, bits a second.
    pub cir_bps: u64,
    /// The peak rate, or the excess rate; `null` where there is but one.
    #[serde(default)]
    pub second_bps: Option<u64>,
    /// Packets within the committed rate.
    pub green: Colored,
    /// Packets above it.
    pub yellow: Colored,
    /// Packets above all rates.
    pub red: Colored,
}

/// What a policer does with packets of a color, and how many there were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Colored {
    /// `pass`, `mark` or `drop`.
    pub action: String,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One address that the bridge learned (output to NORMAL, and fail-standalone).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct MacEntry {
    /// The VLAN; 0 for untagged.
    pub vlan: u16,
    /// The address.
    pub mac: String,
    /// The OpenFlow number of the port behind which it was seen.
    pub port: u32,
    /// Seconds since it was last seen.
    pub age_seconds: f64,
}
