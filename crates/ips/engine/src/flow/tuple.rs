//! Keys of packets, by which the table finds their flow.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr};

use millrace_wire::{IpProto, ipv4, ipv6};

use super::{Direction, FlowKey};
use crate::hash::Seed;
use crate::packet::{IcmpHeader, Packet};

impl FlowKey {
    /// Returns true if a packet has the addresses and the protocol of the flow's packets in a direction. An ICMP error about the
    /// flow may have others.
    pub(crate) fn has_ends_of(&self, packet: &Packet<'_>, direction: Direction) -> bool {
        let ends = match direction {
            Direction::ToServer => (self.client, self.server),
            Direction::ToClient => (self.server, self.client),
        };
        packet.protocol == self.protocol && (packet.src, packet.dst) == ends
    }
}

/// Address and port.
type End = (IpAddr, u16);

/// The lookup key of a packet. Both directions of a flow have the same hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    src: End,
    dst: End,
    protocol: u8,
    vlans: [u16; 3],
    tunnel_depth: u8,
}

impl Tuple {
    /// Returns the key of a packet, and true if the packet travels against the direction of the key. An ICMP
    /// error does: it goes to the source of the packet that it quotes. Returns `None` for packets without a
    /// flow.
    pub(crate) fn of(packet: &Packet<'_>) -> Option<(Tuple, bool)> {
        let tuple = |src, dst, protocol, is_quoted| {
            let tuple = Tuple {
                src,
                dst,
                protocol,
                vlans: packet.vlans,
                tunnel_depth: packet.tunnel_depth,
            };
            Some((tuple, is_quoted))
        };
        if packet.is_fragment {
            return None;
        }
        if let Some((src_port, dst_port)) = packet.ports {
            let (src, dst) = ((packet.src, src_port), (packet.dst, dst_port));
            return tuple(src, dst, packet.protocol, false);
        }
        let icmp = packet.icmp?;
        if is_error(packet.protocol, &icmp)
            && let Some((src, dst, protocol)) = quoted(packet.payload)
        {
            return tuple(src, dst, protocol, true);
        }
        // Requests and their replies share a key: echo, timestamp, information, address mask.
        let kind = match (packet.protocol, icmp.kind) {
            (1, 0) => 8,
            (1, 14) => 13,
            (1, 16) => 15,
            (1, 18) => 17,
            (58, 129) => 128,
            (_, kind) => kind,
        };
        let port = match icmp.id {
            Some(id) => id ^ u16::from(kind) << 8,
            None => u16::from(kind),
        };
        tuple((packet.src, port), (packet.dst, port), packet.protocol, false)
    }

    /// Returns the key of packets between two endpoints with these VLAN identifiers and outside of tunnels.
    pub(crate) fn between(ends: [End; 2], protocol: u8, vlans: [u16; 3]) -> Tuple {
        Tuple {
            src: ends[0],
            dst: ends[1],
            protocol,
            vlans,
            tunnel_depth: 0,
        }
    }

    /// Returns the key of a packet in the other direction.
    pub(crate) fn reversed(&self) -> Tuple {
        Tuple {
            src: self.dst,
            dst: self.src,
            ..*self
        }
    }

    /// Returns the key of a new flow whose client sends this packet.
    pub(crate) fn flow_key(&self) -> FlowKey {
        FlowKey {
            client: self.src.0,
            server: self.dst.0,
            client_port: self.src.1,
            server_port: self.dst.1,
            protocol: self.protocol,
            vlans: self.vlans,
            tunnel_depth: self.tunnel_depth,
        }
    }

    /// Returns true if a packet with this key belongs to the flow of `key`.
    #[inline]
    pub(crate) fn belongs_to(&self, key: &FlowKey) -> bool {
        let (client, server) = ((key.client, key.client_port), (key.server, key.server_port));
        let ends = (self.src == client && self.dst == server) || (self.src == server && self.dst == client);
        ends && self.protocol == key.protocol
            && self.vlans == key.vlans
            && self.tunnel_depth == key.tunnel_depth
    }

    /// Returns the source and the destination port.
    pub(crate) fn ports(&self) -> [u16; 2] {
        [self.src.1, self.dst.1]
    }

