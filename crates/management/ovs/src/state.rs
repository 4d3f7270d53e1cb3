//! The state of the running switch, as far as a database shows it.

use std::collections::BTreeMap;

/// The state of the switch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// The version of Millrace.
    pub version: String,
    /// True if the switch runs with DPDK.
    pub has_dpdk: bool,
    pub dpdk_version: Option<String>,
    /// The bridges by name.
    pub bridges: BTreeMap<String, BridgeState>,
}

/// The ports and connections of a bridge.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BridgeState {
    /// The datapath ID, 16 hex digits.
    pub dpid: String,
    /// The ports that run, by name.
    pub ports: BTreeMap<String, PortState>,
    /// The reasons why ports do not run, by name.
    pub problems: BTreeMap<String, String>,
    /// The connections with controllers.
    pub channels: Vec<ChannelState>,
}

/// A port that runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortState {
    pub mac: String,
    /// False for `OFPPC_PORT_DOWN`, or if the interface of the kernel is down.
    pub is_up: bool,
    pub has_link: bool,
    /// The speed in bit/s.
    pub speed: Option<u64>,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The index of the kernel's interface.
    pub ifindex: Option<u32>,
    /// The driver of the device.
    pub driver: Option<String>,
    /// The number of times that the link changed.
    pub link_resets: u64,
    /// The counters of the port, by the names that Open vSwitch gives them.
    pub statistics: BTreeMap<&'static str, i64>,
}

/// The state of a connection with a controller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChannelState {
    /// The target, as the model prints it.
    pub target: String,
    pub is_connected: bool,
    /// `master`, `slave` or `other`.
    pub role: Option<&'static str>,
    /// The state of the connection, as Open vSwitch names it: `ACTIVE`, `BACKOFF`, `CONNECTING`, `IDLE`.
    pub state: &'static str,
    /// The time in the state, in seconds.
    pub since_s: u64,
    pub last_error: Option<String>,
}
