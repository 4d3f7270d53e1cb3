//! The Link Layer Discovery Protocol (IEEE 802.1AB-2016): what this system tells its neighbours, and what it hears of
//! them.
//!
//! ```text
//!  local system, ports ──► transmit machine ──► LLDPDU each 30 s; each second while a neighbour is new
//!                          credits, shutdown
//!  LLDPDU ──► receive machine ──► neighbours of the port, until their time to live ends
//! ```
//!
//! Optional TLVs: those of IEEE 802.1AB, port VLAN and VLAN names of IEEE 802.1Q-2018 (annex D), maximum frame size and
//! link aggregation of IEEE 802.3-2018 (annex 79). TLVs of others are counted. A port remembers [`MAX_NEIGHBOURS`]
//! neighbours, and of each [`MAX_ADDRESSES`] management addresses and [`MAX_VLANS`] VLANs.

mod agent;
mod id;
mod pdu;
#[cfg(test)]
mod tests;

pub use agent::{Agent, Counters, Neighbour, PortSettings, Settings};
pub use id::{ChassisId, PortId};
pub use pdu::{Aggregation, Capabilities, Lldpdu, LldpduError, ManagementAddress, NamedVlan};

/// Neighbours that a port remembers at most; a shared segment without bridges seldom has more.
pub const MAX_NEIGHBOURS: usize = 16;
/// Management addresses of an LLDPDU that are read at most.
pub const MAX_ADDRESSES: usize = 8;
/// VLAN names of an LLDPDU that are read at most.
pub const MAX_VLANS: usize = 64;
/// Size of an LLDPDU that is read at most, in bytes: that of a jumbo frame.
pub const MAX_SIZE: usize = 9216;
