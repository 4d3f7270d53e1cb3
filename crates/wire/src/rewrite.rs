//! Setting a field of a packet in place, with every checksum that covers it mended.
//!
//! A function takes the head of a packet and its [`Layers`], parsed at least to [`Depth::L4`] (neighbour
//! discovery: [`Depth::All`]) and still true of it, and says whether the packet has the field. If it does
//! not, nothing is changed. A change that makes the map untrue (of [`ip_proto`], [`eth_type`], [`mpls_bos`],
//! [`icmpv6_type`]) asks for a new parse.
//!
//! # Checksums
//! * They are mended by the difference (RFC 1624), never recomputed: a packet that was damaged on its way
//!   stays detectably damaged, and payload in further segments is not read. So is the CRC of SCTP.
//! * A UDP checksum of zero (none) stays zero, over IPv4 and over IPv6 (RFC 6935).
//! * Addresses are part of the checksums of TCP, UDP and ICMPv6. A later fragment has no transport header;
//!   the checksum of the whole packet is in its first fragment and is mended there.
//! * If an IPv6 routing header has segments left, the checksum covers the final destination and not the
//!   one in the fixed header, so a change of the latter mends nothing. IPv4 source routes are not looked at.
//! * The ports of an SCTP packet's first fragment cannot be set: the CRC depends on how many bytes follow in
//!   the other fragments. The packet is as if it had no ports.
//! * Of other protocols that cover addresses (UDP-Lite, DCCP), the checksum becomes wrong.
//!
//! [`Depth::L4`]: crate::Depth::L4
//! [`Depth::All`]: crate::Depth::All

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::{Mac, Pcp, Vid};

use crate::bytes::{be16, be32, chunk, chunk_mut, put};
use crate::checksum::{Change, crc32c};
use crate::{Dscp, Ecn, EtherType, FlowLabel, Fragment, IpProto, Isid, L3, L4, Layers, MplsLabel, Tc};
use crate::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, mpls, pbb, sctp, tcp, udp, vlan};

/// What became of a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ttl {
    /// It was changed.
    Changed,
    /// It is zero or one and cannot be decremented; the packet is as before. OpenFlow answers with a
    /// packet-in of reason `OFPR_INVALID_TTL`.
    Expired,
    /// The packet has none.
    Absent,
}

/// Writes `value` at `at`, and gives the bytes that were there.
#[inline]
fn replace<const N: usize>(head: &mut [u8], at: usize, value: [u8; N]) -> Option<[u8; N]> {
    chunk_mut(head, at).map(|place| core::mem::replace(place, value))
}

/// Writes `value` at `at`, if all of it is in the head.
#[inline]
fn write<const N: usize>(head: &mut [u8], at: usize, value: [u8; N]) -> bool {
    replace(head, at, value).is_some()
}

/// Mends the 16-bit checksum at `at`.
#[inline]
fn mend(head: &mut [u8], at: usize, change: Change) {
    if let Some(place) = chunk_mut::<2>(head, at) {
        *place = change.apply(u16::from_be_bytes(*place)).to_be_bytes();
    }
}

/// Mends the checksum of the transport header for a change to what it covers.
#[inline]
fn mend_l4(head: &mut [u8], layers: &Layers, change: Change, covers: Covered) {
    let at = layers.l4_offset();
    match layers.l4() {
        L4::Tcp => mend(head, at + tcp::offset::CHECKSUM, change),
        L4::Udp => {
            if let Some(place) = chunk_mut::<2>(head, at + udp::offset::CHECKSUM) {
                *place = change.apply_udp(u16::from_be_bytes(*place)).to_be_bytes();
            }
        }
        L4::Icmpv6 => mend(head, at + icmpv6::offset::CHECKSUM, change),
        L4::Icmpv4 if covers == Covered::Message => mend(head, at + icmpv4::offset::CHECKSUM, change),
        L4::None | L4::Sctp | L4::Icmpv4 => {}
    }
}

/// What a change is to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covered {
    /// The addresses of the pseudo-header.
    Addresses,
    /// The transport's own bytes.
    Message,
}

/// Sets the Ethernet destination.
#[inline]
pub fn eth_dst(head: &mut [u8], mac: Mac) -> bool {
    chunk_mut::<{ ethernet::SIZE }>(head, 0)
        .map(|header| put(header, 0, mac.0))
        .is_some()
}

/// Sets the Ethernet source.
#[inline]
pub fn eth_src(head: &mut [u8], mac: Mac) -> bool {
    chunk_mut::<{ ethernet::SIZE }>(head, 0)
        .map(|header| put(header, 6, mac.0))
        .is_some()
}

