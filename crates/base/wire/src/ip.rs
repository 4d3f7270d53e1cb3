//! The common part of IPv4 and IPv6: protocol numbers and the pseudo-header of transport checksums.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;

/// An IP protocol number (IANA "Assigned Internet Protocol Numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IpProto(pub u8);

impl IpProto {
    /// IPv6 hop-by-hop options (RFC 8200).
    pub const HOP_BY_HOP: IpProto = IpProto(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMPV4: IpProto = IpProto(1);
    /// TCP (RFC 9293).
    pub const TCP: IpProto = IpProto(6);
    /// UDP (RFC 768).
    pub const UDP: IpProto = IpProto(17);
    /// IPv6 routing header (RFC 8200).
    pub const ROUTING: IpProto = IpProto(43);
    /// IPv6 fragment header (RFC 8200).
    pub const FRAGMENT: IpProto = IpProto(44);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: IpProto = IpProto(50);
    /// Authentication header (RFC 4302).
    pub const AH: IpProto = IpProto(51);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: IpProto = IpProto(58);
    /// IPv6: nothing follows (RFC 8200).
    pub const NO_NEXT: IpProto = IpProto(59);
    /// IPv6 destination options (RFC 8200).
    pub const DEST_OPTIONS: IpProto = IpProto(60);
    /// SCTP (RFC 9260).
    pub const SCTP: IpProto = IpProto(132);

    const NAMES: [(IpProto, &'static str); 12] = [
        (IpProto::HOP_BY_HOP, "hop-by-hop"),
        (IpProto::ICMPV4, "icmp"),
        (IpProto::TCP, "tcp"),
        (IpProto::UDP, "udp"),
        (IpProto::ROUTING, "ipv6-route"),
        (IpProto::FRAGMENT, "ipv6-frag"),
        (IpProto::ESP, "esp"),
        (IpProto::AH, "ah"),
        (IpProto::ICMPV6, "icmpv6"),
        (IpProto::NO_NEXT, "ipv6-nonxt"),
        (IpProto::DEST_OPTIONS, "ipv6-opts"),
        (IpProto::SCTP, "sctp"),
    ];
}

impl fmt::Display for IpProto {
    /// Writes the name of a known protocol, else the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(proto, _)| proto == self) {
            Some((_, name)) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for IpProto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The addresses that go into a transport checksum (RFC 9293, section 3.1; RFC 8200, section 8.1).
///
/// For a packet with an IPv6 routing header, `dst` is the final destination, not the destination in the fixed
/// header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pseudo {
    /// IPv4.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Final destination address.
        dst: Ipv6Addr,
    },
}

impl Pseudo {
    /// Returns the sum of the pseudo-header for `size` bytes of `proto`. The caller adds the bytes of the
    /// transport.
    #[inline]
    pub fn sum(&self, proto: IpProto, size: usize) -> Sum {
        let addresses = match self {
            Pseudo::V4 { src, dst } => Sum::default().add32(src.to_bits()).add32(dst.to_bits()),
            Pseudo::V6 { src, dst } => Sum::of(&src.octets()).add_bytes(&dst.octets()),
        };
        // 32 bits of length in IPv6 and 16 in IPv4; the sums are the same because no size exceeds 16 bits
        // without a jumbo payload.
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        addresses
            .add16((size >> 16) as u16)
            .add16(size as u16)
            .add16(u16::from(proto.0))
    }
}
