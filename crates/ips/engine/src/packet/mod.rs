//! Packets: one layer of IP with the transport that it carries, as detection sees it.
//!
//! A frame with tunnels is several packets: the outer one, and one for each packet inside.

use core::net::IpAddr;

use millrace_types::Time;

/// The link layer of a frame, by its number in pcap files (`LINKTYPE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

/// The kind of IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Fields of the IP header.
#[derive(Debug, Clone, Copy)]
pub struct IpHeader<'a> {
    /// The version.
    pub version: IpVersion,
    /// The packet from its IP header to its end.
    pub bytes: &'a [u8],
    /// Size of the header with options or extension headers in bytes.
    pub header_size: usize,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Identification; in IPv6 that of the fragment header, or 0.
    pub id: u32,
    /// True if the don't fragment bit is set.
    pub dont_fragment: bool,
    /// True if more fragments follow.
    pub more_fragments: bool,
    /// True if the reserved bit of the fragment field is set.
    pub reserved_bit: bool,
    /// Offset of the fragment in bytes.
    pub fragment_offset: u32,
    /// Options of IPv4, extension headers of IPv6.
    pub options: &'a [u8],
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
    /// Checksum.
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
}

/// Fields of the ICMP or ICMPv6 header.
#[derive(Debug, Clone, Copy)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
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
    /// IP protocol of the payload: in IPv6 that after the extension headers.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP and SCTP.
    pub ports: Option<(u16, u16)>,
    /// The TCP header.
    pub tcp: Option<TcpHeader<'a>>,
    /// The ICMP or ICMPv6 header.
    pub icmp: Option<IcmpHeader>,
    /// Bytes after the transport header; after the IP header if the transport is not decoded. Empty for a fragment.
    pub payload: &'a [u8],
    /// True if the packet is made of fragments.
    pub is_reassembled: bool,
    /// True for a fragment: it has no transport, and waits for the others.
    pub is_fragment: bool,
    /// True if the engine made the packet to flush a flow: there is no frame.
    pub is_pseudo: bool,
    /// Number of encapsulations outside.
    pub tunnel_depth: u8,
}
