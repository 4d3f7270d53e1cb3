//! Builds frames from their headers, outermost first, for tests, traffic generators and `millrace trace`.
//!
//! ```
//! use millrace_types::Mac;
//! use millrace_wire::{Builder, tcp};
//!
//! let frame = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
//!     .vlan(100, 5)
//!     .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
//!     .tcp(tcp::Repr { src: 1024, dst: 80, ..tcp::Repr::default() })
//!     .payload(b"hello")
//!     .build();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 20 + 5);
//! ```

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::{Mac, Pcp, Vid};

use crate::ip::Pseudo;
use crate::{Dscp, Ecn, EtherType, FlowLabel, IpProto, Isid, MplsLabel, Tc, arp, ethernet, icmpv4, icmpv6};
use crate::{ipv4, ipv6, mpls, pbb, sctp, tcp, udp, vlan};

/// A frame under construction. EtherTypes, protocol numbers, sizes and checksums are computed from the inner
/// headers.
#[derive(Clone, Debug)]
pub struct Builder<'a> {
    headers: Vec<Header<'a>>,
    payload: Vec<u8>,
    pad_to: usize,
}

#[derive(Clone, Copy, Debug)]
enum Header<'a> {
    Ethernet(ethernet::Repr),
    Vlan(EtherType, vlan::Repr),
    Pbb(pbb::Repr),
    Mpls(mpls::Repr),
    Arp(arp::Repr),
    Ipv4(ipv4::Repr<'a>),
    Ipv6(ipv6::Repr),
    Extension(IpProto, &'a [u8]),
    Tcp(tcp::Repr<'a>),
    Udp(udp::Repr),
    Sctp(sctp::Repr),
    Icmpv4(icmpv4::Repr),
    Icmpv6(icmpv6::Repr),
    Nd(icmpv6::NdRepr),
}

/// The value by which an outer header identifies the inner one.
#[derive(Clone, Copy)]
enum Announced {
    /// The value that the caller gave.
    AsGiven,
    EtherType(EtherType),
    Proto(IpProto),
}

impl<'a> Builder<'a> {
    /// Returns a builder that starts with an Ethernet header.
    pub fn ethernet(dst: Mac, src: Mac) -> Builder<'a> {
        let header = Header::Ethernet(ethernet::Repr {
            dst,
            src,
            ether_type: EtherType(0xffff),
        });
        Builder {
            headers: vec![header],
            payload: Vec::new(),
            pad_to: 0,
        }
    }

    fn with(mut self, header: Header<'a>) -> Builder<'a> {
        self.headers.push(header);
        self
    }

    /// Sets the EtherType after Ethernet and the VLAN tags, for a payload without a header of this builder.
    #[must_use]
    pub fn ether_type(mut self, given: EtherType) -> Builder<'a> {
        if let Some(
            Header::Ethernet(ethernet::Repr { ether_type, .. })
            | Header::Vlan(_, vlan::Repr { ether_type, .. })
            | Header::Pbb(pbb::Repr { ether_type, .. }),
        ) = self.headers.last_mut()
        {
            *ether_type = given;
        }
        self
    }

    /// Adds an 802.1Q tag, with the low 12 bits of `vid` and the low 3 bits of `pcp`.
    #[must_use]
    pub fn vlan(self, vid: u16, pcp: u8) -> Builder<'a> {
        self.tag(EtherType::VLAN, vid, pcp)
    }

    /// Adds a VLAN tag with any TPID, with the low 12 bits of `vid` and the low 3 bits of `pcp`.
    #[must_use]
    pub fn tag(self, tpid: EtherType, vid: u16, pcp: u8) -> Builder<'a> {
        let (vid, pcp) = (Vid::from_tci(vid), Pcp::from_tci(u16::from(pcp) << 13));
        self.with(Header::Vlan(
            tpid,
            vlan::Repr {
                vid,
                pcp,
                dei: false,
                ether_type: EtherType(0xffff),
            },
        ))
    }

    /// Adds a PBB tag around a customer's frame, with the low 24 bits of `isid`.
    #[must_use]
    pub fn pbb(self, isid: u32, customer_dst: Mac, customer_src: Mac) -> Builder<'a> {
        self.with(Header::Pbb(pbb::Repr {
            isid: Isid::from_low_bits(isid),
            pcp: Pcp::default(),
            dei: false,
            uca: false,
            customer_dst,
            customer_src,
            ether_type: EtherType(0xffff),
        }))
    }

    /// Adds an MPLS label stack entry, with the low 20 bits of `label` and the low 3 bits of `tc`.
    #[must_use]
    pub fn mpls(self, label: u32, tc: u8, ttl: u8) -> Builder<'a> {
        let (label, tc) = (MplsLabel::from_low_bits(label), Tc::from_low_bits(tc));
        self.with(Header::Mpls(mpls::Repr {
            label,
            tc,
            bos: true,
            ttl,
        }))
    }

    /// Appends an ARP packet.
    #[must_use]
    pub fn arp(self, repr: arp::Repr) -> Builder<'a> {
        self.with(Header::Arp(repr))
    }

    /// Appends an IPv4 header with a time to live of 64.
    #[must_use]
    pub fn ipv4(self, src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> Builder<'a> {
        self.ipv4_with(ipv4::Repr {
            src: src.into(),
            dst: dst.into(),
            proto: IpProto(255),
            dscp: Dscp::default(),
            ecn: Ecn::default(),
            ttl: 64,
            ident: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            options: ipv4::Options::default(),
            payload_size: 0,
        })
    }

    /// Appends any IPv4 header. Its protocol is kept if a payload follows; its total length is always computed.
    #[must_use]
    pub fn ipv4_with(self, repr: ipv4::Repr<'a>) -> Builder<'a> {
        self.with(Header::Ipv4(repr))
    }

    /// Appends an IPv6 header with a hop limit of 64.
    #[must_use]
    pub fn ipv6(self, src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> Builder<'a> {
        self.ipv6_with(ipv6::Repr {
            src: src.into(),
            dst: dst.into(),
            next_header: IpProto::NO_NEXT,
            dscp: Dscp::default(),
            ecn: Ecn::default(),
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            payload_size: 0,
        })
    }

    /// Appends any IPv6 header. Its next header is kept if a payload follows; its payload length is always computed.
    #[must_use]
    pub fn ipv6_with(self, repr: ipv6::Repr) -> Builder<'a> {
        self.with(Header::Ipv6(repr))
    }

    /// Adds a whole IPv6 extension header. Its first byte, the next header, is kept only if a payload follows.
    #[must_use]
    pub fn extension(self, proto: IpProto, bytes: &'a [u8]) -> Builder<'a> {
        self.with(Header::Extension(proto, bytes))
    }

    /// Appends a TCP header.
    #[must_use]
    pub fn tcp(self, repr: tcp::Repr<'a>) -> Builder<'a> {
        self.with(Header::Tcp(repr))
    }

    /// Appends a UDP header.
    #[must_use]
    pub fn udp(self, src: u16, dst: u16) -> Builder<'a> {
        self.with(Header::Udp(udp::Repr { src, dst }))
    }

    /// Appends an SCTP common header.
    #[must_use]
    pub fn sctp(self, src: u16, dst: u16, tag: u32) -> Builder<'a> {
        self.with(Header::Sctp(sctp::Repr { src, dst, tag }))
    }

    /// Appends an ICMP header.
    #[must_use]
    pub fn icmpv4(self, repr: icmpv4::Repr) -> Builder<'a> {
        self.with(Header::Icmpv4(repr))
    }

    /// Appends an ICMPv6 header.
    #[must_use]
    pub fn icmpv6(self, kind: u8, code: u8) -> Builder<'a> {
        self.with(Header::Icmpv6(icmpv6::Repr { kind, code }))
    }

    /// Appends a neighbour solicitation or advertisement.
    #[must_use]
    pub fn neighbor(self, repr: icmpv6::NdRepr) -> Builder<'a> {
        self.with(Header::Nd(repr))
    }

    /// Appends the payload after the headers.
    #[must_use]
    pub fn payload(mut self, bytes: &[u8]) -> Builder<'a> {
        self.payload = bytes.to_vec();
        self
    }

    /// Pads the frame with zeros to at least `size` bytes; the minimum of Ethernet is 60.
    #[must_use]
    pub fn pad_to(mut self, size: usize) -> Builder<'a> {
        self.pad_to = size;
        self
    }

    /// Returns the frame.
    pub fn build(&self) -> Vec<u8> {
        let mut inside = self.payload.clone();
        let mut announced = Announced::AsGiven;
        for (i, header) in self.headers.iter().enumerate().rev() {
            let mut bytes = Vec::with_capacity(inside.len() + 64);
            announced = header.emit(announced, self.pseudo(i), &inside, &mut bytes);
            inside = bytes;
        }
        inside.resize(inside.len().max(self.pad_to), 0);
        inside
    }

    /// Returns the addresses of the IP header around header `i`.
    fn pseudo(&self, i: usize) -> Pseudo {
        let addresses = self.headers[..i].iter().rev().find_map(|header| match header {
            Header::Ipv4(repr) => Some(Pseudo::V4 {
                src: repr.src,
                dst: repr.dst,
            }),
            Header::Ipv6(repr) => Some(Pseudo::V6 {
                src: repr.src,
                dst: repr.dst,
            }),
            _ => None,
        });
        addresses.unwrap_or(Pseudo::V4 {
            src: Ipv4Addr::UNSPECIFIED,
            dst: Ipv4Addr::UNSPECIFIED,
        })
    }
}

