//! The headers of all datagrams of one send: built once, and completed for each datagram.
//!
//! ```text
//!  Ethernet  [802.1Q]  IPv4 or IPv6                          UDP
//!  dst src type  tci   … size … identification … checksum …  ports  size  checksum  | payload
//!  ^^^                   ^^^^   ^^^^^^^^^^^^^^   ^^^^^^^^           ^^^^  ^^^^^^^^
//!  set when known        these differ between the datagrams of one send
//! ```
//!
//! The sums of all other fields are computed once, so that a checksum costs the sum of the payload and a few additions
//! (RFC 1624).

use std::net::IpAddr;

use millrace_types::{Mac, Vid};
use millrace_wire::checksum::Sum;
use millrace_wire::ip::Pseudo;
use millrace_wire::{Dscp, Ecn, EtherType, FlowLabel, IpProto, ethernet, ipv4, ipv6, udp, vlan};

/// Hop limit of packets (RFC 1700; IANA "IP Parameters").
pub(crate) const HOP_LIMIT: u8 = 64;
/// Bytes of the longest head: Ethernet, a VLAN tag, IPv6 and UDP.
const HEAD_MAX: usize = ethernet::SIZE + vlan::SIZE + ipv6::SIZE + udp::SIZE;

/// The addresses and ports of a datagram; both addresses have one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) src: (IpAddr, u16),
    pub(crate) dst: (IpAddr, u16),
}

/// The head of datagrams between two ports.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    size: usize,
    /// Offset of the IP header.
    ip: usize,
    /// The sum of the IPv4 header without size, identification and checksum; `None` for IPv6.
    ipv4_sum: Option<Sum>,
    /// The sum of pseudo-header and ports without the sizes.
    udp_sum: Sum,
}

/// Returns the Ethernet header with its VLAN tag, if there is one.
pub(crate) fn link_header(dst: Mac, src: Mac, vlan: Option<Vid>, ether_type: EtherType) -> Vec<u8> {
    let outer = if vlan.is_some() {
        EtherType::VLAN
    } else {
        ether_type
    };
    let mut bytes = ethernet::Repr {
        dst,
        src,
        ether_type: outer,
    }
    .to_bytes()
    .to_vec();
    if let Some(vid) = vlan {
        let tag = vlan::Repr {
            vid,
            pcp: millrace_types::Pcp::default(),
            dei: false,
            ether_type,
        };
        bytes.extend(tag.to_bytes());
    }
    bytes
}

/// Returns the header of an IPv4 packet that must not be fragmented.
pub(crate) fn ipv4_repr(
    src: std::net::Ipv4Addr,
    dst: std::net::Ipv4Addr,
    proto: IpProto,
    size: usize,
) -> ipv4::Repr<'static> {
    ipv4::Repr {
        src,
        dst,
        proto,
        dscp: Dscp::default(),
        ecn: Ecn::default(),
        ttl: HOP_LIMIT,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        options: ipv4::Options::default(),
        payload_size: u16::try_from(size).unwrap_or(u16::MAX),
    }
}

