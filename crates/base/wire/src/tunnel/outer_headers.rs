//! The outer headers of a tunnel. All fields that do not depend on the packet are precomputed.

use core::net::IpAddr;

use arrayvec::ArrayVec;
use millrace_types::Mac;
use thiserror::Error;

use super::TunnelKind;
use super::outer::{GRE, TRANSPARENT_ETHERNET};
use crate::bytes::chunk;
use crate::checksum::Sum;
use crate::ip::Pseudo;
use crate::{Depth, EtherType, Fragment, IpProto, L3, L4, Layers, ethernet, ipv4};

/// Largest size of the outer headers in bytes: Ethernet, IPv6, UDP and VXLAN, or GRE with all its fields.
const SIZE_MAX: usize = 14 + 40 + 16;

/// The error for a packet whose size exceeds the length field of the outer IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{size} bytes do not fit into an IP packet")]
pub struct TooLong {
    /// Size of the inner packet in bytes.
    pub size: usize,
}

/// The UDP source port, which distinguishes the flows of a tunnel for devices that see only its outer headers (RFC
/// 7348, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entropy(u16);

/// The parameters of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OuterFields {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// MAC address of the local device.
    pub src_mac: Mac,
    /// MAC address of the next hop.
    pub dst_mac: Mac,
    /// Local IP address.
    pub local: IpAddr,
    /// Remote IP address, of the same family.
    pub remote: IpAddr,
    /// UDP destination port, if the encapsulation uses UDP.
    pub udp_port: u16,
    /// True if a GRE header has a key.
    pub has_key: bool,
    /// TTL of the outer header.
    pub ttl: u8,
    /// True if UDP and GRE headers have a checksum. Otherwise UDP has none, even over IPv6 (RFC 6935).
    pub checksum: bool,
}

/// The outer headers of a tunnel, complete except for the fields that depend on the packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OuterHeaders {
    kind: TunnelKind,
    bytes: ArrayVec<u8, SIZE_MAX>,
    /// Offset of the UDP or GRE header.
    l4: usize,
    /// Offset of the key, if the header has one.
    key: Option<usize>,
    /// The addresses for the checksum, if the header has one.
    pseudo: Option<Pseudo>,
    is_v6: bool,
}

