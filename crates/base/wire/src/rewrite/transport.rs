//! Fields of TCP, UDP, SCTP, ICMP, ICMPv6 and neighbour discovery.

use core::net::Ipv6Addr;

use millrace_types::Mac;

use super::{Covered, mend_l4, replace};
use crate::bytes::{array, chunk_mut, put};
use crate::checksum::{Change, crc32c};
use crate::{Fragment, L4, Layers, sctp, tcp};

/// Changes a 16-bit word of a transport header, and updates its 16-bit checksum.
#[inline]
fn l4_word(head: &mut [u8], layers: &Layers, offset: usize, change: impl FnOnce(u16) -> u16) -> bool {
    let Some(place) = chunk_mut::<2>(head, layers.l4_offset() + offset) else {
        return false;
    };
    let old = u16::from_be_bytes(*place);
    let new = change(old);
    *place = new.to_be_bytes();
    mend_l4(head, layers, Change::of16(old, new), Covered::Message);
    true
}

/// Sets the source port of TCP, UDP or SCTP, as selected by `l4`, if the packet has that header.
#[inline]
pub fn l4_src(head: &mut [u8], layers: &Layers, l4: L4, port: u16) -> bool {
    // TCP, UDP and SCTP have their ports at the same offsets.
    l4_port(head, layers, l4, tcp::offset::SRC, port)
}

/// Sets the destination port of TCP, UDP or SCTP, as selected by `l4`, if the packet has that header.
#[inline]
pub fn l4_dst(head: &mut [u8], layers: &Layers, l4: L4, port: u16) -> bool {
    l4_port(head, layers, l4, tcp::offset::DST, port)
}

#[inline]
fn l4_port(head: &mut [u8], layers: &Layers, l4: L4, offset: usize, port: u16) -> bool {
    match l4 {
        _ if layers.l4() != l4 => false,
        L4::Tcp | L4::Udp => l4_word(head, layers, offset, |_| port),
        L4::Sctp => sctp_port(head, layers, offset, port),
        L4::None | L4::Icmpv4 | L4::Icmpv6 => false,
    }
}

fn sctp_port(head: &mut [u8], layers: &Layers, offset: usize, port: u16) -> bool {
    let whole = layers.fragment() == Fragment::Whole;
    let place = chunk_mut::<{ sctp::SIZE }>(head, layers.l4_offset());
    let Some(header) = place.filter(|_| whole) else {
        return false;
    };
    let old = array::<4, _>(header, 0);
    header[offset..offset + 2].copy_from_slice(&port.to_be_bytes());
    let new = array::<4, _>(header, 0);
    let crc = u32::from_le_bytes(array(header, sctp::offset::CHECKSUM));
    let mended = crc32c::mend(crc, old, new, layers.l4_size() - 4);
    put(header, sctp::offset::CHECKSUM, mended.to_le_bytes());
    true
}

/// Changes type and code of ICMP or ICMPv6.
#[inline]
fn icmp(head: &mut [u8], layers: &Layers, l4: L4, change: impl FnOnce(u16) -> u16) -> bool {
    layers.l4() == l4 && l4_word(head, layers, 0, change)
}

/// Sets the type of an ICMP message.
#[inline]
pub fn icmpv4_type(head: &mut [u8], layers: &Layers, kind: u8) -> bool {
    icmp(head, layers, L4::Icmpv4, |word| {
        word & 0x00ff | u16::from(kind) << 8
    })
}

/// Sets the code of an ICMP message.
#[inline]
pub fn icmpv4_code(head: &mut [u8], layers: &Layers, code: u8) -> bool {
    icmp(head, layers, L4::Icmpv4, |word| word & 0xff00 | u16::from(code))
}

/// Sets the type of an ICMPv6 message.
#[inline]
pub fn icmpv6_type(head: &mut [u8], layers: &Layers, kind: u8) -> bool {
    icmp(head, layers, L4::Icmpv6, |word| {
        word & 0x00ff | u16::from(kind) << 8
    })
}

/// Sets the code of an ICMPv6 message.
#[inline]
pub fn icmpv6_code(head: &mut [u8], layers: &Layers, code: u8) -> bool {
    icmp(head, layers, L4::Icmpv6, |word| word & 0xff00 | u16::from(code))
}

/// Changes a field of neighbour discovery at `at`.
#[inline]
fn nd_field<const N: usize>(head: &mut [u8], layers: &Layers, at: Option<usize>, new: [u8; N]) -> bool {
    let Some(old) = at.and_then(|at| replace(head, at, new)) else {
        return false;
    };
    mend_l4(head, layers, Change::of_bytes(&old, &new), Covered::Message);
    true
}

/// Sets the target of a neighbour solicitation or advertisement.
#[inline]
pub fn nd_target(head: &mut [u8], layers: &Layers, target: Ipv6Addr) -> bool {
    nd_field(head, layers, layers.nd_target(), target.octets())
}

/// Sets the source link-layer address of a neighbour solicitation, if it has that option.
#[inline]
pub fn nd_sll(head: &mut [u8], layers: &Layers, mac: Mac) -> bool {
    nd_field(head, layers, layers.nd_sll(), mac.0)
}

/// Sets the target link-layer address of a neighbour advertisement, if it has that option.
#[inline]
pub fn nd_tll(head: &mut [u8], layers: &Layers, mac: Mac) -> bool {
    nd_field(head, layers, layers.nd_tll(), mac.0)
}