impl Head {
    /// Returns the head of datagrams from `ends.src` to `ends.dst`, without the destination MAC address.
    /// `None` if the addresses have different versions.
    pub(crate) fn new(src: Mac, vlan: Option<Vid>, ends: Ends, label: FlowLabel) -> Option<Head> {
        let (ether_type, ip_header, pseudo) = match (ends.src.0, ends.dst.0) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Vec::with_capacity(ipv4::MIN_SIZE);
                ipv4_repr(src, dst, IpProto::UDP, 0).emit(&mut header);
                // Size and checksum are added for each datagram.
                header[2..4].fill(0);
                header[10..12].fill(0);
                (EtherType::IPV4, header, Pseudo::V4 { src, dst })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = ipv6::Repr {
                    src,
                    dst,
                    next_header: IpProto::UDP,
                    dscp: Dscp::default(),
                    ecn: Ecn::default(),
                    flow_label: label,
                    hop_limit: HOP_LIMIT,
                    payload_size: 0,
                };
                (
                    EtherType::IPV6,
                    header.to_bytes().to_vec(),
                    Pseudo::V6 { src, dst },
                )
            }
            _ => return None,
        };
        let link = link_header(Mac::ZERO, src, vlan, ether_type);
        let ports = [ends.src.1.to_be_bytes(), ends.dst.1.to_be_bytes()].concat();
        let mut bytes = [0; HEAD_MAX];
        let mut size = 0;
        for part in [&link[..], &ip_header, &ports, &[0; 4]] {
            bytes[size..size + part.len()].copy_from_slice(part);
            size += part.len();
        }
        Some(Head {
            bytes,
            size,
            ip: link.len(),
            ipv4_sum: (ether_type == EtherType::IPV4).then(|| Sum::of(&ip_header)),
            udp_sum: pseudo.sum(IpProto::UDP, 0).add_bytes(&ports),
        })
    }

    /// Returns the bytes of the IP and UDP headers.
    pub(crate) fn network_size(&self) -> usize {
        self.size - self.ip
    }

    pub(crate) fn set_destination(&mut self, mac: Mac) {
        self.bytes[..6].copy_from_slice(&mac.0);
    }

    /// Completes the head for a payload of `size` bytes with the folded sum `sum`; returns the UDP checksum.
    #[inline]
    pub(crate) fn complete(&mut self, size: usize, sum: u16, ident: u16) -> u16 {
        let udp_size = (udp::SIZE + size) as u16;
        let udp = self.size - udp::SIZE;
        match self.ipv4_sum {
            Some(known) => {
                let total = (self.network_size() + size) as u16;
                let checksum = known.add16(total).add16(ident).checksum();
                self.put(self.ip + 2, total);
                self.put(self.ip + 4, ident);
                self.put(self.ip + 10, checksum);
            }
            None => self.put(self.ip + 4, udp_size),
        }
        // The size is added twice: it is in the pseudo-header and in the UDP header.
        let checksum = self
            .udp_sum
            .add16(udp_size)
            .add16(udp_size)
            .add16(sum)
            .udp_checksum();
        self.put(udp + 4, udp_size);
        self.put(udp + 6, checksum);
        checksum
    }

    #[inline]
    fn put(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_completed_head_verifies_like_one_that_was_built_from_nothing(
            v6: bool, tag in 0u16..4_095, ports: (u16, u16), ident: u16, label in 0u32..1 << 20,
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4),
        ) {
            let vlan = (tag > 0).then(|| Vid::from_tci(tag));
            let (src, dst): (IpAddr, IpAddr) = if v6 {
                ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
            } else {
                ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())
            };
            let ends = Ends { src: (src, ports.0), dst: (dst, ports.1) };
            let mut head = Head::new(Mac([2, 0, 0, 0, 0, 1]), vlan, ends, FlowLabel::from_low_bits(label)).unwrap();
            head.set_destination(Mac([2, 0, 0, 0, 0, 2]));
            for payload in payloads {
                let checksum = head.complete(payload.len(), Sum::of(&payload).folded(), ident);
                let frame = [head.bytes(), &payload].concat();
                prop_assert_eq!(&frame[..12], &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                let packet = &frame[if tag > 0 { 18 } else { 14 }..];
                let (proto, pseudo, data) = if v6 {
                    let view = ipv6::View::new(packet).unwrap();
                    prop_assert_eq!(view.flow_label().raw(), label);
                    (view.next_header(), view.pseudo(), view.payload())
                } else {
                    let view = ipv4::View::new(packet).unwrap();
                    prop_assert!(view.checksum_is_right() && view.dont_fragment());
                    prop_assert_eq!(view.ident(), ident);
                    (view.proto(), view.pseudo(), view.payload())
                };
                prop_assert_eq!(proto, IpProto::UDP);
                let view = udp::View::new(data).unwrap();
                prop_assert_eq!((view.src(), view.dst()), ports);
                prop_assert!(view.checksum() == checksum && checksum != 0);
                prop_assert!(view.checksum_is_right(&pseudo));
                prop_assert_eq!(view.payload(), &payload[..]);
            }
        }
    }
}
