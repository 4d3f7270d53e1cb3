//! Decodes a packet, and the payload of the innermost packet of a frame.

use super::context::Context;
use super::headers::{LinkType, Undecoded};
use super::link::{IpHeaderLocation, find_ip_header};
use super::{Packet, ip, transport, tunnel};

/// Largest number of nested packets that [`payload`] decodes.
pub(super) const DEPTH: u8 = 16;

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
        self.compares_checksums = context.compares_checksums;
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
