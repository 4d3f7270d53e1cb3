//! The one pass over a frame that finds every header OpenFlow can match or rewrite.
//!
//! The result is a small map of offsets, from which keys are extracted and at which fields are rewritten;
//! no header is copied. Which header a field comes from is what OpenFlow 1.3.5 section 7.2.3.8 says: the
//! outermost VLAN tag, the EtherType after all VLAN tags, the outermost MPLS label stack entry, the outer
//! PBB tag; nothing inside MPLS or PBB is matched.
//!
//! A header that is cut short, or that lies about a length, ends the parse at the last good layer: it and
//! all that follows is absent. A size is a lie if it contradicts the size of the packet, not that of the
//! head, so a packet in several segments is parsed as far as its head goes. An IPv4 or IPv6 packet that
//! claims more bytes than the frame has is therefore no IP packet.
//!
//! Offsets are 16 bits wide: of a head of more than 65,535 bytes, only as many are looked at.

use crate::icmpv6;
use crate::ipv6::{ExtHeaders, Fragment};
use crate::{EtherType, IpProto, Packet, ethernet};

mod parse;

/// How far to parse: as far as the tables of a switch can match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Depth {
    /// Ethernet and VLAN tags, up to the EtherType.
    L2,
    /// Also ARP, PBB, MPLS, IPv4, and IPv6 with its extension headers: up to the IP protocol.
    L3,
    /// Also TCP, UDP, SCTP and ICMP. What a rewrite needs to mend transport checksums.
    L4,
    /// Also neighbour discovery and its options.
    All,
}

/// What follows the Ethernet header and its VLAN tags, if it is good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum L3 {
    /// Something else, or nothing good.
    #[default]
    None,
    /// ARP for IPv4 over Ethernet.
    Arp,
    /// An IPv4 header with its options.
    Ipv4,
    /// An IPv6 fixed header.
    Ipv6,
    /// At least one MPLS label stack entry.
    Mpls,
    /// A PBB tag with the customer's Ethernet header.
    Pbb,
}

/// The transport header, if it is good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum L4 {
    /// Something else, or nothing good, or a later fragment.
    #[default]
    None,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP over IPv4.
    Icmpv4,
    /// ICMP over IPv6.
    Icmpv6,
}

/// Where the headers of a frame are. Every offset counts from the beginning of the head, and the header
/// there is all in the head (TCP: its first 20 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layers {
    ether_type: EtherType,
    vlan_count: u16,
    /// Zero if there is no Ethernet header.
    l3_offset: u16,
    l4_offset: u16,
    l4_size: u16,
    mpls_count: u16,
    /// Zero if the stack has no bottom within the head.
    mpls_payload: u16,
    /// Zero if there is none.
    nd_lla: u16,
    ext_headers: ExtHeaders,
    ip_proto: IpProto,
    l3: L3,
    l4: L4,
    mpls_inner: L3,
    fragment: Fragment,
    routed: bool,
    nd: Nd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nd {
    None,
    Solicit,
    Advert,
}

impl Layers {
    /// Nothing at all: the map of an empty packet.
    pub const NONE: Layers = Layers {
        ether_type: EtherType(0),
        vlan_count: 0,
        l3_offset: 0,
        l4_offset: 0,
        l4_size: 0,
        mpls_count: 0,
        mpls_payload: 0,
        nd_lla: 0,
        ext_headers: ExtHeaders(0),
        ip_proto: IpProto(0),
        l3: L3::None,
        l4: L4::None,
        mpls_inner: L3::None,
        fragment: Fragment::Whole,
        routed: false,
        nd: Nd::None,
    };

    /// Parses a frame that is in one segment.
    #[inline(always)]
    pub fn parse(frame: &[u8], depth: Depth) -> Layers {
        Self::parse_head(frame, frame.len(), depth)
    }

    /// Parses the head of a packet.
    #[inline(always)]
    pub fn of<P: Packet>(packet: &P, depth: Depth) -> Layers {
        Self::parse_head(packet.head(), packet.len(), depth)
    }

    /// Parses the head of a packet of `size` bytes in all segments.
    #[inline(always)]
    pub fn parse_head(head: &[u8], size: usize, depth: Depth) -> Layers {
        parse::parse(head, size, depth)
    }

    /// Whether there is an Ethernet header. Without, there is nothing.
    #[inline]
    pub const fn has_ethernet(&self) -> bool {
        self.l3_offset != 0
    }

