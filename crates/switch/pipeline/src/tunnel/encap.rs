//! Encapsulation and decapsulation.

use core::net::IpAddr;

use millrace_types::Mac;
use millrace_wire::tunnel::{Outer, OuterError, TunnelKind, entropy};
use millrace_wire::{Depth, EtherType, IpProto, L3, Layers, Packet, checksum, ethernet, ip};

use super::decapsulation::Decapsulation;
use super::table::Tunnels;
use super::{CompiledTunnel, Encapsulation, TunnelKey, nsh};
use crate::DropReason;

/// The ECN fields CE and Not-ECT (RFC 3168, section 5).
const CONGESTED: u8 = 3;
const NOT_CAPABLE: u8 = 0;

/// Encapsulates a packet. The caller sends it out of the underlay of the tunnel.
///
/// # Errors
/// The reason why the packet cannot be encapsulated; the packet may have been changed.
pub(crate) fn encapsulate<P: Packet>(
    packet: &mut P,
    tunnel: &CompiledTunnel,
    tunnel_id: u64,
) -> Result<(), DropReason> {
    let (tunnel, envelope) = match &tunnel.encapsulation {
        Encapsulation::Ip(tunnel, Some(envelope)) => (tunnel, envelope),
        Encapsulation::Ip(_, None) => return Err(DropReason::TunnelUnresolved),
        Encapsulation::Nsh(port) => return nsh::encapsulate(packet, port, tunnel_id),
    };
    let entropy = entropy(packet.head(), packet.len());
    let inner = Layers::of(packet, Depth::L2);
    let (tos, _) = class(packet.head(), &inner);
    // The outer header has the ECN field of the inner one (RFC 6040, section 4.1).
    let tos = match tunnel.dscp {
        Some(dscp) => dscp << 2 | tos & 3,
        None => tos,
    };
    if !tunnel.kind.carries_ethernet() {
        let carried = inner.vlan_count() == 0
            && match tunnel.kind {
                TunnelKind::GtpU => matches!(inner.ether_type(), EtherType::IPV4 | EtherType::IPV6),
                _ => matches!(inner.ether_type(), EtherType::MPLS | EtherType::MPLS_MULTICAST),
            };
        if !carried || packet.head().len() <= ethernet::SIZE {
            return Err(DropReason::TunnelPayload);
        }
        packet.trim_front(ethernet::SIZE);
    }
    let size = packet.len();
    if envelope.packet_size(size) > usize::from(tunnel.mtu) {
        return Err(DropReason::TunnelMtu);
    }
    let key = match tunnel.key {
        TunnelKey::None => 0,
        TunnelKey::Fixed(key) => key,
        TunnelKey::Flow => u32::try_from(tunnel_id)
            .ok()
            .filter(|key| *key <= tunnel.kind.key_max())
            .ok_or(DropReason::TunnelKey)?,
    };
    let sum = if envelope.has_checksum() {
        packet.sum(0, size)
    } else {
        checksum::Sum::default()
    };
    packet
        .prepend(envelope.len())
        .map_err(|_| DropReason::NoHeadroom)?;
    let written = envelope.write(packet.head_mut(), size, key, tos, entropy, sum);
    written.map_err(|_| DropReason::TunnelMtu)
}

/// Returns the traffic class of the IP packet in a frame and the offset of its header; zero and `None`
/// without IP.
fn class(head: &[u8], layers: &Layers) -> (u8, Option<usize>) {
    let at = ethernet::SIZE + 4 * layers.vlan_count();
    match (layers.ether_type(), head.get(at..at + 2)) {
        (EtherType::IPV4, Some([_, tos])) => (*tos, Some(at)),
        (EtherType::IPV6, Some([first, second])) => (first << 4 | second >> 4, Some(at)),
        _ => (0, None),
    }
}

