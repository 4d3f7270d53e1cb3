//! Packets: one IP header with the transport that it carries, as detection sees it.
//!
//! ```text
//!  frame ─link─▶ IP header ─ip─▶ transport ─transport─▶ Packet
//!                    ▲                                     │
//!                    └────────────── tunnel ───────────────┘  (one more Packet for each encapsulation)
//! ```

mod arp;
mod context;
mod decode;
pub mod events;
mod headers;
mod ip;
pub mod layers;
mod link;
mod transport;
pub mod tunnel;

use core::net::{IpAddr, Ipv4Addr};

use millrace_types::Time;
use millrace_wire::ip::Pseudo;
use millrace_wire::{IpProto, checksum, udp};

use crate::flow::{Direction, FlowKey};

pub use arp::ArpPacket;
pub(crate) use arp::find as find_arp;
pub(crate) use context::Context;
pub use decode::{ip_packet, payload};
use events::PacketEvents;
pub use headers::{IcmpHeader, IpHeader, IpVersion, LinkType, TcpHeader, Undecoded};
pub(crate) use link::{IpHeaderLocation, find_ip_header};

/// A decoded packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Number of the frame, from 1 (`pcap_cnt`).
    pub number: u64,
    /// Time of the frame.
    pub time: Time,
    /// VLAN identifiers, outermost first; the first `vlan_len` are set.
    pub vlans: [u16; 3],
    /// Number of VLAN tags.
    pub vlan_len: u8,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// The IP header.
    pub ip: IpHeader<'a>,
    /// Bytes of the frame with its link header; for a packet in a tunnel, or one that was reassembled from fragments, from the
    /// IP header on.
    pub size: usize,
    /// Offset of the IP header in bytes, in the frame or in the packet that was reassembled from fragments.
    pub ip_offset: usize,
    /// IP protocol of the payload; for IPv6 the protocol after the extension headers, or 44 for a fragment.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP and SCTP.
    pub ports: Option<(u16, u16)>,
    /// The TCP header.
    pub tcp: Option<TcpHeader<'a>>,
    /// The ICMP or ICMPv6 header.
    pub icmp: Option<IcmpHeader>,
    /// Bytes after the header of TCP, UDP, SCTP, ICMP, ICMPv6 and ESP. Empty for fragments and other protocols.
    pub payload: &'a [u8],
    /// True if the packet was reassembled from fragments.
    pub is_reassembled: bool,
    /// True if the packet carries an inner packet. The inner packet is inspected, and not the payload of this
    /// one.
    pub is_tunnel: bool,
    /// True if the flow was encrypted before this packet, and still is. The payload is not inspected.
    pub is_encrypted: bool,
    /// True for the acknowledgment that ends the handshake of a connection in which no data were sent. The connection is established
    /// from the next packet on.
    pub ends_handshake: bool,
    /// True for a segment that its connection did not accept. The segment is inspected on its own, not as
    /// part of the stream.
    pub is_rejected_by_stream: bool,
    /// True for a fragment. A fragment has no transport header, and waits for the other fragments of its
    /// packet.
    pub is_fragment: bool,
    /// True if the engine made the packet to flush a flow. Such a packet has no frame; only its addresses,
    /// ports, protocol and time have a meaning.
    pub is_pseudo: bool,
    /// True if the checksums of the packet are compared; else they count as right.
    pub compares_checksums: bool,
    /// Number of tunnels around the packet.
    pub tunnel_depth: u8,
    /// Events of the decoder and the TCP engine, if rules ask for them.
    pub events: PacketEvents,
}

