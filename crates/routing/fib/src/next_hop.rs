//! A next hop: the interface, the MAC addresses and the MTU of packets that leave by it, in one cache line.
//!
//! The writer changes a next hop in place while workers read it. Fields that must agree share a 64-bit word, so that a
//! reader never sees half a MAC address:
//!
//! ```text
//!         63                                    16 15                    0
//! word 0 | MAC address of the neighbour           | interface             |
//! word 1 | MAC address of the interface           | MTU, bytes            |
//! word 2 | unused                          | family (8..16) | kind (0..8) |
//! word 3 | gateway, high 64 bits                                          |
//! word 4 | gateway, low 64 bits                                           |
//! word 5 | used since the last question: 0 or 1                           |
//! word 6, 7: unused
//! ```
//!
//! The interface, the gateway and the family of a next hop never change; its MAC addresses, MTU and kind do. The kind is
//! written last, and read first.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;

/// The treatment of a packet that takes a next hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NextHopKind {
    /// The packet leaves by the interface, to the neighbour's MAC address.
    Forward = 1,
    /// The neighbour's MAC address is not known: the kernel has to ask for it. Without a gateway, the neighbour is the
    /// packet's destination.
    Glean = 2,
    /// The packet is for this machine.
    Local = 3,
    /// The packet is dropped in silence.
    Blackhole = 4,
    /// The packet is dropped, and its source gets "host unreachable".
    Unreachable = 5,
    /// The packet is dropped, and its source gets "administratively prohibited".
    Prohibit = 6,
    /// The packet is dropped as if no prefix covered it, and its source gets "network unreachable".
    NoRoute = 7,
}

impl NextHopKind {
    /// Returns the kind of a number; unknown numbers drop the packet in silence.
    #[inline]
    fn of_number(number: u8) -> NextHopKind {
        match number {
            1 => NextHopKind::Forward,
            2 => NextHopKind::Glean,
            3 => NextHopKind::Local,
            5 => NextHopKind::Unreachable,
            6 => NextHopKind::Prohibit,
            7 => NextHopKind::NoRoute,
            _ => NextHopKind::Blackhole,
        }
    }
}

/// The values of a next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHopSpec {
    pub kind: NextHopKind,
    /// The router's index of the egress interface; of `Local`, that of the interface that has the address, or
    /// [`NextHopSpec::NO_INTERFACE`] if none of the router's has it.
    pub interface: u16,
    /// The neighbour; none if the neighbour is the packet's destination.
    pub gateway: Option<IpAddr>,
    /// The destination MAC address of packets; zero unless `Forward`.
    pub destination: Mac,
    /// The source MAC address of packets: that of the interface.
    pub source: Mac,
    /// The MTU of IP packets, in bytes.
    pub mtu: u16,
}

impl NextHopSpec {
    /// The interface of next hops that have none: an address of the loopback interface, a blackhole.
    pub const NO_INTERFACE: u16 = u16::MAX;

    /// Returns a next hop without interface.
    pub const fn without_interface(kind: NextHopKind) -> NextHopSpec {
        NextHopSpec {
            kind,
            interface: Self::NO_INTERFACE,
            gateway: None,
            destination: Mac::ZERO,
            source: Mac::ZERO,
            mtu: u16::MAX,
        }
    }
}

/// A next hop as workers read it: one cache line of 64 bytes.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct NextHop {
    words: [AtomicU64; 8],
}

impl NextHop {
    /// Returns what happens to packets. Read it before the other fields.
    #[inline]
    pub fn kind(&self) -> NextHopKind {
        NextHopKind::of_number(self.words[2].load(Acquire) as u8)
    }

    /// Returns the egress interface and the MAC address of the neighbour, as one value.
    #[inline]
    pub fn neighbour(&self) -> (u16, Mac) {
        let word = self.words[0].load(Relaxed);
        (word as u16, Mac::from_u64(word >> 16))
    }

    /// Returns the router's index of the egress interface.
    #[inline]
    pub fn interface(&self) -> u16 {
        self.words[0].load(Relaxed) as u16
    }

