//! Service paths: network service headers are added and removed (RFC 8300).
//!
//! The outer header is Ethernet alone: packets go to the address of the other switch on the underlay's link.
//! The service functions behind this switch do not handle the header. This switch is therefore a forwarder
//! and a proxy of the path: it removes the header before a function, and adds the next one after it.

use arrayvec::ArrayVec;
use millrace_types::{PortNo, ServicePath};
use millrace_wire::nsh::{ETHERNET, Repr, SIZE_MAX, TTL_MAX, View};
use millrace_wire::{EtherType, Packet, ethernet};

use super::decapsulation::Decapsulation;
use super::nsh_port::{NshPath, NshPort};
use super::table::Tunnels;
use crate::DropReason;

/// Adds the header to a packet, to be sent out of the underlay.
///
/// # Errors
/// The reason why the header cannot be added; the packet is unchanged.
pub(super) fn encapsulate<P: Packet>(
    packet: &mut P,
    port: &NshPort,
    tunnel_id: u64,
) -> Result<(), DropReason> {
    let (path, ttl) = match port.sends {
        NshPath::None => return Err(DropReason::NshIndex),
        NshPath::Fixed(path) => (path, port.ttl),
        NshPath::Flow => {
            let (ttl, header) = (tunnel_id >> 32, tunnel_id as u32);
            let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl <= TTL_MAX);
            let ttl = ttl.ok_or(DropReason::TunnelKey)?;
            // A tunnel_id that an entry has set may contain no time to live.
            (
                ServicePath::from_header(header),
                if ttl == 0 { port.ttl } else { ttl },
            )
        }
    };
    if path.index() == 0 {
        return Err(DropReason::NshIndex);
    }
    let header = Repr {
        ttl,
        next_protocol: ETHERNET,
        path,
        context: port.context,
    };
    let mut bytes: ArrayVec<u8, { ethernet::SIZE + SIZE_MAX }> =
        port.remote.0.into_iter().chain(port.local_mac.0).collect();
    bytes.extend(EtherType::NSH.0.to_be_bytes());
    bytes.extend(header.to_bytes());
    if packet.len() + bytes.len() - ethernet::SIZE > usize::from(port.mtu) {
        return Err(DropReason::TunnelMtu);
    }
    packet.prepend(bytes.len()).map_err(|_| DropReason::NoHeadroom)?;
    let room = packet
        .head_mut()
        .get_mut(..bytes.len())
        .ok_or(DropReason::NoHeadroom)?;
    room.copy_from_slice(&bytes);
    Ok(())
}

/// Removes the header of a packet that arrived at an underlay to one of our addresses; `None` if it has no
/// such header.
pub(super) fn decapsulate<'t, P: Packet>(
    packet: &mut P,
    tunnels: &'t Tunnels,
    underlay: PortNo,
) -> Option<Decapsulation<'t>> {
    let (outside, inside) = packet.head().split_first_chunk::<{ ethernet::SIZE }>()?;
    if outside[12..] != EtherType::NSH.0.to_be_bytes() {
        return None;
    }
    let Ok(view) = View::new(inside) else {
        return Some(Decapsulation::Drop(DropReason::NshMalformed));
    };
    let size = ethernet::SIZE + view.size();
    if view.is_oam() || view.next_protocol() != ETHERNET || view.payload().len() < ethernet::SIZE {
        return Some(Decapsulation::Drop(DropReason::NshMalformed));
    }
    let path = view.path();
    // The time to live has 6 bits. It is decremented, from 0 to 63, and the packet is dropped if the result
    // is zero (RFC 8300, section 2.2).
    let ttl = match view.ttl() {
        0 => TTL_MAX,
        1 => return Some(Decapsulation::Drop(DropReason::NshTtl)),
        ttl => ttl - 1,
    };
    if path.index() == 0 {
        return Some(Decapsulation::Drop(DropReason::NshIndex));
    }
    let Some(compiled) = tunnels.of_path(underlay, path) else {
        return Some(Decapsulation::Drop(DropReason::NshUnknown));
    };
    packet.trim_front(size);
    let tunnel_id = u64::from(ttl) << 32 | u64::from(path.header());
    Some(Decapsulation::Packet(compiled, tunnel_id))
}
