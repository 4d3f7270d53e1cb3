//! The state of the switch that others follow, and its events.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use thiserror::Error;

/// A kind of state that others follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// The newest revision, with the key `head`: a `Revision`.
    Revisions,
    /// The revision that waits for a confirmation, with the key `pending`; absent if none waits: a `ConfirmPending`.
    Confirmation,
    /// Ports, by `BRIDGE/PORT`: a `PortState`.
    Ports,
    /// Links of ports, by `BRIDGE/PORT`, and of members of LAGs, by `BRIDGE/PORT/MEMBER`: a `Link`.
    Links,
    /// Neighbours of tunnels, by `BRIDGE/PORT/ADDRESS`: a `TunnelNeighbour`; and of the router, by
    /// `vrf:VRF/INTERFACE/ADDRESS`: a `RouterNeighbour`.
    Neighbours,
    /// Neighbours that LLDP found, by `BRIDGE/PORT`, and by `BRIDGE/PORT/MEMBER` of a LAG: an `LldpState`.
    Lldp,
    /// Parts that do not run as configured, by subject: a list of `StatusProblem`.
    Shortfalls,
}

/// The reason why a text is no kind of state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a kind of state: expected one of {names}", names = StateKind::ALL.map(StateKind::name).join(", "))]
pub struct StateKindError(String);

impl StateKind {
    /// All kinds.
    pub const ALL: [StateKind; 7] = [
        StateKind::Revisions,
        StateKind::Confirmation,
        StateKind::Ports,
        StateKind::Links,
        StateKind::Neighbours,
        StateKind::Lldp,
        StateKind::Shortfalls,
    ];

    /// Returns the name, which is also the name of its events.
    pub const fn name(self) -> &'static str {
        match self {
            StateKind::Revisions => "revisions",
            StateKind::Confirmation => "confirmation",
            StateKind::Ports => "ports",
            StateKind::Links => "links",
            StateKind::Neighbours => "neighbours",
            StateKind::Lldp => "lldp",
            StateKind::Shortfalls => "shortfalls",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StateKind {
    type Err = StateKindError;

    fn from_str(text: &str) -> Result<StateKind, StateKindError> {
        let found = StateKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| StateKindError(text.chars().take(64).collect()))
    }
}

/// The present state, and the place in the stream of events from which it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct State {
    /// The place in the stream: events after it change this state. A restart of the daemon ends its validity.
    pub cursor: String,
    /// The values by kind and key.
    #[cfg_attr(feature = "server", schema(value_type = Object))]
    pub state: BTreeMap<StateKind, BTreeMap<String, Json>>,
}

/// The data of an event: the new value of one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct StateEvent {
    /// The key.
    pub key: String,
    /// The whole new value; `null` if the key is gone.
    #[serde(default)]
    #[cfg_attr(feature = "server", schema(value_type = Json))]
    pub value: Option<Json>,
}

/// The data of the event `reset`: the events before the cursor are not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct StateReset {
    /// The place in the stream from which events follow.
    pub cursor: String,
    /// The cause, and the next step.
    pub detail: String,
}

/// A port of a bridge, without its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct PortState {
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the port.
    pub port: String,
    /// The OpenFlow number.
    pub number: u32,
    /// The device.
    pub device: String,
    /// The driver of the device.
    pub driver: String,
    /// The MAC address.
    pub mac: String,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The administrative state.
    pub admin: super::AdminState,
}

/// The link of a port, or of a member of a LAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Link {
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the port, or of the member.
    pub port: String,
    /// The port of the LAG of which this is a member; `null` for a port.
    #[serde(default)]
    pub lag: Option<String>,
    /// The operational state.
    pub link: super::LinkState,
    /// True if fast-failover groups may use the port, or if the member sends packets of the LAG.
    pub live: bool,
    /// True while flap damping holds the port down.
    pub damped: bool,
    /// The link speed in bit/s; `null` if unknown.
    #[serde(default)]
    pub speed_bps: Option<u64>,
}

/// A neighbour on the underlay link of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct TunnelNeighbour {
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the port.
    pub port: String,
    /// The IP address.
    pub address: String,
    /// The MAC address.
    pub mac: String,
}

/// A neighbour of the router: an address on the link of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RouterNeighbour {
    /// The name of the VRF.
    pub vrf: String,
    /// The name of the interface.
    pub interface: String,
    /// The IP address.
    pub address: String,
    /// The MAC address.
    pub mac: String,
}

/// The neighbours that a port, or a member of a LAG, heard by LLDP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct LldpState {
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the port, or of the member.
    pub port: String,
    /// The port of the LAG of which this is a member; `null` for a port.
    #[serde(default)]
    pub lag: Option<String>,
    /// The neighbours, 16 at most; `expires_in_s` is that of the time of the event.
    pub neighbours: Vec<super::LldpNeighbour>,
}
