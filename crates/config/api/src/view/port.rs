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
    /// The offload to a device that classifies packets; `null` if the port has none.
    #[serde(default)]
    pub offload_status: Option<super::Offload>,
    /// BFD, continuity checks and flap damping with their state; `null` if the port has none of them.
    #[serde(default)]
    pub oam: Option<Oam>,
    /// LLDP at the port; `null` if it has none.
    #[serde(default)]
    pub lldp: Option<Lldp>,
    /// RSTP at the port; `null` if it takes no part.
    #[serde(default)]
    pub rstp: Option<RstpPort>,
    /// The rates, which the server samples every second; `null` in the first second. The first answer after a minute in which
    /// nobody asked for ports has those of the last five seconds.
    #[serde(default)]
    pub rates: Option<Rates>,
}

/// The state of RSTP at a port (IEEE 802.1D).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RstpPort {
    /// The role: `disabled`, `root`, `designated`, `alternate` or `backup`.
    pub role: String,
    /// The state: `discarding`, `learning` or `forwarding`. A port that does not forward has `OFPPS_BLOCKED`.
    pub state: String,
    /// The cost of the path over the port.
    pub path_cost: u32,
    /// True if the port leads to hosts and forwards at once.
    pub edge: bool,
    /// The protocol that the port sends: `rstp` or `stp`.
    pub sends: String,
    /// True if BPDU guard disabled the port.
    pub bpdu_guarded: bool,
    /// True if root guard blocks the port.
    pub root_guarded: bool,
    /// This bridge, as `PRIORITY.ADDRESS`.
    pub bridge: String,
    /// The root bridge.
    pub root: String,
    /// The cost of the path from this bridge to the root.
    pub root_path_cost: u32,
    /// The bridge whose port is the designated port of the link.
    pub designated_bridge: String,
    /// The number of the designated port.
    pub designated_port: u16,
    /// The number of BPDUs received.
    pub rx_bpdus: u64,
    /// The number of malformed BPDUs.
    pub rx_discarded: u64,
    /// The number of BPDUs sent.
    pub tx_bpdus: u64,
    /// The number of changes to forwarding.
    pub forward_transitions: u64,
    /// The number of topology changes that neighbours reported.
    pub topology_changes: u64,
}

/// The state of LLDP at a port (IEEE 802.1AB).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Lldp {
    /// The neighbours, 16 at most.
    pub neighbours: Vec<LldpNeighbour>,
    /// The number of LLDPDUs received.
    pub rx_frames: u64,
    /// The number of malformed LLDPDUs.
    pub rx_discarded: u64,
    /// The number of LLDPDUs of neighbours for which the port has no room.
    pub rx_too_many_neighbours: u64,
    /// The number of TLVs that are unknown or malformed.
    pub rx_unread_tlvs: u64,
    /// The number of neighbours whose time to live ended.
    pub aged_out: u64,
    /// The number of LLDPDUs sent.
    pub tx_frames: u64,
}

/// A neighbour of a port, as it describes itself by LLDP. Its texts are untrusted; control characters are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct LldpNeighbour {
    /// The source address of the LLDPDUs.
    pub mac: String,
    /// The chassis: a MAC address, an IP address or a name.
    pub chassis: String,
    /// The port of the neighbour: a MAC address, an IP address or a name.
    pub port: String,
    /// The description of the port; `null` if it sends none.
    #[serde(default)]
    pub port_description: Option<String>,
    /// The name of the system; `null` if it sends none.
    #[serde(default)]
    pub system_name: Option<String>,
    /// The description of the system; `null` if it sends none.
    #[serde(default)]
    pub system_description: Option<String>,
    /// The enabled capabilities, such as `bridge` and `router`.
    pub capabilities: Vec<String>,
    /// The management addresses.
    pub management: Vec<String>,
    /// The VLAN of untagged frames; `null` if it sends none.
    #[serde(default)]
    pub port_vlan: Option<u16>,
    /// The maximum frame size in bytes; `null` if it sends none.
    #[serde(default)]
    pub max_frame_size: Option<u16>,
    /// The remaining time in seconds for which the information is valid.
    pub expires_in_s: u64,
}

/// The state of OAM of a port (operations, administration and maintenance).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Oam {
    /// True if BFD and continuity checks let the port be live for fast-failover groups.
    pub live: bool,
    /// The remaining wait-to-restore time in seconds, until a recovered port is live; `null` if the port does
    /// not wait.
    #[serde(default)]
    pub restores_in_s: Option<f64>,
    /// The BFD session; `null` without one.
    #[serde(default)]
    pub bfd: Option<BfdSession>,
    /// The maintenance end point; `null` without one.
    #[serde(default)]
    pub ccm: Option<ContinuityCheck>,
    /// Flap damping; `null` without it.
    #[serde(default)]
    pub damping: Option<Damping>,
}

/// A BFD session (RFC 5880).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct BfdSession {
    /// The state: `admin_down`, `down`, `init` or `up`.
    pub state: String,
    /// The state of the peer.
    pub remote_state: String,
    /// The reason of the last change to down: `none`, `detection_time_expired` or `neighbor_signaled_session_down`.
    pub diagnostic: String,
    /// The discriminator of this side.
    pub local_discriminator: u32,
    /// The discriminator of the peer; 0 while it is not known.
    pub remote_discriminator: u32,
    /// The interval of sent packets in milliseconds; `null` if the peer wants none.
    #[serde(default)]
    pub tx_interval_ms: Option<f64>,
    /// The time without packets after which the session ends, in milliseconds.
    pub detection_time_ms: f64,
    /// The number of packets received and used.
    pub rx_packets: u64,
    /// The number of packets discarded.
    pub rx_discarded: u64,
    /// The number of packets sent.
    pub tx_packets: u64,
    /// The number of changes between up and not up.
    pub flaps: u64,
}

/// A maintenance end point (IEEE 802.1ag).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct ContinuityCheck {
    /// True if messages of the other end arrive without defect.
    pub up: bool,
    /// True if the other end reports a defect.
    pub rdi: bool,
    /// The number of the other end; `null` before its first message.
    #[serde(default)]
    pub remote_mep: Option<u16>,
    /// The number of messages received.
    pub rx_messages: u64,
    /// The number of messages that are malformed or of another level.
    pub rx_discarded: u64,
    /// The number of messages of another association, of an unexpected end, or with another interval.
    pub rx_defects: u64,
    /// The number of messages sent.
    pub tx_messages: u64,
    /// The number of changes between up and not up.
    pub flaps: u64,
}

/// The flap damping of a port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Damping {
    /// The remaining time in seconds for which the port counts as down; `null` if the port is not damped.
    #[serde(default)]
    pub remaining_s: Option<f64>,
    /// The number of times that the port was damped.
    pub times: u64,
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