/// Decapsulates a packet that arrived at an underlay, if it belongs to one of our tunnels.
pub(crate) fn decapsulate<'t, P: Packet>(
    packet: &mut P,
    tunnels: &'t Tunnels,
    underlay: millrace_types::PortNo,
) -> Decapsulation<'t> {
    let head = packet.head();
    let Some([d0, d1, d2, d3, d4, d5]) = head.first_chunk::<6>() else {
        return Decapsulation::Other;
    };
    if !tunnels.is_ours(underlay, Mac([*d0, *d1, *d2, *d3, *d4, *d5])) {
        return Decapsulation::Other;
    }
    if tunnels.has_paths(underlay)
        && let Some(taken) = nsh::decapsulate(packet, tunnels, underlay)
    {
        return taken;
    }
    let head = packet.head();
    let is_local = |address| tunnels.is_local(underlay, address);
    let outer = match Outer::find(head, packet.len(), tunnels.udp_ports(underlay), is_local) {
        // A train with a wrong checksum is not repaired by its segmentation.
        Some(Err(OuterError::Checksum)) => return Decapsulation::Drop(DropReason::TunnelMalformed),
        Some(_) if packet.segment_size().is_some() => return Decapsulation::Train,
        Some(Ok(outer)) => outer,
        Some(Err(_)) => return Decapsulation::Drop(DropReason::TunnelMalformed),
        None if is_for_neighbours(head, packet.len(), tunnels, underlay) => return Decapsulation::Neighbour,
        None => return Decapsulation::Other,
    };
    let Some((tunnel, local_mac)) = tunnels.of_envelope(underlay, &outer) else {
        return Decapsulation::Drop(DropReason::TunnelUnknown);
    };
    if !checksum_is_right(packet, &outer) {
        return Decapsulation::Drop(DropReason::TunnelMalformed);
    }
    let ether_type = outer.inside;
    packet.trim_front(outer.size);
    // Removes bytes after the datagram, such as the padding of a short frame. Bytes that begin before the
    // last segment stay.
    packet.truncate(outer.end.saturating_sub(outer.size));
    if let Some(ether_type) = ether_type {
        // An inner packet without Ethernet header gets one: our address as destination, and the fixed source
        // 02:00:00:00:00:00.
        if packet.prepend(ethernet::SIZE).is_err() {
            return Decapsulation::Drop(DropReason::NoHeadroom);
        }
        let Some(header) = packet.head_mut().first_chunk_mut::<{ ethernet::SIZE }>() else {
            return Decapsulation::Drop(DropReason::TunnelMalformed);
        };
        header[..6].copy_from_slice(&local_mac.0);
        header[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 0]);
        header[12..].copy_from_slice(&ether_type.0.to_be_bytes());
    }
    if !decapsulate_ecn(packet, outer.ecn) {
        return Decapsulation::Drop(DropReason::TunnelCongested);
    }
    Decapsulation::Packet(tunnel, outer.key.unwrap_or_default().into())
}

/// Sets the ECN field of the inner header by both ECN fields (RFC 6040, section 4.2). Returns false if the
/// packet must be dropped.
fn decapsulate_ecn<P: Packet>(packet: &mut P, outer: u8) -> bool {
    if outer & 3 != CONGESTED && outer & 3 != 1 {
        return true;
    }
    let layers = Layers::of(packet, Depth::L2);
    let (tos, at) = class(packet.head(), &layers);
    let Some(at) = at else { return true };
    let inner = tos & 3;
    let merged = match (inner, outer & 3) {
        (NOT_CAPABLE, CONGESTED) => return false,
        (_, CONGESTED) => CONGESTED,
        // ECT(1) outside takes precedence over ECT(0) inside.
        (2, 1) => 1,
        _ => inner,
    };
    if merged == inner {
        return true;
    }
    let Some(header) = packet.head_mut().get_mut(at..) else {
        return true;
    };
    if layers.ether_type() == EtherType::IPV6 {
        if let Some(byte) = header.get_mut(1) {
            *byte = *byte & 0xcf | merged << 4;
        }
    } else if let Some(fixed) = header.first_chunk_mut::<20>() {
        let old = u16::from_be_bytes([fixed[0], fixed[1]]);
        fixed[1] = fixed[1] & 0xfc | merged;
        let new = u16::from_be_bytes([fixed[0], fixed[1]]);
        let sum = checksum::Change::of16(old, new).apply(u16::from_be_bytes([fixed[10], fixed[11]]));
        fixed[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

/// Returns true if the outer UDP or GRE checksum is right, if there is one.
fn checksum_is_right<P: Packet>(packet: &P, outer: &Outer) -> bool {
    let Some((begin, _)) = outer.checksum else {
        return true;
    };
    let Some(size) = outer.end.checked_sub(begin) else {
        return false;
    };
    let inside = packet.sum(begin, size);
    let sum = match (outer.kind, outer.src, outer.dst) {
        (TunnelKind::Gre, ..) => inside,
        (_, IpAddr::V4(src), IpAddr::V4(dst)) => ip::Pseudo::V4 { src, dst }
            .sum(IpProto::UDP, size)
            .add16(inside.folded()),
        (_, IpAddr::V6(src), IpAddr::V6(dst)) => ip::Pseudo::V6 { src, dst }
            .sum(IpProto::UDP, size)
            .add16(inside.folded()),
        _ => return false,
    };
    sum.folded() == 0xffff
}

/// Returns true if a packet asks for one of our addresses, or answers a request of ours: ARP and neighbour
/// discovery.
fn is_for_neighbours(head: &[u8], size: usize, tunnels: &Tunnels, underlay: millrace_types::PortNo) -> bool {
    let layers = Layers::parse_head(head, size, Depth::All);
    if layers.vlan_count() != 0 {
        return false;
    }
    let l3 = layers.l3_offset();
    match layers.l3() {
        L3::Arp => {
            let target = head.get(l3 + 24..).and_then(<[u8]>::first_chunk::<4>);
            target.is_some_and(|target| tunnels.is_local(underlay, IpAddr::from(*target)))
        }
        L3::Ipv6 => {
            let Some(place) = layers.nd_target() else {
                return false;
            };
            let at = |place: usize| head.get(place..).and_then(<[u8]>::first_chunk::<16>);
            let is_local = |address: Option<&[u8; 16]>| {
                address.is_some_and(|address| tunnels.is_local(underlay, IpAddr::from(*address)))
            };
            // A solicitation contains the target's address; an advertisement is addressed to the host that
            // asked.
            is_local(at(place)) || is_local(at(l3 + 24))
        }
        _ => false,
    }
}