impl<'a> Packet<'a> {
    /// A packet without bytes.
    pub(crate) const EMPTY: Packet<'static> = Packet {
        number: 0,
        time: Time::ZERO,
        vlans: [0; 3],
        vlan_len: 0,
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ip: IpHeader::EMPTY,
        size: 0,
        ip_offset: 0,
        protocol: 0,
        ports: None,
        tcp: None,
        icmp: None,
        payload: &[],
        is_reassembled: false,
        is_tunnel: false,
        is_encrypted: false,
        ends_handshake: false,
        is_rejected_by_stream: false,
        is_fragment: false,
        is_pseudo: true,
        compares_checksums: false,
        tunnel_depth: 0,
        events: PacketEvents::NONE,
    };

    /// Returns a pseudo packet for the inspection of the remaining data of a flow.
    pub(crate) fn pseudo(key: &FlowKey, direction: Direction, now: Time) -> Packet<'static> {
        let (client, server) = ((key.client, key.client_port), (key.server, key.server_port));
        let (src, dst) = match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        };
        let version = if src.0.is_ipv4() {
            IpVersion::V4
        } else {
            IpVersion::V6
        };
        Packet {
            time: now,
            vlans: key.vlans,
            src: src.0,
            dst: dst.0,
            ip: IpHeader {
                version,
                ..IpHeader::EMPTY
            },
            protocol: key.protocol,
            ports: Some((src.1, dst.1)),
            tunnel_depth: key.tunnel_depth,
            ..Packet::EMPTY
        }
    }

    /// Returns the addresses for transport checksums.
    pub(crate) fn pseudo_header(&self) -> Option<Pseudo> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Pseudo::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Pseudo::V6 { src, dst }),
            _ => None,
        }
    }

    /// Returns true if the checksums of IPv4, TCP, UDP and ICMP are right.
    pub fn checksum_is_right(&self) -> bool {
        self.ip_checksum_is_right() && self.transport_checksum_is_right()
    }

    /// Returns true if the checksum of a protocol, of the IPv4 header with `None`, is right or not compared; `None` if the packet
    /// does not have one.
    pub(crate) fn checksum(&self, protocol: Option<IpProto>) -> Option<bool> {
        if self.is_pseudo {
            return None;
        }
        match protocol {
            None => Some(!self.compares_checksums || self.is_reassembled || self.ip_checksum_is_right()),
            Some(protocol) => (protocol.0 == self.protocol && !self.is_fragment)
                .then(|| !self.compares_checksums || self.transport_checksum_is_right()),
        }
    }

    fn transport_checksum_is_right(&self) -> bool {
        let bytes = self.ip_payload();
        let Some(pseudo) = self.pseudo_header() else {
            return true;
        };
        let is_right = |protocol: IpProto| pseudo.sum(protocol, bytes.len()).add_bytes(bytes).checksum() == 0;
        match (IpProto(self.protocol), self.ip.version) {
            (IpProto::TCP, _) => is_right(IpProto::TCP),
            (IpProto::UDP, _) => udp::View::new(bytes).is_ok_and(|view| view.checksum_is_right(&pseudo)),
            (IpProto::ICMPV4, IpVersion::V4) => checksum::internet(bytes) == 0,
            (IpProto::ICMPV6, IpVersion::V6) => is_right(IpProto::ICMPV6),
            _ => true,
        }
    }

    /// Returns true if the checksum of the IPv4 header is right. IPv6 has none.
    pub fn ip_checksum_is_right(&self) -> bool {
        let header = self.ip.bytes.get(..self.ip.header_size).unwrap_or_default();
        self.ip.version == IpVersion::V6 || checksum::internet(header) == 0
    }

    /// Returns true if the payload is not inspected, because it is another packet or encrypted.
    pub fn hides_payload(&self) -> bool {
        self.is_tunnel || self.is_encrypted
    }

    /// Returns true for a fragment of a TCP segment.
    pub fn is_tcp_fragment(&self) -> bool {
        let protocol = match self.ip.fragment_header {
            Some(header) => header.next_header.0,
            None => self.protocol,
        };
        self.is_fragment && protocol == IpProto::TCP.0
    }

    /// Returns the bytes after the IP header.
    pub fn ip_payload(&self) -> &'a [u8] {
        self.ip.bytes.get(self.ip.header_size..).unwrap_or_default()
    }
}

/// Returns the types of the options of an IPv4 header, up to the end of the list or the first invalid one.
pub(crate) fn ipv4_options(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        while let [1, tail @ ..] = rest {
            rest = tail;
        }
        match rest {
            [] | [0, ..] => None,
            [kind, size, ..] if (2..=rest.len()).contains(&usize::from(*size)) => {
                rest = &rest[usize::from(*size)..];
                Some(*kind)
            }
            [kind, ..] => {
                let kind = *kind;
                rest = &[];
                Some(kind)
            }
        }
    })
}
