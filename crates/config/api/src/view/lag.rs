//! Link aggregation groups as REST shows them.

use serde::{Deserialize, Serialize};

use super::port::{Counters, LinkState, Lldp};

/// A LAG with its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Lag {
    /// The name of the LAG.
    pub name: String,
    /// The bridge.
    pub bridge: String,
    /// The name of the port.
    pub port: String,
    /// The OpenFlow number of the port.
    pub number: u32,
    /// The mode: `active`, `passive` or `on`.
    pub mode: String,
    /// The rate that the partner is asked for: `slow` or `fast`.
    pub rate: String,
    /// The number of usable members below which the LAG is down.
    pub min_links: u16,
    /// The behaviour without a partner: `none` or `individual`.
    pub fallback: String,
    /// The priority of this system in LACP.
    pub system_priority: u16,
    /// The address of this system in LACP.
    pub system: String,
    /// The MAC address of the port.
    pub mac: String,
    /// The state: up while a member sends packets of the LAG.
    pub link: LinkState,
    /// The speed of the members that send, together, in bit/s; `null` if unknown.
    #[serde(default)]
    pub speed_bps: Option<u64>,
    /// The counters of received packets: those of all members, and of members that were removed.
    pub rx: Counters,
    /// The counters of sent packets.
    pub tx: Counters,
    /// The members.
    pub members: Vec<LagMember>,
}

/// A member of a LAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct LagMember {
    /// The name.
    pub name: String,
    /// The number in LACPDUs.
    pub number: u32,
    /// The device.
    pub device: String,
    /// The link.
    pub link: LinkState,
    /// The speed in bit/s; `null` if unknown.
    #[serde(default)]
    pub speed_bps: Option<u64>,
    /// True if received packets belong to the LAG.
    pub collecting: bool,
    /// True if packets of the LAG are sent by this member.
    pub distributing: bool,
    /// The time in seconds since `collecting` or `distributing` changed; `null` if the device is not open.
    #[serde(default)]
    pub since_s: Option<u64>,
    /// The state of LACP; `null` with the mode `on`, or if the device is not open.
    #[serde(default)]
    pub lacp: Option<Lacp>,
    /// LLDP at the member; `null` if it has none.
    #[serde(default)]
    pub lldp: Option<Lldp>,
    /// The counters of received packets.
    pub rx: Counters,
    /// The counters of sent packets.
    pub tx: Counters,
}

/// The state of LACP at a member (IEEE 802.1AX-2014).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Lacp {
    /// The receive machine: `port-disabled`, `expired`, `defaulted` or `current`.
    pub receive: String,
    /// The mux machine: `detached`, `waiting`, `attached`, `collecting` or `distributing`.
    pub mux: String,
    /// The selection logic: `unselected`, `selected` or `standby`.
    pub selected: String,
    /// This side.
    pub actor: LacpParticipant,
    /// The other side; `null` while it is unknown.
    #[serde(default)]
    pub partner: Option<LacpParticipant>,
    /// The churn state of this side: `none`, `monitor` or `churn`.
    pub actor_churn: String,
    /// The churn state of the partner.
    pub partner_churn: String,
    /// The number of LACPDUs received.
    pub rx_lacpdus: u64,
    /// The number of malformed or unknown frames of slow protocols.
    pub rx_discarded: u64,
    /// The number of LACPDUs sent.
    pub tx_lacpdus: u64,
    /// The number of markers answered.
    pub markers: u64,
    /// The number of changes between distributing and not distributing.
    pub flaps: u64,
}

/// One side of LACP at a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct LacpParticipant {
    /// The priority of the system.
    pub system_priority: u16,
    /// The address of the system.
    pub system: String,
    /// The key.
    pub key: u16,
    /// The priority of the port.
    pub port_priority: u16,
    /// The number of the port.
    pub port: u16,
    /// The bits of the state that are set: `activity`, `timeout` (short), `aggregation`, `synchronization`, `collecting`,
    /// `distributing`, `defaulted`, `expired`.
    pub state: Vec<String>,
}

impl LacpParticipant {
    /// Returns the state as switches print it, one letter for each bit, in the order of the bits: `A` active or `P`
    /// passive, `S` short or `L` long timeout, `G` aggregable or `I` individual, `s+` or `s-` in sync or not, `C`
    /// collecting, `D` distributing, `d` defaulted, `X` expired.
    pub fn letters(&self) -> String {
        let has = |name: &str| self.state.iter().any(|set| set == name);
        let mut letters = String::new();
        for (name, set, clear) in [
            ("activity", "A", "P"),
            ("timeout", "S", "L"),
            ("aggregation", "G", "I"),
            ("synchronization", "s+", "s-"),
            ("collecting", "C", ""),
            ("distributing", "D", ""),
            ("defaulted", "d", ""),
            ("expired", "X", ""),
        ] {
            letters.push_str(if has(name) { set } else { clear });
        }
        letters
    }
}