    /// Returns true if a packet with this key comes from the client of `key`. The packet must belong to that
    /// flow.
    pub(crate) fn is_from_client(&self, key: &FlowKey) -> bool {
        self.src == (key.client, key.client_port)
    }
}

impl Tuple {
    /// Returns the keyed hash of the tuple.
    #[inline]
    pub(crate) fn hash_with(&self, seed: Seed) -> u64 {
        match self.two_words() {
            Some(words) => seed.of_two_words(words),
            None => seed.hash_one(self),
        }
    }

    /// Returns the fields of an IPv4 key with at most one VLAN tag as two words, which are the same for both
    /// directions. Returns `None` for other keys.
    #[inline]
    fn two_words(&self) -> Option<[u64; 2]> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.src.0, self.dst.0) else {
            return None;
        };
        let end = |address: Ipv4Addr, port: u16| u64::from(address.to_bits()) << 16 | u64::from(port);
        let (src, dst) = (end(src, self.src.1), end(dst, self.dst.1));
        let (low, high) = (src.min(dst), src.max(dst));
        let words = [
            low | self.protocol_and_depth(),
            high | u64::from(self.vlans[0]) << 48,
        ];
        (self.vlans[1] == 0).then_some(words)
    }

    /// Returns the protocol in bits 48 to 55, and the number of encapsulations in bits 56 to 63.
    #[inline]
    fn protocol_and_depth(&self) -> u64 {
        u64::from(self.protocol) << 48 | u64::from(self.tunnel_depth) << 56
    }
}

impl Hash for Tuple {
    /// Hashes the endpoints in an order that does not depend on the direction.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (low, high) = if self.src <= self.dst {
            (self.src, self.dst)
        } else {
            (self.dst, self.src)
        };
        for (address, _) in [low, high] {
            let bits = match address {
                IpAddr::V4(address) => address.to_bits().into(),
                IpAddr::V6(address) => address.to_bits(),
            };
            state.write_u64(bits as u64);
            state.write_u64((bits >> 64) as u64);
        }
        let ports = u64::from(low.1) | u64::from(high.1) << 16 | u64::from(self.vlans[0]) << 32;
        state.write_u64(ports | self.protocol_and_depth());
        if self.vlans[1] != 0 {
            state.write_u64(u64::from(self.vlans[1]) | u64::from(self.vlans[2]) << 16);
        }
    }
}

/// Returns true if an ICMP or ICMPv6 message is an error, which quotes the packet that caused it.
fn is_error(protocol: u8, icmp: &IcmpHeader) -> bool {
    match IpProto(protocol) {
        // Unreachable, source quench, redirect, time exceeded, parameter problem (RFC 792).
        IpProto::ICMPV4 => matches!(icmp.kind, 3 | 4 | 5 | 11 | 12),
        // Errors have types below 128 (RFC 4443, section 2.1).
        _ => icmp.kind < 128,
    }
}

/// Returns the endpoints and the protocol of the packet that an ICMP error quotes. The quoted data may be
/// truncated.
fn quoted(bytes: &[u8]) -> Option<(End, End, u8)> {
    let (src, dst, protocol, transport): (IpAddr, IpAddr, _, _) = match bytes.first()? >> 4 {
        4 => {
            let header = bytes.first_chunk::<{ ipv4::MIN_SIZE }>()?;
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
            let transport = bytes.get(usize::from(header[0] & 0xf) * 4..)?;
            (
                [s0, s1, s2, s3].into(),
                [d0, d1, d2, d3].into(),
                header[9],
                transport,
            )
        }
        6 => {
            let header = bytes.first_chunk::<{ ipv6::SIZE }>()?;
            let src = header.get(8..24)?.first_chunk::<16>()?;
            let dst = header.get(24..40)?.first_chunk::<16>()?;
            let walk = ipv6::walk(IpProto(header[6]), &bytes[ipv6::SIZE..]);
            let transport = bytes.get(ipv6::SIZE + walk.size..)?;
            ((*src).into(), (*dst).into(), walk.proto.0, transport)
        }
        _ => return None,
    };
    if !matches!(IpProto(protocol), IpProto::TCP | IpProto::UDP | IpProto::SCTP) {
        return None;
    }
    let [s0, s1, d0, d1] = *transport.first_chunk()?;
    let (src_port, dst_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    Some(((src, src_port), (dst, dst_port), protocol))
}