impl OuterHeaders {
    /// Returns the outer headers of a tunnel; `None` if the addresses are of two families.
    pub fn new(ends: &OuterFields) -> Option<OuterHeaders> {
        let OuterFields {
            kind,
            src_mac,
            dst_mac,
            local,
            remote,
            udp_port,
            has_key,
            ttl,
            checksum,
        } = *ends;
        let mut bytes = ArrayVec::new();
        let mut add = |more: &[u8]| bytes.try_extend_from_slice(more).is_ok();
        let proto = match kind {
            TunnelKind::Gre => GRE,
            _ => IpProto::UDP,
        };
        let is_v6 = remote.is_ipv6();
        let mut fits = add(&dst_mac.0) && add(&src_mac.0);
        let pseudo = match (local, remote) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                fits &= add(&EtherType::IPV4.0.to_be_bytes());
                // DF is set, so the packet needs no identification (RFC 6864).
                fits &= add(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, ttl, proto.0, 0, 0]);
                fits &= add(&src.octets()) && add(&dst.octets());
                Pseudo::V4 { src, dst }
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                fits &= add(&EtherType::IPV6.0.to_be_bytes());
                fits &= add(&[0x60, 0, 0, 0, 0, 0, proto.0, ttl]);
                fits &= add(&src.octets()) && add(&dst.octets());
                Pseudo::V6 { src, dst }
            }
            _ => return None,
        };
        let l4 = ethernet::SIZE + if is_v6 { 40 } else { ipv4::MIN_SIZE };
        let [p0, p1] = udp_port.to_be_bytes();
        let key = match kind {
            TunnelKind::Vxlan => {
                fits &= add(&[0, 0, p0, p1, 0, 0, 0, 0]) && add(&[0x08, 0, 0, 0, 0, 0, 0, 0]);
                Some(l4 + 12)
            }
            TunnelKind::GtpU => {
                fits &= add(&[0, 0, p0, p1, 0, 0, 0, 0]) && add(&[0x30, 0xff, 0, 0, 0, 0, 0, 0]);
                Some(l4 + 12)
            }
            TunnelKind::MplsUdp => {
                fits &= add(&[0, 0, p0, p1, 0, 0, 0, 0]);
                None
            }
            TunnelKind::Gre => {
                let flags = u8::from(checksum) << 7 | u8::from(has_key) << 5;
                let [t0, t1] = TRANSPARENT_ETHERNET.to_be_bytes();
                fits &= add(&[flags, 0, t0, t1]);
                fits &= !checksum || add(&[0; 4]);
                fits &= !has_key || add(&[0; 4]);
                has_key.then_some(l4 + if checksum { 8 } else { 4 })
            }
        };
        fits.then_some(OuterHeaders {
            kind,
            bytes,
            l4,
            key,
            pseudo: checksum.then_some(pseudo),
            is_v6,
        })
    }

    /// Returns the size of all headers in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns false: there is always an outer header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns true if the header has a checksum over the packet.
    pub fn has_checksum(&self) -> bool {
        self.pseudo.is_some()
    }

    /// Returns the size in bytes of the outer IP packet around an inner packet of `size` bytes.
    pub fn packet_size(&self, size: usize) -> usize {
        self.len() - ethernet::SIZE + size
    }

    /// Writes the headers into `out`, the first bytes of a frame, around a packet of `size` bytes. `tos` is the
    /// traffic class of the outer header; `inside` is the sum of the packet's bytes, if the header has a checksum.
    ///
    /// # Errors
    /// [`TooLong`]; `out` may have been written.
    pub fn write(
        &self,
        out: &mut [u8],
        size: usize,
        key: u32,
        tos: u8,
        entropy: Entropy,
        inside: Sum,
    ) -> Result<(), TooLong> {
        let too_long = TooLong { size };
        let whole = u16::try_from(self.packet_size(size)).map_err(|_| too_long)?;
        let behind = self.len() - self.l4 + size;
        let behind16 = u16::try_from(behind).map_err(|_| too_long)?;
        let out = out.get_mut(..self.len()).ok_or(too_long)?;
        out.copy_from_slice(&self.bytes);
        let (head, l4) = out.split_at_mut(self.l4);
        let ip = &mut head[ethernet::SIZE..];
        if self.is_v6 {
            ip[0] |= tos >> 4;
            ip[1] = tos << 4;
            ip[4..6].copy_from_slice(&behind16.to_be_bytes());
        } else {
            ip[1] = tos;
            ip[2..4].copy_from_slice(&whole.to_be_bytes());
            let sum = Sum::of(ip).checksum();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        if let Some(at) = self.key {
            let at = at - self.l4;
            match self.kind {
                TunnelKind::Vxlan => l4[at..at + 3].copy_from_slice(&key.to_be_bytes()[1..]),
                _ => l4[at..at + 4].copy_from_slice(&key.to_be_bytes()),
            }
        }
        if self.kind == TunnelKind::Gre {
            if self.pseudo.is_some() {
                let sum = Sum::of(l4).add16(inside.folded()).checksum();
                l4[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            return Ok(());
        }
        l4[..2].copy_from_slice(&entropy.0.to_be_bytes());
        l4[4..6].copy_from_slice(&behind16.to_be_bytes());
        if self.kind == TunnelKind::GtpU {
            // The length counts the bytes after the first eight bytes of the GTP header.
            l4[10..12].copy_from_slice(&(behind16 - 16).to_be_bytes());
        }
        if let Some(pseudo) = &self.pseudo {
            let sum = pseudo.sum(IpProto::UDP, behind).add_bytes(l4);
            let sum = sum.add16(inside.folded()).udp_checksum();
            l4[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(())
    }
}

/// Returns the UDP source port for a frame of `size` bytes that starts with `frame`: a hash that all packets of one flow share.
pub fn entropy(frame: &[u8], size: usize) -> Entropy {
    let layers = Layers::parse_head(frame, size, Depth::L4);
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    let mut mix = |bytes: Option<&[u8]>| {
        for part in bytes.unwrap_or_default().chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            hash = (hash.rotate_left(29) ^ u64::from_be_bytes(word)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
    };
    mix(frame.get(..12));
    let l3 = layers.l3_offset();
    match layers.l3() {
        L3::Ipv4 => mix(frame.get(l3 + 12..l3 + 20)),
        L3::Ipv6 => mix(frame.get(l3 + 8..l3 + 40)),
        // The label, which has 20 bits, without class and TTL.
        L3::Mpls => {
            let label = chunk::<3>(frame, l3).map(|[b0, b1, b2]| [*b0, *b1, b2 & 0xf0]);
            mix(label.as_ref().map(|label| &label[..]));
        }
        _ => {}
    }
    if matches!(layers.l4(), L4::Tcp | L4::Udp | L4::Sctp) && layers.fragment() == Fragment::Whole {
        mix(frame.get(layers.l4_offset()..layers.l4_offset() + 4));
    }
    // The dynamic ports, which RFC 7348 recommends.
    Entropy(0xc000 | (hash >> 50) as u16)
}
