//! DPDK's numbers of ports.

use std::fmt;

/// DPDK's port number, which may be assigned to another device after a detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub(crate) u16);

impl PortId {
    /// A number that no port has, as `RTE_MBUF_PORT_INVALID`: DPDK refuses it with ENODEV.
    pub(crate) const DETACHED: Self = Self(u16::MAX);

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
