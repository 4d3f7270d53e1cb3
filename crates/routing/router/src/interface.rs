//! The interfaces of the router, and the addresses of each.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use millrace_types::{Mac, PortNo, Vid};

use crate::acl::Acl;
use crate::counters::InterfaceCounters;

/// The way of routed packets into the VLAN of their egress interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EgressMode {
    /// NORMAL forwards them, without the flow tables.
    #[default]
    Straight,
    /// They enter table 0, with the number of the interface as `in_port`.
    Tables(PortNo),
    /// The interface is passive: it is the kernel's own one behind this port, a tap device of the bridge. They enter table 0 as
    /// if the kernel had sent them there. The router receives nothing for it but packets of tunnels, from a
    /// [diversion](crate::RouterHandle::divert).
    Kernel(PortNo),
}

/// An IPv4 address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address4 {
    pub address: Ipv4Addr,
    /// Length of the prefix of the subnet in bits, 0 to 32.
    pub prefix_len: u8,
}

impl Address4 {
    fn mask(self) -> u32 {
        u32::MAX
            .checked_shl(32 - u32::from(self.prefix_len.min(32)))
            .unwrap_or(0)
    }

    /// Returns true if an address is in the subnet.
    pub fn contains(self, other: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ other.to_bits()) & self.mask() == 0
    }

    /// Returns true if an address is a broadcast of the subnet (RFC 919); subnets of 31 and 32 bits have none (RFC 3021).
    pub fn is_broadcast(self, other: Ipv4Addr) -> bool {
        self.prefix_len < 31 && self.contains(other) && other.to_bits() | self.mask() == u32::MAX
    }
}

/// An IPv6 address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address6 {
    pub address: Ipv6Addr,
    /// Length of the prefix of the subnet in bits, 0 to 128.
    pub prefix_len: u8,
}

impl Address6 {
    /// Returns true if an address is in the subnet.
    pub fn contains(self, other: Ipv6Addr) -> bool {
        let mask = u128::MAX
            .checked_shl(128 - u32::from(self.prefix_len.min(128)))
            .unwrap_or(0);
        (self.address.to_bits() ^ other.to_bits()) & mask == 0
    }
}

/// An interface of the router: an address of the router in one VLAN of one bridge.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The index of the interface in the router.
    pub index: u16,
    /// The name of the interface, which is also that of its shadow.
    pub name: Arc<str>,
    /// The index of its VRF in the router.
    pub vrf: u16,
    /// The index of its bridge in the router.
    pub bridge: u16,
    /// The VLAN, zero for untagged frames of a bridge without VLANs.
    pub vid: Vid,
    /// The address from which it sends.
    pub mac: Mac,
    /// Further addresses at which it receives, such as those of VRRP (RFC 9568, section 7.3), in ascending order.
    pub other_macs: Vec<Mac>,
    /// The longest IP packet that it sends, in bytes.
    pub mtu: u16,
    /// True if it receives and sends.
    pub is_up: bool,
    /// The IPv4 addresses, the primary one first.
    pub ipv4: Vec<Address4>,
    /// The IPv6 addresses.
    pub ipv6: Vec<Address6>,
    /// The access list of packets that it receives and the router forwards.
    pub acl_in: Option<Arc<Acl>>,
    /// The access list of packets that the router forwards to it.
    pub acl_out: Option<Arc<Acl>>,
    /// The way of routed packets into its VLAN.
    pub egress: EgressMode,
    /// The counters of each worker, by worker.
    pub counters: Arc<[InterfaceCounters]>,
}

impl Interface {
    /// Returns true if the interface is the kernel's own one behind a port.
    pub fn is_passive(&self) -> bool {
        matches!(self.egress, EgressMode::Kernel(_))
    }

    /// Returns true if the interface receives frames for this address of one host.
    #[inline]
    pub(crate) fn has_mac(&self, mac: Mac) -> bool {
        self.mac == mac || self.other_macs.binary_search(&mac).is_ok()
    }

    /// Returns the source address of errors about packets from `to` that arrived here: the address in the subnet of `to`,
    /// or the primary one (RFC 1812, section 4.3.2.4).
    pub(crate) fn source4(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let near = self.ipv4.iter().find(|own| own.contains(to));
        near.or(self.ipv4.first()).map(|own| own.address)
    }

    /// Returns the source address of errors about packets from `to` that arrived here: the address in the subnet of `to`,
    /// or else the first that is valid beyond the link.
    pub(crate) fn source6(&self, to: Ipv6Addr) -> Option<Ipv6Addr> {
        let near = self.ipv6.iter().find(|own| own.contains(to));
        let global = || self.ipv6.iter().find(|own| !own.address.is_unicast_link_local());
        near.or_else(global).or(self.ipv6.first()).map(|own| own.address)
    }

    /// Returns true if an address is a broadcast of a subnet of the interface.
    #[inline]
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.ipv4.iter().any(|own| own.is_broadcast(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_its_addresses_and_one_broadcast_unless_it_is_a_link_of_two() {
        let own = |prefix_len| Address4 {
            address: [10, 0, 1, 1].into(),
            prefix_len,
        };
        assert!(own(24).contains([10, 0, 1, 200].into()) && !own(24).contains([10, 0, 2, 1].into()));
        assert!(own(24).is_broadcast([10, 0, 1, 255].into()));
        assert!(!own(24).is_broadcast([10, 0, 1, 254].into()));
        assert!(!own(31).is_broadcast([10, 0, 1, 1].into()) && !own(32).is_broadcast([10, 0, 1, 1].into()));
        assert!(own(0).contains([192, 0, 2, 1].into()));
        let own = Address6 {
            address: "2001:db8::1".parse().unwrap(),
            prefix_len: 64,
        };
        assert!(own.contains("2001:db8::9".parse().unwrap()));
        assert!(!own.contains("2001:db8:0:1::9".parse().unwrap()));
    }
}