/// Sets the EtherType after all VLAN tags; not that of an 802.3 frame, which has a length there.
#[inline]
pub fn eth_type(head: &mut [u8], layers: &Layers, ether_type: EtherType) -> bool {
    layers.has_ethernet()
        && layers.ether_type() != EtherType::NOT_ETH_TYPE
        && write(head, layers.l3_offset() - 2, ether_type.0.to_be_bytes())
}

/// Changes the tag control information of the outermost VLAN tag.
#[inline]
fn vlan_tci(head: &mut [u8], layers: &Layers, change: impl FnOnce(u16) -> u16) -> bool {
    let place = chunk_mut::<{ vlan::SIZE }>(head, Layers::VLAN_OFFSET);
    let Some(tag) = place.filter(|_| layers.vlan_count() > 0) else {
        return false;
    };
    put(tag, 0, change(be16(tag, 0)).to_be_bytes());
    true
}

/// Sets the identifier of the outermost VLAN tag.
#[inline]
pub fn vlan_vid(head: &mut [u8], layers: &Layers, vid: Vid) -> bool {
    vlan_tci(head, layers, |tci| tci & 0xf000 | vid.raw())
}

/// Sets the priority of the outermost VLAN tag.
#[inline]
pub fn vlan_pcp(head: &mut [u8], layers: &Layers, pcp: Pcp) -> bool {
    vlan_tci(head, layers, |tci| tci & 0x1fff | u16::from(pcp.raw()) << 13)
}

/// Sets the service instance of the PBB tag.
#[inline]
pub fn pbb_isid(head: &mut [u8], layers: &Layers, isid: Isid) -> bool {
    let place = chunk_mut::<{ pbb::SIZE }>(head, layers.l3_offset());
    let Some(tag) = place.filter(|_| layers.l3() == L3::Pbb) else {
        return false;
    };
    let [_, a, b, c] = isid.raw().to_be_bytes();
    put(tag, 1, [a, b, c]);
    true
}

/// Changes the outermost MPLS label stack entry.
#[inline]
fn mpls_entry(head: &mut [u8], layers: &Layers, change: impl FnOnce(u32) -> u32) -> bool {
    let place = chunk_mut::<{ mpls::SIZE }>(head, layers.l3_offset());
    let Some(entry) = place.filter(|_| layers.l3() == L3::Mpls) else {
        return false;
    };
    *entry = change(u32::from_be_bytes(*entry)).to_be_bytes();
    true
}

/// Sets the label of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_label(head: &mut [u8], layers: &Layers, label: MplsLabel) -> bool {
    mpls_entry(head, layers, |entry| entry & 0xfff | label.raw() << 12)
}

/// Sets the traffic class of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_tc(head: &mut [u8], layers: &Layers, tc: Tc) -> bool {
    mpls_entry(head, layers, |entry| entry & !0xe00 | u32::from(tc.raw()) << 9)
}

/// Sets the bottom of stack bit of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_bos(head: &mut [u8], layers: &Layers, bos: bool) -> bool {
    mpls_entry(head, layers, |entry| {
        if bos {
            entry | mpls::BOS
        } else {
            entry & !mpls::BOS
        }
    })
}

/// Sets the time to live of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_ttl(head: &mut [u8], layers: &Layers, ttl: u8) -> bool {
    mpls_entry(head, layers, |entry| entry & !0xff | u32::from(ttl))
}

/// Decrements the time to live of the outermost MPLS label stack entry.
#[inline]
pub fn dec_mpls_ttl(head: &mut [u8], layers: &Layers) -> Ttl {
    let mut outcome = Ttl::Absent;
    mpls_entry(head, layers, |entry| {
        let expired = entry & 0xff <= 1;
        outcome = if expired { Ttl::Expired } else { Ttl::Changed };
        if expired { entry } else { entry - 1 }
    });
    outcome
}

/// Where a time to live is.
#[derive(Clone, Copy)]
enum TtlPlace {
    Mpls(usize),
    Ipv4(usize),
    Ipv6(usize),
}

impl TtlPlace {
    /// That of the header behind the outermost MPLS label stack entry: the next entry, or IP.
    #[inline]
    fn behind_mpls(layers: &Layers) -> Option<TtlPlace> {
        match (layers.mpls_count(), layers.mpls_inner(), layers.mpls_payload()) {
            (0, ..) => None,
            (1, L3::Ipv4, Some(at)) => Some(TtlPlace::Ipv4(at)),
            (1, L3::Ipv6, Some(at)) => Some(TtlPlace::Ipv6(at)),
            (1, ..) => None,
            _ => Some(TtlPlace::Mpls(layers.l3_offset() + mpls::SIZE)),
        }
    }

