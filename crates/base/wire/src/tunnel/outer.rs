//! Finds the outer headers of a packet that arrived through a tunnel.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use super::TunnelKind;
use crate::bytes::chunk;
use crate::{Depth, EtherType, Fragment, IpProto, L3, L4, Layers, checksum};

/// The reason why a packet with a tunnel's protocol and port cannot be decapsulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OuterError {
    /// The packet ends within the header.
    #[error("a {kind} header that is cut short")]
    Truncated {
        /// The encapsulation.
        kind: TunnelKind,
    },
    /// Flags, version or type are not supported.
    #[error("a {kind} header that begins with {value:#06x}")]
    Header {
        /// The encapsulation.
        kind: TunnelKind,
        /// The first two bytes of the header.
        value: u16,
    },
    /// The payload is not of the type that the encapsulation carries.
    #[error("a {kind} header with something else inside than it should have")]
    Inside {
        /// The encapsulation.
        kind: TunnelKind,
    },
    /// The packet is a fragment, so the rest of the headers is in another packet.
    #[error("a fragment")]
    Fragment,
    /// The checksum of the outer IPv4 header is wrong (RFC 1122, section 3.2.1.2).
    #[error("an outer IPv4 header with a wrong checksum")]
    Checksum,
}

/// The outer headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// Source address of the outer packet.
    pub src: IpAddr,
    /// Destination address of the outer packet.
    pub dst: IpAddr,
    /// The UDP destination port; zero for GRE.
    pub udp_port: u16,
    /// The network identifier, key or endpoint; `None` if the header has none.
    pub key: Option<u32>,
    /// Size of all headers in bytes.
    pub size: usize,
    /// The EtherType of the payload; `None` for an Ethernet frame.
    pub inside: Option<EtherType>,
    /// The ECN field (two bits).
    pub ecn: u8,
    /// Offset of the header with a checksum over the rest of the packet, and offset of that checksum; `None`
    /// without a checksum.
    pub checksum: Option<(usize, usize)>,
    /// Offset of the end of the outer UDP datagram, or of the outer IP packet with GRE; other bytes may follow.
    pub end: usize,
}