impl Announced {
    fn ether_type(self, given: EtherType) -> EtherType {
        match self {
            Announced::EtherType(ether_type) => ether_type,
            Announced::AsGiven | Announced::Proto(_) => given,
        }
    }

    fn proto(self, given: IpProto) -> IpProto {
        match self {
            Announced::Proto(proto) => proto,
            Announced::AsGiven | Announced::EtherType(_) => given,
        }
    }
}

impl Header<'_> {
    /// Appends the header and the bytes `inside`; returns the value by which the outer header identifies this one.
    fn emit(&self, announced: Announced, pseudo: Pseudo, inside: &[u8], out: &mut Vec<u8>) -> Announced {
        let size = u16::try_from(inside.len()).unwrap_or(u16::MAX);
        match *self {
            Header::Ethernet(repr) => {
                let ether_type = announced.ether_type(repr.ether_type);
                out.extend(ethernet::Repr { ether_type, ..repr }.to_bytes());
            }
            Header::Vlan(_, repr) => {
                let ether_type = announced.ether_type(repr.ether_type);
                out.extend(vlan::Repr { ether_type, ..repr }.to_bytes());
            }
            Header::Pbb(repr) => {
                let ether_type = announced.ether_type(repr.ether_type);
                out.extend(pbb::Repr { ether_type, ..repr }.to_bytes());
            }
            Header::Mpls(repr) => {
                let bos = !matches!(announced, Announced::EtherType(EtherType::MPLS));
                out.extend(mpls::Repr { bos, ..repr }.to_bytes());
            }
            Header::Arp(repr) => out.extend(repr.to_bytes()),
            Header::Ipv4(repr) => {
                let proto = announced.proto(repr.proto);
                ipv4::Repr {
                    proto,
                    payload_size: size,
                    ..repr
                }
                .emit(out);
            }
            Header::Ipv6(repr) => {
                let next_header = announced.proto(repr.next_header);
                out.extend(
                    ipv6::Repr {
                        next_header,
                        payload_size: size,
                        ..repr
                    }
                    .to_bytes(),
                );
            }
            Header::Extension(_, bytes) => {
                if let Some((next_header, rest)) = bytes.split_first() {
                    out.push(announced.proto(IpProto(*next_header)).0);
                    out.extend_from_slice(rest);
                }
            }
            // The transport headers also emit their payload, because their checksums cover it.
            Header::Tcp(repr) => repr.emit(&pseudo, inside, out),
            Header::Udp(repr) => repr.emit(&pseudo, inside, out),
            Header::Sctp(repr) => repr.emit(inside, out),
            Header::Icmpv4(repr) => repr.emit(inside, out),
            Header::Icmpv6(repr) => repr.emit(&pseudo, inside, out),
            Header::Nd(repr) => repr.emit(&pseudo, out),
        }
        let announced = self.announced();
        if !matches!(
            announced,
            Announced::Proto(IpProto::TCP | IpProto::UDP | IpProto::SCTP | IpProto::ICMPV4 | IpProto::ICMPV6)
        ) {
            out.extend_from_slice(inside);
        }
        announced
    }

    fn announced(&self) -> Announced {
        match self {
            Header::Ethernet(_) => Announced::AsGiven,
            Header::Vlan(tpid, _) => Announced::EtherType(*tpid),
            Header::Pbb(_) => Announced::EtherType(EtherType::PBB),
            Header::Mpls(_) => Announced::EtherType(EtherType::MPLS),
            Header::Arp(_) => Announced::EtherType(EtherType::ARP),
            Header::Ipv4(_) => Announced::EtherType(EtherType::IPV4),
            Header::Ipv6(_) => Announced::EtherType(EtherType::IPV6),
            Header::Extension(proto, _) => Announced::Proto(*proto),
            Header::Tcp(_) => Announced::Proto(IpProto::TCP),
            Header::Udp(_) => Announced::Proto(IpProto::UDP),
            Header::Sctp(_) => Announced::Proto(IpProto::SCTP),
            Header::Icmpv4(_) => Announced::Proto(IpProto::ICMPV4),
            Header::Icmpv6(_) | Header::Nd(_) => Announced::Proto(IpProto::ICMPV6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Depth, L3, L4, Layers};

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn every_header_is_announced_by_the_one_outside() {
        let frame = Builder::ethernet(B, A)
            .tag(EtherType::QINQ, 7, 1)
            .vlan(8, 2)
            .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED)
            .extension(IpProto::HOP_BY_HOP, &[0, 0, 1, 4, 0, 0, 0, 0])
            .udp(53, 5353)
            .payload(b"abc")
            .build();
        let layers = Layers::parse(&frame, Depth::All);
        assert_eq!(
            (layers.vlan_count(), layers.l3(), layers.l4()),
            (2, L3::Ipv6, L4::Udp)
        );
        let ip = ipv6::View::new(&frame[layers.l3_offset()..]).unwrap();
        let datagram = udp::View::new(&frame[layers.l4_offset()..]).unwrap();
        assert!(datagram.checksum_is_right(&ip.pseudo()));
        assert_eq!(datagram.payload(), b"abc");
    }

    #[test]
    fn only_the_innermost_label_is_the_bottom_of_the_stack() {
        let frame = Builder::ethernet(B, A)
            .mpls(1, 0, 9)
            .mpls(2, 0, 8)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .build();
        let stack: Vec<bool> = mpls::stack(&frame[14..]).map(|entry| entry.bos()).collect();
        assert_eq!(stack, [false, true]);
    }

    #[test]
    fn a_customers_frame_is_whole_inside_its_pbb_tag() {
        let inner = Builder::ethernet(A, B)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2);
        let frame = Builder::ethernet(B, A)
            .pbb(5, A, B)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2)
            .build();
        assert_eq!(frame[18..], inner.build());
    }

    #[test]
    fn padding_is_outside_of_the_packet() {
        let frame = Builder::ethernet(B, A)
            .ipv4([1; 4], [2; 4])
            .udp(1, 2)
            .pad_to(60)
            .build();
        assert_eq!((frame.len(), Layers::parse(&frame, Depth::L4).l4_size()), (60, 8));
    }
}