    /// The EtherType after all VLAN tags; [`EtherType::NOT_ETH_TYPE`] for 802.3 frames without SNAP.
    ///
    /// It lies in the two bytes before [`Layers::l3_offset`], unless it is `NOT_ETH_TYPE`.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        self.ether_type
    }

    /// How many VLAN tags there are. The outermost, if any, is at [`Layers::VLAN_OFFSET`].
    #[inline]
    pub const fn vlan_count(&self) -> usize {
        self.vlan_count as usize
    }

    /// Where the outermost VLAN tag's control information is; its TPID is in the two bytes before it.
    pub const VLAN_OFFSET: usize = ethernet::SIZE;

    /// What follows Ethernet and VLAN tags.
    #[inline]
    pub const fn l3(&self) -> L3 {
        self.l3
    }

    /// Where what follows Ethernet and VLAN tags begins, also when it is not good. Zero without Ethernet.
    #[inline]
    pub const fn l3_offset(&self) -> usize {
        self.l3_offset as usize
    }

    /// Whether this is IPv4 or IPv6.
    #[inline]
    pub const fn is_ip(&self) -> bool {
        matches!(self.l3, L3::Ipv4 | L3::Ipv6)
    }

    /// The IPv4 protocol, or the IPv6 next header after the extension headers; of a later fragment, what
    /// its first fragment begins with. If an extension header is cut short, that header. Zero if
    /// this is not IP.
    #[inline]
    pub const fn ip_proto(&self) -> IpProto {
        self.ip_proto
    }

    /// Which part of a fragmented IP packet this is.
    #[inline]
    pub const fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// The summary of the IPv6 extension headers.
    #[inline]
    pub const fn ext_headers(&self) -> ExtHeaders {
        self.ext_headers
    }

    /// Whether an IPv6 routing header has segments left: the address in the fixed header is not the one in
    /// transport checksums.
    #[inline]
    pub const fn is_routed(&self) -> bool {
        self.routed
    }

    /// The transport header.
    #[inline]
    pub const fn l4(&self) -> L4 {
        self.l4
    }

    /// Where the payload of the IP packet begins, after options and extension headers. Zero if this is
    /// not IP. It may lie at the end of the head.
    #[inline]
    pub const fn l4_offset(&self) -> usize {
        self.l4_offset as usize
    }

    /// Bytes from there to the end of the IP packet, over all segments, without padding of the frame.
    #[inline]
    pub const fn l4_size(&self) -> usize {
        self.l4_size as usize
    }

    /// How many MPLS label stack entries there are, up to the bottom of the stack or the end of the head.
    /// The outermost is at [`Layers::l3_offset`].
    #[inline]
    pub const fn mpls_count(&self) -> usize {
        self.mpls_count as usize
    }

    /// Where what follows the MPLS label stack begins; `None` if its bottom is not in the head.
    #[inline]
    pub const fn mpls_payload(&self) -> Option<usize> {
        present(self.mpls_payload)
    }

    /// What the MPLS payload looks like: [`L3::Ipv4`], [`L3::Ipv6`] or [`L3::None`]. Only the version and
    /// the size of the fixed header were checked.
    #[inline]
    pub const fn mpls_inner(&self) -> L3 {
        self.mpls_inner
    }

    /// Where the target of a neighbour solicitation or advertisement is.
    #[inline]
    pub const fn nd_target(&self) -> Option<usize> {
        match self.nd {
            Nd::None => None,
            Nd::Solicit | Nd::Advert => Some(self.l4_offset as usize + icmpv6::offset::ND_TARGET),
        }
    }

    /// Where the MAC address in the source link-layer address option of a solicitation is.
    #[inline]
    pub const fn nd_sll(&self) -> Option<usize> {
        match self.nd {
            Nd::Solicit => present(self.nd_lla),
            Nd::None | Nd::Advert => None,
        }
    }

    /// Where the MAC address in the target link-layer address option of an advertisement is.
    #[inline]
    pub const fn nd_tll(&self) -> Option<usize> {
        match self.nd {
            Nd::Advert => present(self.nd_lla),
            Nd::None | Nd::Solicit => None,
        }
    }
}

#[inline]
const fn present(offset: u16) -> Option<usize> {
    match offset {
        0 => None,
        offset => Some(offset as usize),
    }
}
