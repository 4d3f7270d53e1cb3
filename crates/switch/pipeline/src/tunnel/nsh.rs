//! Service paths: into a network service header (RFC 8300), and out of one.
//!
//! The outside is Ethernet alone: what leaves goes to the address of the other switch on the underlay's link. What is
//! behind us on a path knows nothing of headers, so that this switch is a forwarder and a proxy of the path: it takes
//! the header off, and puts the next one on.

use arrayvec::ArrayVec;
use millrace_types::{Mac, PortNo, ServicePath};
use millrace_wire::nsh::{CONTEXT_SIZE, ETHERNET, Repr, SIZE_MAX, TTL_MAX, View};
use millrace_wire::{EtherType, Packet, ethernet};

use super::{Taken, Tunnels};
use crate::DropReason;

/// Which packets of service paths a port takes, or what it says of those that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NshPath {
    /// None.
    None,
    /// Those at this place on a path.
    Fixed(ServicePath),
    /// All: the tunnel_id is the time to live, the path and the index, of 6, 24 and 8 bits.
    Flow,
}

/// A logical port at which service paths begin, end, or go on in another switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NshPort {
    /// Its number.
    pub port: PortNo,
    /// The port by which packets come and go.
    pub underlay: PortNo,
    /// Our address on the underlay's link.
    pub local_mac: Mac,
    /// The other switch's.
    pub remote: Mac,
    /// What comes in at this port.
    pub takes: NshPath,
    /// What is said of packets that go out of it.
    pub sends: NshPath,
    /// Time to live of packets that do not have one in their tunnel_id: 1 to 63.
    pub ttl: u8,
    /// Metadata of a fixed length; without, there is none.
    pub context: Option<[u8; CONTEXT_SIZE]>,
    /// The longest that the underlay takes behind an Ethernet header, in bytes.
    pub mtu: u16,
}

/// Puts a header in front of a packet, to be sent out of the underlay.
///
/// # Errors
/// Why it cannot be; the packet is as it was.
pub(super) fn enclose<P: Packet>(packet: &mut P, port: &NshPort, tunnel_id: u64) -> Result<(), DropReason> {
    let (path, ttl) = match port.sends {
        NshPath::None => return Err(DropReason::NshIndex),
        NshPath::Fixed(path) => (path, port.ttl),
        NshPath::Flow => {
            let (ttl, header) = (tunnel_id >> 32, tunnel_id as u32);
            let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl <= TTL_MAX);
            let ttl = ttl.ok_or(DropReason::TunnelKey)?;
            // Set by an entry, a tunnel_id may well be without.
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

/// Takes the header off a packet that came in at an underlay to an address of ours; `None` if it has none.
pub(super) fn take_out<'t, P: Packet>(
    packet: &mut P,
    tunnels: &'t Tunnels,
    underlay: PortNo,
) -> Option<Taken<'t>> {
    let (outside, inside) = packet.head().split_first_chunk::<{ ethernet::SIZE }>()?;
    if outside[12..] != EtherType::NSH.0.to_be_bytes() {
        return None;
    }
    let Ok(view) = View::new(inside) else {
        return Some(Taken::Drop(DropReason::NshMalformed));
    };
    let size = ethernet::SIZE + view.size();
    if view.is_oam() || view.next_protocol() != ETHERNET || view.payload().len() < ethernet::SIZE {
        return Some(Taken::Drop(DropReason::NshMalformed));
    }
    let path = view.path();
    // Section 2.2: less by one, of 6 bits, and not forwarded with zero.
    let ttl = match view.ttl() {
        0 => TTL_MAX,
        1 => return Some(Taken::Drop(DropReason::NshTtl)),
        ttl => ttl - 1,
    };
    if path.index() == 0 {
        return Some(Taken::Drop(DropReason::NshIndex));
    }
    let Some(ready) = tunnels.of_path(underlay, path) else {
        return Some(Taken::Drop(DropReason::NshUnknown));
    };
    packet.trim_front(size);
    let tunnel_id = u64::from(ttl) << 32 | u64::from(path.header());
    Some(Taken::Out(ready, tunnel_id))
}
