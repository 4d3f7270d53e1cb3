//! The parser of frames into [`Layers`].
//!
//! The parser works with values and not with `&mut Layers`, so that the result is made in registers and
//! stored once. Filling the result field by field in memory and then copying it causes a store-forwarding
//! stall, which takes as long as the whole parse. For the same reason the parser is inlined into its callers,
//! so it should have few callers. Functions for rare cases are not inlined.

use super::{Depth, L3, L4, Layers, Nd};
use crate::bytes::{be16, chunk};
use crate::ipv6::extensions::{Fragment, walk};
use crate::{
    EtherType, IpProto, Packet, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, mpls, pbb, sctp, tcp, udp, vlan,
};

impl Layers {
    /// Parses a frame that is in one segment.
    #[inline(always)]
    pub fn parse(frame: &[u8], depth: Depth) -> Layers {
        Self::parse_head(frame, frame.len(), depth)
    }

    /// Parses the head of a packet.
    #[inline(always)]
    pub fn of<P: Packet>(packet: &P, depth: Depth) -> Layers {
        Self::parse_head(packet.head(), packet.len(), depth)
    }

    /// Parses the head of a packet of `size` bytes in all segments.
    #[inline(always)]
    pub fn parse_head(head: &[u8], size: usize, depth: Depth) -> Layers {
        parse(head, size, depth)
    }
}

#[inline(always)]
fn parse(head: &[u8], size: usize, depth: Depth) -> Layers {
    let head = head.get(..usize::from(u16::MAX)).unwrap_or(head);
    let Some(header) = chunk::<{ ethernet::SIZE }>(head, 0) else {
        return Layers::NONE;
    };
    let mut ether_type = EtherType(be16(header, 12));
    let mut at = ethernet::SIZE;
    while ether_type.is_vlan() {
        let Some(tag) = chunk::<{ vlan::SIZE }>(head, at) else {
            break;
        };
        ether_type = EtherType(be16(tag, 2));
        at += vlan::SIZE;
    }
    let vlan_count = ((at - ethernet::SIZE) / vlan::SIZE) as u16;
    if ether_type < EtherType::MIN {
        (ether_type, at) = length(head, at);
    }
    let layers = Layers {
        ether_type,
        vlan_count,
        l3_offset: at as u16,
        ..Layers::NONE
    };
    match ether_type {
        _ if depth == Depth::L2 => layers,
        EtherType::IPV4 => parse_ipv4(layers, head, at, size, depth),
        EtherType::IPV6 => parse_ipv6(layers, head, at, size, depth),
        EtherType::ARP if chunk(head, at).is_some_and(arp::is_ipv4_over_ethernet) => Layers {
            l3: L3::Arp,
            ..layers
        },
        EtherType::PBB if chunk::<{ pbb::SIZE }>(head, at).is_some() => Layers {
            l3: L3::Pbb,
            ..layers
        },
        EtherType::MPLS | EtherType::MPLS_MULTICAST => {
            let (mpls_count, mpls_payload, mpls_inner) = stack(head, at);
            let l3 = if mpls_count > 0 { L3::Mpls } else { L3::None };
            Layers {
                l3,
                mpls_count,
                mpls_payload,
                mpls_inner,
                ..layers
            }
        }
        _ => layers,
    }
}

/// Returns the EtherType of an 802.3 frame, and the offset of its payload; `at` is the offset after the length field.
#[cold]
fn length(head: &[u8], at: usize) -> (EtherType, usize) {
    match head.get(at..).and_then(ethernet::snap) {
        Some(ether_type) => (ether_type, at + ethernet::SNAP_SIZE),
        None => (EtherType::NOT_ETH_TYPE, at),
    }
}

#[inline(always)]
fn parse_ipv4(layers: Layers, head: &[u8], at: usize, size: usize, depth: Depth) -> Layers {
    let Some(header) = chunk::<{ ipv4::MIN_SIZE }>(head, at) else {
        return layers;
    };
    let header_size = usize::from(header[ipv4::offset::VERSION_IHL] & 0xf) * 4;
    let total_size = usize::from(be16(header, ipv4::offset::TOTAL_SIZE));
    // The options must be in the head, too, and the sizes must not contradict each other.
    let good = header[ipv4::offset::VERSION_IHL] >> 4 == 4
        && header_size >= ipv4::MIN_SIZE
        && header_size <= total_size
        && at + header_size <= head.len()
        && at + total_size <= size;
    if !good {
        return layers;
    }
    let field = be16(header, ipv4::offset::FRAGMENT);
    let fragment = match field & (ipv4::FRAGMENT_OFFSET | ipv4::MORE_FRAGMENTS) {
        0 => Fragment::Whole,
        ipv4::MORE_FRAGMENTS => Fragment::First,
        _ => Fragment::Later,
    };
    let proto = IpProto(header[ipv4::offset::PROTO]);
    let (l4_offset, l4_size) = (at + header_size, total_size - header_size);
    let l4 = if depth == Depth::L3 || fragment == Fragment::Later {
        L4::None
    } else {
        let bytes = seen(head, l4_offset, l4_size);
        match proto {
            IpProto::ICMPV4 if bytes.len() >= icmpv4::SIZE => L4::Icmpv4,
            _ => transport(proto, bytes, l4_size, fragment),
        }
    };
    Layers {
        l3: L3::Ipv4,
        l4,
        ip_proto: proto,
        fragment,
        l4_offset: l4_offset as u16,
        l4_size: l4_size as u16,
        ..layers
    }
}

