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
    /// The LAGs that run, by the name of their port. Their members are among `ports`, too.
    pub lags: BTreeMap<String, LagState>,
}

/// A LAG that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LagState {
    /// `active`, `passive` or `on`.
    pub mode: String,
    /// True if the partner is asked for LACPDUs each second.
    pub is_fast: bool,
    /// True if one member carries packets while no member hears a partner.
    pub has_fallback: bool,
    /// This system in LACP.
    pub system: String,
    pub system_priority: u16,
    pub members: Vec<LagMemberState>,
}

/// A device of a LAG, and what LACP says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LagMemberState {
    pub name: String,
    pub mac: String,
    /// True if packets of the LAG leave by the member.
    pub is_enabled: bool,
    /// LACP at the member; `None` without LACP, or if the device is not open.
    pub lacp: Option<LacpState>,
}

/// The state of LACP at a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LacpState {
    /// The state of the receive machine: `current`, `expired`, `defaulted` or `port-disabled`.
    pub receive: String,
    /// True if the selection logic chose the member.
    pub is_selected: bool,
    pub actor: Participant,
    /// The other side; `None` while it is unknown.
    pub partner: Option<Participant>,
}

/// One side of LACP at a link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Participant {
    pub system: String,
    pub system_priority: u16,
    pub key: u16,
    pub port: u16,
    pub port_priority: u16,
    /// The bits of the state that are set, by name.
    pub state: Vec<String>,
}

impl LagState {
    /// Returns the first member that carries packets.
    pub fn active_member(&self) -> Option<&LagMemberState> {
        self.members.iter().find(|member| member.is_enabled)
    }
}

/// A MAC address that a bridge learned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MacState {
    /// The OpenFlow number of the port.
    pub port: u32,
    /// The VLAN; 0 for untagged packets.
    pub vlan: u16,
    pub mac: String,
    /// The time since the address was last seen, in seconds.
    pub age_s: u64,
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
    /// Of the member of a LAG with LACP, whether it hears its partner.
    pub lacp_current: Option<bool>,
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
