//! The state of the running switch, as far as a database shows it.

use std::collections::BTreeMap;
use std::net::IpAddr;

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
    /// The mirrors, by name.
    pub mirrors: BTreeMap<String, MirrorState>,
    /// The spanning tree, if the bridge takes part in one.
    pub tree: Option<TreeState>,
}

/// An identifier of a bridge in a spanning tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeBridge {
    pub priority: u16,
    /// The MAC address, 12 hex digits with colons.
    pub address: String,
}

/// The times of a spanning tree, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeTimes {
    pub hello_s: u16,
    pub max_age_s: u16,
    pub forward_delay_s: u16,
}

/// The part of a bridge in a spanning tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeState {
    /// True if the bridge speaks STP only.
    pub is_stp: bool,
    pub bridge: TreeBridge,
    pub root: TreeBridge,
    pub root_path_cost: u32,
    /// The bridge and the port behind the root port, and the root port; of the root, itself and zeros.
    pub designated: TreeBridge,
    pub designated_port: u16,
    pub bridge_port: u16,
    /// The times that the root determines, and those of this bridge.
    pub root_times: TreeTimes,
    pub own_times: TreeTimes,
    /// The ports that take part, by name.
    pub ports: BTreeMap<String, TreePort>,
}

/// The part of a port in a spanning tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreePort {
    /// The identifier: the priority in the high byte, and the number.
    pub id: u16,
    /// `disabled`, `root`, `designated`, `alternate` or `backup`.
    pub role: &'static str,
    /// `discarding`, `learning` or `forwarding`.
    pub state: &'static str,
    pub path_cost: u32,
    /// The bridge and the port that lead to the root from the link of the port, and the cost of their path.
    pub designated: TreeBridge,
    pub designated_port: u16,
    pub designated_path_cost: u32,
    /// BPDUs that were sent, received, and received in vain.
    pub sent: u64,
    pub received: u64,
    pub discarded: u64,
    /// The time in the state, and the time since the port takes part, in seconds.
    pub state_s: u64,
    pub uptime_s: u64,
}

impl TreePort {
    /// Returns the state in the words of STP (IEEE 802.1D-1998).
    pub(crate) fn stp_state(&self) -> &'static str {
        match (self.role, self.state) {
            ("disabled", _) => "disabled",
            ("root" | "designated", "discarding") => "listening",
            (_, "discarding") => "blocking",
            (_, state) => state,
        }
    }

    /// Returns the role in the words of STP, which has no backup ports.
    pub(crate) fn stp_role(&self) -> &'static str {
        match self.role {
            "backup" => "alternate",
            role => role,
        }
    }
}

/// Returns a word with a capital, as Open vSwitch prints those of RSTP.
pub(crate) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

/// The counters of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorState {
    /// Packets that were copied.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
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
    /// True if the address was not learned, and stays.
    pub is_static: bool,
    /// The time since the address was last seen, in seconds.
    pub age_s: u64,
}

/// A port that runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortState {
    /// The OpenFlow number; of the member of a LAG, that of the LAG.
    pub number: u32,
    /// The type of the device, as `dpif/show` names it.
    pub kind: &'static str,
    /// The port at the other end, of a patch port.
    pub peer: Option<String>,
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
    /// The way of the packets of a tunnel that the machine routes.
    pub tunnel: Option<TunnelState>,
}

/// The routes and neighbours of the machine, as far as its tunnels use them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostState {
    pub routes: Vec<HostRoute>,
    /// IP address, MAC address and interface of each neighbour.
    pub neighbours: Vec<(IpAddr, String, String)>,
}

/// A route of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoute {
    /// The network.
    pub address: IpAddr,
    pub prefix_len: u8,
    pub interface: String,
    pub gateway: Option<IpAddr>,
    pub source: Option<IpAddr>,
    /// True for an address of the machine.
    pub is_local: bool,
}

/// The way of the packets of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TunnelState {
    /// The tunnels of one kind and UDP port, as `tnl/ports/show` names them: `vxlan_sys_4789`, `gre_sys`.
    pub listener: String,
    /// The interface of the kernel by which they leave.
    pub egress: Option<TunnelEgress>,
    /// The reason why there is no way.
    pub problem: Option<String>,
}

/// An interface of the kernel by which packets of a tunnel leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEgress {
    pub interface: String,
    pub has_carrier: bool,
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