#[inline(always)]
fn parse_ipv6(layers: Layers, head: &[u8], at: usize, size: usize, depth: Depth) -> Layers {
    let Some(header) = chunk::<{ ipv6::SIZE }>(head, at) else {
        return layers;
    };
    let payload_at = at + ipv6::SIZE;
    let payload_size = usize::from(be16(header, ipv6::offset::PAYLOAD_SIZE));
    if header[0] >> 4 != 6 || payload_at + payload_size > size {
        return layers;
    }
    let walk = walk(
        IpProto(header[ipv6::offset::NEXT_HEADER]),
        seen(head, payload_at, payload_size),
    );
    let (l4_offset, l4_size) = (payload_at + walk.size, payload_size - walk.size);
    let bytes = seen(head, l4_offset, l4_size);
    let l4 = match walk.proto {
        _ if depth == Depth::L3 || walk.fragment == Fragment::Later => L4::None,
        IpProto::ICMPV6 if bytes.len() >= icmpv6::SIZE => L4::Icmpv6,
        proto => transport(proto, bytes, l4_size, walk.fragment),
    };
    let (nd, nd_lla) = match l4 {
        L4::Icmpv6 if depth == Depth::All => neighbor(bytes),
        _ => (Nd::None, 0),
    };
    Layers {
        l3: L3::Ipv6,
        l4,
        ip_proto: walk.proto,
        fragment: walk.fragment,
        ext_headers: walk.headers,
        routed: walk.routed,
        l4_offset: l4_offset as u16,
        l4_size: l4_size as u16,
        nd,
        nd_lla: if nd_lla == 0 {
            0
        } else {
            (l4_offset + nd_lla) as u16
        },
        ..layers
    }
}

/// Returns the bytes of the IP packet's payload that are in the first segment.
#[inline(always)]
fn seen(head: &[u8], at: usize, size: usize) -> &[u8] {
    head.get(at..head.len().min(at + size)).unwrap_or_default()
}

/// Parses the transport header. `bytes` is its part in the first segment, `size` its size in all segments.
#[inline(always)]
fn transport(proto: IpProto, bytes: &[u8], size: usize, fragment: Fragment) -> L4 {
    match proto {
        IpProto::TCP => match chunk::<{ tcp::MIN_SIZE }>(bytes, 0) {
            Some(header) => {
                let header_size = usize::from(header[tcp::offset::DATA_OFFSET] >> 4) * 4;
                if header_size >= tcp::MIN_SIZE && header_size <= size {
                    L4::Tcp
                } else {
                    L4::None
                }
            }
            None => L4::None,
        },
        IpProto::UDP => match chunk::<{ udp::SIZE }>(bytes, 0) {
            Some(header) => {
                let given = usize::from(be16(header, udp::offset::SIZE));
                // A first fragment holds the length of the whole datagram.
                let fits = given <= size || fragment == Fragment::First;
                if given >= udp::SIZE && fits {
                    L4::Udp
                } else {
                    L4::None
                }
            }
            None => L4::None,
        },
        IpProto::SCTP if bytes.len() >= sctp::SIZE => L4::Sctp,
        _ => L4::None,
    }
}

/// Returns the type of a neighbour discovery message, and the offset of the MAC address in its link-layer address
/// option (zero if it has none). A second such option, and options after a malformed one, are ignored.
#[inline(never)]
fn neighbor(bytes: &[u8]) -> (Nd, usize) {
    let Some(header) = chunk::<{ icmpv6::ND_SIZE }>(bytes, 0) else {
        return (Nd::None, 0);
    };
    let kind = header[icmpv6::offset::TYPE];
    let nd = match (kind, header[icmpv6::offset::CODE]) {
        (icmpv6::NEIGHBOR_SOLICIT, 0) => Nd::Solicit,
        (icmpv6::NEIGHBOR_ADVERT, 0) => Nd::Advert,
        _ => return (Nd::None, 0),
    };
    let mut at = icmpv6::ND_SIZE;
    while let Some(option) = chunk::<{ icmpv6::ND_LLA_SIZE }>(bytes, at) {
        let size = usize::from(option[1]) * 8;
        if size == 0 {
            break;
        }
        if option[0] == icmpv6::lla_option(kind) && size == icmpv6::ND_LLA_SIZE {
            return (nd, at + icmpv6::offset::ND_LLA);
        }
        at += size;
    }
    (nd, 0)
}

/// Walks the MPLS label stack at `begin`. Returns the number of entries in the head, the offset after the stack (zero
/// if its bottom is not in the head), and the apparent type of the payload.
#[inline(never)]
fn stack(head: &[u8], begin: usize) -> (u16, u16, L3) {
    let mut at = begin;
    let mut bottom = false;
    while !bottom && let Some(entry) = chunk::<{ mpls::SIZE }>(head, at) {
        bottom = u32::from_be_bytes(*entry) & mpls::BOS != 0;
        at += mpls::SIZE;
    }
    // MPLS does not identify its payload; the first four bits distinguish IP packets (RFC 4928).
    let inner = match head.get(at).map(|byte| byte >> 4) {
        Some(4) if bottom && head.len() - at >= ipv4::MIN_SIZE => L3::Ipv4,
        Some(6) if bottom && head.len() - at >= ipv6::SIZE => L3::Ipv6,
        _ => L3::None,
    };
    (
        ((at - begin) / mpls::SIZE) as u16,
        if bottom { at as u16 } else { 0 },
        inner,
    )
}