    #[inline]
    fn of_ip(layers: &Layers) -> Option<TtlPlace> {
        match layers.l3() {
            L3::Ipv4 => Some(TtlPlace::Ipv4(layers.l3_offset())),
            L3::Ipv6 => Some(TtlPlace::Ipv6(layers.l3_offset())),
            L3::None | L3::Arp | L3::Mpls | L3::Pbb => None,
        }
    }

    #[inline]
    fn read(self, head: &[u8]) -> Option<u8> {
        let at = match self {
            TtlPlace::Mpls(at) => at + 3,
            TtlPlace::Ipv4(at) => at + ipv4::offset::TTL,
            TtlPlace::Ipv6(at) => at + ipv6::offset::HOP_LIMIT,
        };
        head.get(at).copied()
    }

    #[inline]
    fn write(self, head: &mut [u8], ttl: u8) -> bool {
        match self {
            TtlPlace::Mpls(at) => write(head, at + 3, [ttl]),
            TtlPlace::Ipv4(at) => ipv4_word(head, at, ipv4::offset::TTL, |word| {
                word & 0xff | u16::from(ttl) << 8
            }),
            TtlPlace::Ipv6(at) => write(head, at + ipv6::offset::HOP_LIMIT, [ttl]),
        }
    }
}

/// Copies the time to live inwards: from the outermost MPLS label stack entry to the next entry or to the
/// IP packet that follows.
#[inline]
pub fn copy_ttl_in(head: &mut [u8], layers: &Layers) -> bool {
    let outer = TtlPlace::Mpls(layers.l3_offset());
    let inner = TtlPlace::behind_mpls(layers);
    inner
        .zip(outer.read(head))
        .is_some_and(|(inner, ttl)| inner.write(head, ttl))
}

/// Copies the time to live outwards: to the outermost MPLS label stack entry from the next entry or from
/// the IP packet that follows.
#[inline]
pub fn copy_ttl_out(head: &mut [u8], layers: &Layers) -> bool {
    let inner = TtlPlace::behind_mpls(layers).and_then(|inner| inner.read(head));
    inner.is_some_and(|ttl| mpls_ttl(head, layers, ttl))
}

/// Sets the time to live or hop limit of IP.
#[inline]
pub fn ip_ttl(head: &mut [u8], layers: &Layers, ttl: u8) -> bool {
    TtlPlace::of_ip(layers).is_some_and(|place| place.write(head, ttl))
}

/// Decrements the time to live or hop limit of IP.
#[inline]
pub fn dec_ip_ttl(head: &mut [u8], layers: &Layers) -> Ttl {
    let place = TtlPlace::of_ip(layers);
    match place.and_then(|place| Some((place, place.read(head)?))) {
        None => Ttl::Absent,
        Some((_, 0 | 1)) => Ttl::Expired,
        Some((place, ttl)) => {
            place.write(head, ttl - 1);
            Ttl::Changed
        }
    }
}

/// Changes a 16-bit word of the IPv4 header at `at`, and mends the header's checksum.
#[inline]
fn ipv4_word(head: &mut [u8], at: usize, offset: usize, change: impl FnOnce(u16) -> u16) -> bool {
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

/// Sets the protocol of IPv4, or the next header that announces what follows the extension headers of
/// IPv6. The transport's checksum is left alone: what was a transport is now something else.
pub fn ip_proto(head: &mut [u8], layers: &Layers, proto: IpProto) -> bool {
    let at = layers.l3_offset();
    match layers.l3() {
        L3::Ipv4 => ipv4_word(head, at, ipv4::offset::TTL, |word| {
            word & 0xff00 | u16::from(proto.0)
        }),
        L3::Ipv6 => {
            // Over the extension headers again, to the last one that announces another.
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

/// Changes an IPv4 address, the header's checksum and that of the transport.
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

/// Changes a 16-bit word of a transport whose checksum has 16 bits.
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

/// Sets the source port of TCP, UDP or SCTP, whichever `l4` says, if that is what the packet has.
#[inline]
pub fn l4_src(head: &mut [u8], layers: &Layers, l4: L4, port: u16) -> bool {
    // The three have their ports at the same place.
    l4_port(head, layers, l4, tcp::offset::SRC, port)
}

/// Sets the destination port of TCP, UDP or SCTP, whichever `l4` says, if that is what the packet has.
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
    let old = crate::bytes::array::<4, _>(header, 0);
    header[offset..offset + 2].copy_from_slice(&port.to_be_bytes());
    let new = crate::bytes::array::<4, _>(header, 0);
    let crc = u32::from_le_bytes(crate::bytes::array(header, sctp::offset::CHECKSUM));
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