    /// Returns the destination MAC address of packets.
    #[inline]
    pub fn destination(&self) -> Mac {
        Mac::from_u64(self.words[0].load(Relaxed) >> 16)
    }

    /// Returns the source MAC address of packets.
    #[inline]
    pub fn source(&self) -> Mac {
        Mac::from_u64(self.words[1].load(Relaxed) >> 16)
    }

    /// Returns the MTU of IP packets, in bytes.
    #[inline]
    pub fn mtu(&self) -> u16 {
        self.words[1].load(Relaxed) as u16
    }

    /// Returns false if the neighbour is the packet's destination.
    #[inline]
    pub fn has_gateway(&self) -> bool {
        self.words[2].load(Relaxed) >> 8 & 0xff != 0
    }

    /// Returns the neighbour's address; none if the neighbour is the packet's destination.
    #[inline]
    pub fn gateway(&self) -> Option<IpAddr> {
        let high = self.words[3].load(Relaxed);
        let low = self.words[4].load(Relaxed);
        match self.words[2].load(Relaxed) >> 8 & 0xff {
            4 => Some(IpAddr::V4(Ipv4Addr::from_bits(low as u32))),
            6 => Some(IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(high) << 64 | u128::from(low),
            ))),
            _ => None,
        }
    }

    /// Notes that a packet took this next hop. Only the first packet after [`NextHop::take_used`] writes.
    #[inline]
    pub fn mark_used(&self) {
        if self.words[5].load(Relaxed) == 0 {
            self.words[5].store(1, Relaxed);
        }
    }

    /// Returns true if a packet took this next hop since the last call.
    pub fn take_used(&self) -> bool {
        self.words[5].swap(0, Relaxed) != 0
    }

    /// Returns all values.
    pub fn spec(&self) -> NextHopSpec {
        let kind = self.kind();
        let (interface, destination) = self.neighbour();
        NextHopSpec {
            kind,
            interface,
            gateway: self.gateway(),
            destination,
            source: self.source(),
            mtu: self.mtu(),
        }
    }

    /// Replaces the values. Of a next hop that workers can reach, only MAC addresses, MTU and kind may change.
    pub(crate) fn store(&self, spec: &NextHopSpec) {
        let (family, gateway) = match spec.gateway {
            None => (0, 0),
            Some(IpAddr::V4(address)) => (4, u128::from(address.to_bits())),
            Some(IpAddr::V6(address)) => (6, address.to_bits()),
        };
        self.words[0].store(
            spec.destination.to_u64() << 16 | u64::from(spec.interface),
            Relaxed,
        );
        self.words[1].store(spec.source.to_u64() << 16 | u64::from(spec.mtu), Relaxed);
        self.words[3].store((gateway >> 64) as u64, Relaxed);
        self.words[4].store(gateway as u64, Relaxed);
        self.words[2].store(family << 8 | spec.kind as u64, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_hop_is_one_cache_line_and_returns_what_was_stored() {
        assert_eq!(size_of::<NextHop>(), 64);
        let line = NextHop::default();
        assert_eq!(line.kind(), NextHopKind::Blackhole);
        for gateway in [
            None,
            Some("10.0.0.1".parse().unwrap()),
            Some("2001:db8::1".parse().unwrap()),
        ] {
            for kind in [
                NextHopKind::Forward,
                NextHopKind::Glean,
                NextHopKind::Local,
                NextHopKind::Blackhole,
                NextHopKind::Unreachable,
                NextHopKind::Prohibit,
                NextHopKind::NoRoute,
            ] {
                let spec = NextHopSpec {
                    kind,
                    interface: 0xfffe,
                    gateway,
                    destination: Mac([2, 3, 4, 5, 6, 255]),
                    source: Mac([254, 1, 2, 3, 4, 5]),
                    mtu: 9000,
                };
                line.store(&spec);
                assert_eq!(line.spec(), spec);
            }
        }
    }

    #[test]
    fn use_is_told_once() {
        let line = NextHop::default();
        assert!(!line.take_used());
        line.mark_used();
        line.mark_used();
        assert!(line.take_used());
        assert!(!line.take_used());
    }
}