impl Outer {
    /// Parses the outer headers of a frame of `size` bytes that starts with `frame`. Returns `None` if the packet does
    /// not have one of `ports`, the UDP destination ports of tunnels (zero for GRE) with their encapsulations, or if
    /// its destination address is not local.
    ///
    /// # Errors
    /// [`OuterError`] if address, protocol and port are those of a tunnel, but the packet cannot be
    /// decapsulated.
    pub fn find(
        frame: &[u8],
        size: usize,
        ports: &[(u16, TunnelKind)],
        is_local: impl FnOnce(IpAddr) -> bool,
    ) -> Option<Result<Outer, OuterError>> {
        let layers = Layers::parse_head(frame, size, Depth::L4);
        if layers.vlan_count() != 0 {
            return None;
        }
        let l3 = layers.l3_offset();
        let (src, dst, ecn, end, after) = match layers.l3() {
            L3::Ipv4 => {
                let header = chunk::<20>(frame, l3)?;
                let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
                let (src, dst) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
                let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
                let after = l3 + usize::from(header[0] & 0xf) * 4;
                (IpAddr::V4(src), IpAddr::V4(dst), header[1] & 3, l3 + total, after)
            }
            L3::Ipv6 => {
                let header = chunk::<40>(frame, l3)?;
                let address =
                    |at: usize| chunk::<16>(header, at).map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes)));
                let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
                // Extension headers before GRE are not supported; no known sender uses them.
                let after = if header[6] == GRE.0 { l3 + 40 } else { 0 };
                (address(8)?, address(24)?, header[1] >> 4 & 3, l3 + total, after)
            }
            _ => return None,
        };
        let is_gre = layers.ip_proto() == GRE && after != 0;
        if !is_gre && layers.ip_proto() != IpProto::UDP {
            return None;
        }
        if layers.fragment() == Fragment::Later {
            // A later fragment has no UDP or GRE header, so it identifies no tunnel port.
            return None;
        }
        let whole = Outer {
            kind: TunnelKind::Gre,
            src,
            dst,
            udp_port: 0,
            key: None,
            size: after,
            inside: None,
            ecn,
            checksum: None,
            end: end.min(size),
        };
        let found = if is_gre {
            if !ports.iter().any(|(_, kind)| *kind == TunnelKind::Gre) || !is_local(dst) {
                return None;
            }
            whole.gre(frame)
        } else {
            if layers.l4() != L4::Udp {
                return None;
            }
            let header = chunk::<8>(frame, layers.l4_offset())?;
            let port = u16::from_be_bytes([header[2], header[3]]);
            let kind = ports.iter().find(|(wanted, _)| *wanted == port)?.1;
            if !is_local(dst) {
                return None;
            }
            let at = layers.l4_offset();
            let datagram_end = at + usize::from(u16::from_be_bytes([header[4], header[5]]));
            let outer = Outer {
                kind,
                udp_port: port,
                size: at + 8,
                checksum: (header[6..] != [0, 0]).then_some((at, at + 6)),
                end: whole.end.min(datagram_end),
                ..whole
            };
            match kind {
                TunnelKind::Vxlan => outer.vxlan(frame),
                TunnelKind::GtpU => outer.gtpu(frame),
                TunnelKind::MplsUdp => outer.mpls(frame),
                TunnelKind::Gre => return None,
            }
        };
        if layers.fragment() != Fragment::Whole {
            return Some(Err(OuterError::Fragment));
        }
        let is_right = |header: &[u8]| checksum::internet(header) == 0;
        if layers.l3() == L3::Ipv4 && !frame.get(l3..after).is_some_and(is_right) {
            return Some(Err(OuterError::Checksum));
        }
        Some(found)
    }

    fn truncated<T>(&self) -> Result<T, OuterError> {
        Err(OuterError::Truncated { kind: self.kind })
    }

    /// Returns the error for a wrong header that starts with these bytes.
    fn wrong<T>(&self, first: u8, second: u8) -> Result<T, OuterError> {
        Err(OuterError::Header {
            kind: self.kind,
            value: u16::from_be_bytes([first, second]),
        })
    }

    /// Parses a payload that must begin with an Ethernet header.
    fn with_ethernet(self, frame: &[u8]) -> Result<Outer, OuterError> {
        if self.size + crate::ethernet::SIZE > self.end || frame.len() < self.size + crate::ethernet::SIZE {
            return self.truncated();
        }
        Ok(self)
    }

    fn vxlan(self, frame: &[u8]) -> Result<Outer, OuterError> {
        let Some([flags, second, _, _, v0, v1, v2, _]) = chunk::<8>(frame, self.size) else {
            return self.truncated();
        };
        // RFC 7348: the I flag must be set, and reserved bits are ignored.
        if flags & 0x08 == 0 {
            return self.wrong(*flags, *second);
        }
        let outer = Outer {
            key: Some(u32::from_be_bytes([0, *v0, *v1, *v2])),
            size: self.size + 8,
            ..self
        };
        outer.with_ethernet(frame)
    }

    fn gre(self, frame: &[u8]) -> Result<Outer, OuterError> {
        let Some([flags, version, p0, p1]) = chunk::<4>(frame, self.size) else {
            return self.truncated();
        };
        const CHECKSUM: u8 = 0x80;
        const KEY: u8 = 0x20;
        const SEQUENCE: u8 = 0x10;
        // Bits 1, 4 and 5, which RFC 1701 used for routing, and versions other than 0 must be discarded; bits 6 to 12
        // are ignored (RFC 2784, section 2.1; RFC 2890).
        const DISCARDED: u8 = 0x4c;
        if flags & DISCARDED != 0 || version & 7 != 0 {
            return self.wrong(*flags, *version);
        }
        if u16::from_be_bytes([*p0, *p1]) != TRANSPARENT_ETHERNET {
            return Err(OuterError::Inside { kind: self.kind });
        }
        let begin = self.size;
        let mut outer = self;
        outer.size += 4;
        if flags & CHECKSUM != 0 {
            outer.checksum = Some((begin, outer.size));
            outer.size += 4;
        }
        if flags & KEY != 0 {
            let Some(key) = chunk::<4>(frame, outer.size) else {
                return self.truncated();
            };
            outer.key = Some(u32::from_be_bytes(*key));
            outer.size += 4;
        }
        if flags & SEQUENCE != 0 {
            outer.size += 4;
        }
        outer.with_ethernet(frame)
    }

    fn gtpu(self, frame: &[u8]) -> Result<Outer, OuterError> {
        let Some([flags, message, _, _, t0, t1, t2, t3]) = chunk::<8>(frame, self.size) else {
            return self.truncated();
        };
        // Accepts version 1, GTP (not GTP'), and user packets (G-PDU).
        if flags & 0xf0 != 0x30 || *message != 0xff {
            return self.wrong(*flags, *message);
        }
        let mut size = self.size + 8;
        if flags & 0x07 != 0 {
            let Some([.., next]) = chunk::<4>(frame, size) else {
                return self.truncated();
            };
            size += 4;
            let mut next = if flags & 0x04 != 0 { *next } else { 0 };
            while next != 0 {
                let Some(words) = frame
                    .get(size)
                    .copied()
                    .map(usize::from)
                    .filter(|words| *words != 0)
                else {
                    return self.truncated();
                };
                size += 4 * words;
                let Some(following) = frame.get(size - 1) else {
                    return self.truncated();
                };
                next = *following;
            }
        }
        let inside = match frame
            .get(size)
            .filter(|_| size < self.end)
            .map(|first| first >> 4)
        {
            Some(4) => EtherType::IPV4,
            Some(6) => EtherType::IPV6,
            Some(_) => return Err(OuterError::Inside { kind: self.kind }),
            None => return self.truncated(),
        };
        Ok(Outer {
            key: Some(u32::from_be_bytes([*t0, *t1, *t2, *t3])),
            size,
            inside: Some(inside),
            ..self
        })
    }

    fn mpls(self, frame: &[u8]) -> Result<Outer, OuterError> {
        if self.size + 4 > self.end || frame.len() < self.size + 4 {
            return self.truncated();
        }
        Ok(Outer {
            inside: Some(EtherType::MPLS),
            ..self
        })
    }
}

/// Generic routing encapsulation.
pub(super) const GRE: IpProto = IpProto(47);
/// The protocol of Ethernet in GRE.
pub(super) const TRANSPARENT_ETHERNET: u16 = 0x6558;
