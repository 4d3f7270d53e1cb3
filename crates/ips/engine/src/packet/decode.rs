//! Decodes a packet, and the payload of the innermost packet of a frame.

use millrace_types::Time;

use super::events::PacketEvents;
use super::headers::{LinkType, Undecoded};
use super::link::{IpHeaderLocation, find_ip_header};
use super::{Packet, ip, transport, tunnel};

/// Largest number of nested packets that [`payload`] decodes.
pub(super) const DEPTH: u8 = 16;

/// Facts about a packet that its bytes do not contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    /// Number of the frame.
    pub(crate) number: u64,
    /// Time of the frame.
    pub(crate) time: Time,
    /// Number of tunnels around the packet.
    pub(crate) tunnel_depth: u8,
    /// True if the bytes are a packet that was reassembled from fragments.
    pub(crate) is_reassembled: bool,
    /// Number of reassembled packets that contain this packet.
    pub(crate) reassemblies: u8,
    pub(crate) is_tunnel: bool,
    /// Events of the headers before the IP header.
    pub(crate) events: PacketEvents,
}

impl Context {
    /// Returns the facts about a packet that is read again for a record, in this many tunnels.
    pub(super) const fn of_record(tunnel_depth: u8) -> Context {
        Context {
            number: 0,
            time: Time::ZERO,
            tunnel_depth,
            is_reassembled: false,
            reassemblies: 0,
            is_tunnel: false,
            events: PacketEvents::NONE,
        }
    }
}

impl<'a> Packet<'a> {
    /// Returns the packet whose IP header is at `network` in `frame`.
    pub(crate) fn decode(
        frame: &'a [u8],
        network: IpHeaderLocation,
        context: Context,
    ) -> Result<Packet<'a>, Undecoded> {
        let mut packet = Packet::EMPTY;
        packet.read(frame, network, context)?;
        Ok(packet)
    }

    /// Decodes the packet whose IP header is at `network` in `frame` into `self`, which is empty. This saves the
    /// copy of a large value.
    pub(crate) fn read(
        &mut self,
        frame: &'a [u8],
        network: IpHeaderLocation,
        context: Context,
    ) -> Result<(), Undecoded> {
        self.number = context.number;
        self.time = context.time;
        self.vlans = network.vlans.ids;
        self.vlan_len = network.vlans.len;
        self.ip_offset = network.offset;
        self.is_reassembled = context.is_reassembled;
        self.is_tunnel = context.is_tunnel;
        self.is_pseudo = false;
        self.tunnel_depth = context.tunnel_depth;
        self.events = context.events;
        ip::decode(self, frame, network.version)?;
        self.size = match context.tunnel_depth == 0 && !context.is_reassembled {
            true => frame.len(),
            false => self.ip.bytes.len(),
        };
        if !self.is_fragment {
            transport::decode(self)?;
        }
        Ok(())
    }
}

/// Returns the bytes of a frame from its IP header on; `None` if it carries no IP.
pub fn ip_packet(frame: &[u8], link: LinkType) -> Option<&[u8]> {
    let location = find_ip_header(link, frame).ok()?;
    frame.get(location.offset..)
}

/// Returns the payload of the innermost packet of a frame, for event records; `None` if the frame has no
/// packet.
pub fn payload(frame: &[u8], link: LinkType) -> Option<&[u8]> {
    let mut location = find_ip_header(link, frame).ok()?;
    let mut found = None;
    for tunnel_depth in 0..DEPTH {
        let context = Context::of_record(tunnel_depth);
        let Ok(packet) = Packet::decode(frame, location, context) else {
            break;
        };
        found = Some(packet.payload);
        match tunnel::inside(frame, &packet, &tunnel::Tunnels::default()) {
            Some(inside) => location = inside,
            None => break,
        }
    }
    found
}
