//! Packets: one IP header with the transport that it carries, as detection sees it.
//!
//! ```text
//!  frame ─link─▶ IP header ─ip─▶ transport ─transport─▶ Packet
//!                    ▲                                     │
//!                    └────────────── tunnel ───────────────┘  (one more Packet for each encapsulation)
//! ```

pub mod events;
mod ip;
pub mod layers;
mod link;
mod transport;
pub mod tunnel;

use core::net::{IpAddr, Ipv4Addr};

use millrace_types::Time;
use millrace_wire::ip::Pseudo;
use millrace_wire::ipv6::FragmentHeader;
use millrace_wire::{IpProto, checksum, tcp, udp};

use crate::flow::{Direction, FlowKey};

use events::PacketEvents;
pub(crate) use link::{IpHeaderLocation, find_ip_header};

/// Largest number of nested packets that [`payload`] decodes.
const DEPTH: u8 = 16;

/// The link layer of a frame, by its number in pcap files (`LINKTYPE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback, with the address family in the byte order of the machine.
    pub const NULL: u32 = 0;
    pub const ETHERNET: u32 = 1;
    /// PPP, with or without address and control bytes.
    pub const PPP: u32 = 9;
    /// PPPoE without its Ethernet header.
    pub const PPP_ETHER: u32 = 51;
    /// IPv4 or IPv6 without link header.
    pub const RAW: u32 = 101;
    /// Cisco HDLC.
    pub const C_HDLC: u32 = 104;
    /// OpenBSD loopback.
    pub const LOOP: u32 = 108;
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: u32 = 113;
    /// IPv4 without link header.
    pub const IPV4: u32 = 228;
    /// IPv6 without link header.
    pub const IPV6: u32 = 229;
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: u32 = 276;
}

/// The IP version of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The reason why a frame, or a packet in a tunnel, is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Undecoded {
    /// The link type is not known.
    UnknownLink,
    /// The frame ends within a header before IP.
    TruncatedLink,
    /// The frame does not carry IP.
    NotIp,
    /// The frame has more headers or encapsulations than are followed.
    TooDeep,
    /// The IP header is invalid, or its lengths do not agree with the frame.
    InvalidIp,
    /// The transport header is invalid, or its lengths do not agree with the packet.
    InvalidTransport,
}

/// Fields of the IP header.
#[derive(Debug, Clone, Copy)]
pub struct IpHeader<'a> {
    pub version: IpVersion,
    /// The packet from its IP header to its end, without padding of the frame.
    pub bytes: &'a [u8],
    /// Size of the header with options or extension headers in bytes.
    pub header_size: usize,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Identification; for IPv6 that of the fragment header, or 0.
    pub id: u32,
    /// True if the don't fragment bit of IPv4 is set.
    pub dont_fragment: bool,
    /// True if more fragments follow.
    pub more_fragments: bool,
    /// True if the reserved bit of the fragment field of IPv4 is set.
    pub reserved_bit: bool,
    /// Offset of the fragment in bytes.
    pub fragment_offset: u16,
    /// Options of IPv4, extension headers of IPv6.
    pub options: &'a [u8],
    /// The fragment header of IPv6.
    pub fragment_header: Option<FragmentHeader>,
}

impl IpHeader<'_> {
    /// A header without bytes.
    const EMPTY: IpHeader<'static> = IpHeader {
        version: IpVersion::V4,
        bytes: &[],
        header_size: 0,
        ttl: 0,
        tos: 0,
        id: 0,
        dont_fragment: false,
        more_fragments: false,
        reserved_bit: false,
        fragment_offset: 0,
        options: &[],
        fragment_header: None,
    };
}

/// Fields of the TCP header.
#[derive(Debug, Clone, Copy)]
pub struct TcpHeader<'a> {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Control bits, as in [`millrace_wire::tcp::flags`].
    pub flags: u16,
    /// Receive window, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    pub checksum: u16,
    /// Options with their padding.
    pub options: &'a [u8],
}

impl TcpHeader<'_> {
    /// Returns true if all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Returns true for a SYN that opens a connection: without ACK and RST.
    #[inline]
    pub fn is_syn(&self) -> bool {
        use tcp::flags::{ACK, RST, SYN};
        self.flags & (SYN | ACK | RST) == SYN
    }
}

/// Fields of the ICMP or ICMPv6 header.
#[derive(Debug, Clone, Copy)]
pub struct IcmpHeader {
    pub kind: u8,
    pub code: u8,
    /// Identifier of an echo or a similar message.
    pub id: Option<u16>,
    /// Sequence number of an echo or a similar message.
    pub seq: Option<u16>,
    /// MTU of "packet too big" and "fragmentation needed".
    pub mtu: Option<u32>,
}

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
    /// True for a segment that its connection did not accept. The segment is inspected on its own, not as
    /// part of the stream.
    pub is_rejected_by_stream: bool,
    /// True for a fragment. A fragment has no transport header, and waits for the other fragments of its
    /// packet.
    pub is_fragment: bool,
    /// True if the engine made the packet to flush a flow. Such a packet has no frame; only its addresses,
    /// ports, protocol and time have a meaning.
    pub is_pseudo: bool,
    /// Number of tunnels around the packet.
    pub tunnel_depth: u8,
    /// Events of the decoder and the TCP engine, if rules ask for them.
    pub events: PacketEvents,
}

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
    const fn of_record(tunnel_depth: u8) -> Context {
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
        is_rejected_by_stream: false,
        is_fragment: false,
        is_pseudo: true,
        tunnel_depth: 0,
        events: PacketEvents::NONE,
    };

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

    /// Returns true if the checksums of IPv4, TCP and UDP are right.
    pub fn checksum_is_right(&self) -> bool {
        let bytes = self.ip_payload();
        let is_ip_right = self.ip_checksum_is_right();
        let Some(pseudo) = self.pseudo_header() else {
            return is_ip_right;
        };
        is_ip_right
            && match IpProto(self.protocol) {
                IpProto::TCP => pseudo.sum(IpProto::TCP, bytes.len()).add_bytes(bytes).checksum() == 0,
                IpProto::UDP => udp::View::new(bytes).is_ok_and(|view| view.checksum_is_right(&pseudo)),
                _ => true,
            }
    }

    /// Returns true if the checksum of the IPv4 header is right. IPv6 has none.
    pub fn ip_checksum_is_right(&self) -> bool {
        let header = self.ip.bytes.get(..self.ip.header_size).unwrap_or_default();
        self.ip.version == IpVersion::V6 || checksum::internet(header) == 0
    }

    /// Returns true if the header requests a source route, by IPv4 options or by the deprecated IPv6 routing
    /// header of type 0 (RFC 5095).
    pub fn has_source_route(&self) -> bool {
        const LOOSE: u8 = 131;
        const STRICT: u8 = 137;
        match self.ip.version {
            IpVersion::V4 => ipv4_options(self.ip.options).any(|kind| matches!(kind, LOOSE | STRICT)),
            IpVersion::V6 => ip::has_routing_type_0(&self.ip),
        }
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
