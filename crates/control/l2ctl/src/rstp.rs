//! The Rapid Spanning Tree Protocol (IEEE 802.1D-2004, clause 17), with the Spanning Tree Protocol for neighbours that
//! know no other.
//!
//! A [`Bridge`] takes BPDUs, link changes and the time, and returns [`Action`]s in the order in which the caller must
//! carry them out: a port is discarding before the BPDU that tells a neighbour so leaves.
//!
//! ```text
//!  BPDU ─► receive ─► port information ─► role selection ─► role transitions ─► port states
//!             │        priorities of        root, designated,  proposals and      discarding, learning,
//!             │        each port            alternate, backup  agreements         forwarding
//!             ▼                                                    │                  │
//!    protocol migration, bridge detection (edge)                   ▼                  ▼
//!                                                               transmit      topology change ─► flush
//! ```
//!
//! The machines are those of the standard, with its names (section 17.20 and after), and two guards beside them: a port
//! with BPDU guard is disabled by a BPDU until its link goes down; a port with root guard never becomes the root port
//! (`restrictedRole` of IEEE 802.1Q-2018, section 13.27.64).

mod bpdu;
mod bridge;
mod information;
mod machines;
mod port;
mod roles;
#[cfg(test)]
mod tests;
mod vector;

pub use bpdu::{Bpdu, Flags, PortRole, Times};
pub use bridge::{Action, Bridge, BridgeStatus};
pub use port::{Counters, PortStatus};
pub use vector::{BridgeId, PortId, PriorityVector};

use millrace_types::{Duration, Mac};

/// The time that a port speaks one version before it listens for the other (IEEE 802.1D-2004, table 17-1).
pub(crate) const MIGRATE_TIME: Duration = Duration::from_secs(3);

/// The protocol that a bridge begins with (`ForceVersion`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// STP only.
    Stp,
    /// RSTP, and STP where a neighbour sends STP.
    Rstp,
}

/// The settings of a bridge. The times must satisfy 2 × (forward delay − 1 s) ≥ max age ≥ 2 × (hello time + 1 s).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The address of the bridge.
    pub address: Mac,
    /// The priority, a multiple of 4096 unless the version is STP; lower is better.
    pub priority: u16,
    pub version: Version,
    /// The time between two BPDUs of a designated port: 2 s in RSTP.
    pub hello_time_s: u8,
    /// The age at which information of the root expires, 6 to 40 s. It also bounds the diameter: each hop counts as 1 s.
    pub max_age_s: u8,
    /// The time that a port stays discarding and learning without agreement, 4 to 30 s.
    pub forward_delay_s: u8,
    /// BPDUs that a port sends in one second at most, 1 to 10.
    pub tx_hold_count: u8,
}

impl Settings {
    /// Returns the defaults of the standard for a bridge with this address.
    pub const fn new(address: Mac) -> Settings {
        Settings {
            address,
            priority: 0x8000,
            version: Version::Rstp,
            hello_time_s: 2,
            max_age_s: 20,
            forward_delay_s: 15,
            tx_hold_count: 6,
        }
    }
}

/// The settings of a port: priority, cost, guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// The priority, a multiple of 16 below 256; lower is better.
    pub priority: u8,
    /// The path cost, 1 to 200,000,000; `None` derives it from the speed.
    pub path_cost: Option<u32>,
    /// The decision if the port leads to hosts.
    pub edge: Edge,
    /// A BPDU disables the port until its link goes down.
    pub bpdu_guard: bool,
    /// The port never becomes the root port.
    pub root_guard: bool,
    /// The link has two ends; `None` follows the device: full duplex has.
    pub point_to_point: Option<bool>,
    /// The source address of the port's BPDUs.
    pub mac: Mac,
}

impl PortSettings {
    /// Returns the defaults of the standard for a port with this address.
    pub const fn new(mac: Mac) -> PortSettings {
        PortSettings {
            priority: 128,
            path_cost: None,
            edge: Edge::Auto,
            bpdu_guard: false,
            root_guard: false,
            point_to_point: None,
            mac,
        }
    }
}

/// The decision if a port leads to hosts and forwards at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Edge {
    /// The port is not an edge port (`AdminEdge` and `AutoEdge` are false).
    No,
    /// The port is an edge port until a BPDU arrives (`AdminEdge`).
    Yes,
    /// The port becomes an edge port after 3 s in which it proposed and heard no BPDU (`AutoEdge`).
    Auto,
}

/// A link of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// The speed in Mb/s; 0 if the device reports none.
    pub mbps: u32,
    /// True if the link is in full duplex, and thus has two ends.
    pub is_full_duplex: bool,
}

impl Link {
    /// Returns the recommended path cost (IEEE 802.1D-2004, table 17-3): 20,000,000 Mb/s divided by the speed. A device
    /// without a speed counts as one with 1 Gb/s.
    pub fn path_cost(self) -> u32 {
        let mbps = if self.mbps == 0 { 1_000 } else { self.mbps };
        (20_000_000 / mbps).clamp(1, MAX_PATH_COST)
    }
}

/// The largest path cost of a port.
pub const MAX_PATH_COST: u32 = 200_000_000;

/// The state of a port (IEEE 802.1D-2004, section 17.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortState {
    /// Frames are dropped; no addresses are learned.
    Discarding,
    /// Frames are dropped; addresses are learned.
    Learning,
    /// Frames are forwarded.
    Forwarding,
}

/// The role of a port (IEEE 802.1D-2004, section 17.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The port has no link, or BPDU guard disabled it.
    Disabled,
    /// The port leads to the root bridge.
    Root,
    /// The port forwards frames between its link and the root.
    Designated,
    /// The port is another way to the root.
    Alternate,
    /// The link has another designated port of this bridge.
    Backup,
}
