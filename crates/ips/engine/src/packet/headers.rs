//! The fields of headers, and the reasons why a frame is not decoded.

use millrace_wire::ipv6::FragmentHeader;
use millrace_wire::tcp;

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
    pub(super) const EMPTY: IpHeader<'static> = IpHeader {
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
