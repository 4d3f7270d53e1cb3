//! The neighbours that the kernel is to ask for.

use core::net::IpAddr;

/// A neighbour whose MAC address packets wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Glean {
    /// The index of the egress interface.
    pub interface: u16,
    pub neighbour: IpAddr,
}
