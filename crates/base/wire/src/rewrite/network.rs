//! Fields of IPv4, IPv6 and ARP.

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;

use super::{Covered, mend, mend_l4, replace, write};
use crate::bytes::{be16, be32, chunk, chunk_mut, put};
use crate::checksum::Change;
use crate::{Dscp, Ecn, FlowLabel, IpProto, L3, Layers, arp, ipv4, ipv6};

/// Changes a 16-bit word of the IPv4 header at `at` and updates the header's checksum.
#[inline]
pub(super) fn ipv4_word(head: &mut [u8], at: usize, offset: usize, change: impl FnOnce(u16) -> u16) -> bool {
    let Some(header) = chunk_mut::<{ ipv4::MIN_SIZE }>(head, at) else {
        return false;
    };
    let old = u16::from_be_bytes([header[offset], header[offset + 1]]);
    let new = change(old);
    header[offset..offset + 2].copy_from_slice(&new.to_be_bytes());
    let checksum = Change::of16(old, new).apply(be16(header, ipv4::offset::CHECKSUM));
    put(header, ipv4::offset::CHECKSUM, checksum.to_be_bytes());
    true
}

/// Changes the traffic class of IPv4 or IPv6.
#[inline]
fn traffic_class(head: &mut [u8], layers: &Layers, change: impl FnOnce(u8) -> u8) -> bool {
    let at = layers.l3_offset();
    match layers.l3() {
        L3::Ipv4 => ipv4_word(head, at, 0, |word| word & 0xff00 | u16::from(change(word as u8))),
        L3::Ipv6 => chunk_mut::<2>(head, at).is_some_and(|place| {
            let word = u16::from_be_bytes(*place);
            let class = change((word >> 4) as u8);
            *place = (word & 0xf00f | u16::from(class) << 4).to_be_bytes();
            true
        }),
        L3::None | L3::Arp | L3::Mpls | L3::Pbb => false,
    }
}

/// Sets the differentiated services code point of IPv4 or IPv6.
#[inline]
pub fn ip_dscp(head: &mut [u8], layers: &Layers, dscp: Dscp) -> bool {
    traffic_class(head, layers, |class| class & 0x03 | dscp.raw() << 2)
}

/// Sets the explicit congestion notification of IPv4 or IPv6.
#[inline]
pub fn ip_ecn(head: &mut [u8], layers: &Layers, ecn: Ecn) -> bool {
    traffic_class(head, layers, |class| class & 0xfc | ecn.raw())
}

/// Sets the protocol of IPv4, or the last next header in the extension headers of IPv6. The transport's checksum is
/// unchanged, because the payload is now of another protocol.
pub fn ip_proto(head: &mut [u8], layers: &Layers, proto: IpProto) -> bool {
    let at = layers.l3_offset();
    match layers.l3() {
        L3::Ipv4 => ipv4_word(head, at, ipv4::offset::TTL, |word| {
            word & 0xff00 | u16::from(proto.0)
        }),
        L3::Ipv6 => {
            // Walks over the extension headers again, to set the next header field of the last one.
            let end = layers.l4_offset();
            let mut place = at + ipv6::offset::NEXT_HEADER;
            let mut next = at + ipv6::SIZE;
            while next < end {
                let Some([_, units]) = chunk::<2>(head, next) else {
                    return false;
                };
                let size = match head.get(place).map(|kind| IpProto(*kind)) {
                    Some(IpProto::FRAGMENT) => 8,
                    Some(IpProto::AH) => (usize::from(*units) + 2) * 4,
                    _ => (usize::from(*units) + 1) * 8,
                };
                place = next;
                next += size;
            }
            write(head, place, [proto.0])
        }
        L3::None | L3::Arp | L3::Mpls | L3::Pbb => false,
    }
}

/// Changes an IPv4 address, and updates the checksums of the header and the transport.
#[inline]
fn ipv4_address(head: &mut [u8], layers: &Layers, offset: usize, address: Ipv4Addr) -> bool {
    if layers.l3() != L3::Ipv4 {
        return false;
    }
    let at = layers.l3_offset();
    let new = address.octets();
    let Some(old) = replace(head, at + offset, new) else {
        return false;
    };
    let change = Change::of32(u32::from_be_bytes(old), u32::from_be_bytes(new));
    mend(head, at + ipv4::offset::CHECKSUM, change);
    mend_l4(head, layers, change, Covered::Addresses);
    true
}

/// Sets the IPv4 source address.
#[inline]
pub fn ipv4_src(head: &mut [u8], layers: &Layers, address: Ipv4Addr) -> bool {
    ipv4_address(head, layers, ipv4::offset::SRC, address)
}

/// Sets the IPv4 destination address.
#[inline]
pub fn ipv4_dst(head: &mut [u8], layers: &Layers, address: Ipv4Addr) -> bool {
    ipv4_address(head, layers, ipv4::offset::DST, address)
}

/// Sets the IPv6 source address.
#[inline]
pub fn ipv6_src(head: &mut [u8], layers: &Layers, address: Ipv6Addr) -> bool {
    if layers.l3() != L3::Ipv6 {
        return false;
    }
    let new = address.octets();
    let Some(old) = replace(head, layers.l3_offset() + ipv6::offset::SRC, new) else {
        return false;
    };
    mend_l4(head, layers, Change::of_bytes(&old, &new), Covered::Addresses);
    true
}

/// Sets the IPv6 destination address of the fixed header.
#[inline]
pub fn ipv6_dst(head: &mut [u8], layers: &Layers, address: Ipv6Addr) -> bool {
    if layers.l3() != L3::Ipv6 {
        return false;
    }
    let new = address.octets();
    let Some(old) = replace(head, layers.l3_offset() + ipv6::offset::DST, new) else {
        return false;
    };
    if !layers.is_routed() {
        mend_l4(head, layers, Change::of_bytes(&old, &new), Covered::Addresses);
    }
    true
}

/// Sets the IPv6 flow label, which no checksum covers.
#[inline]
pub fn ipv6_flow_label(head: &mut [u8], layers: &Layers, label: FlowLabel) -> bool {
    let place = chunk_mut::<4>(head, layers.l3_offset());
    let Some(word) = place.filter(|_| layers.l3() == L3::Ipv6) else {
        return false;
    };
    *word = (be32(word, 0) & 0xfff0_0000 | label.raw()).to_be_bytes();
    true
}

/// Changes a field of an ARP packet.
#[inline]
fn arp_field<const N: usize>(head: &mut [u8], layers: &Layers, offset: usize, value: [u8; N]) -> bool {
    layers.l3() == L3::Arp && write(head, layers.l3_offset() + offset, value)
}

/// Sets the operation of ARP.
#[inline]
pub fn arp_op(head: &mut [u8], layers: &Layers, op: u16) -> bool {
    arp_field(head, layers, arp::offset::OP, op.to_be_bytes())
}

/// Sets the sender's IPv4 address in ARP.
#[inline]
pub fn arp_spa(head: &mut [u8], layers: &Layers, address: Ipv4Addr) -> bool {
    arp_field(head, layers, arp::offset::SPA, address.octets())
}

/// Sets the target's IPv4 address in ARP.
#[inline]
pub fn arp_tpa(head: &mut [u8], layers: &Layers, address: Ipv4Addr) -> bool {
    arp_field(head, layers, arp::offset::TPA, address.octets())
}

/// Sets the sender's MAC address in ARP.
#[inline]
pub fn arp_sha(head: &mut [u8], layers: &Layers, mac: Mac) -> bool {
    arp_field(head, layers, arp::offset::SHA, mac.0)
}

/// Sets the target's MAC address in ARP.
#[inline]
pub fn arp_tha(head: &mut [u8], layers: &Layers, mac: Mac) -> bool {
    arp_field(head, layers, arp::offset::THA, mac.0)
}
