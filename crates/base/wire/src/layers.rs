//! The single pass over a frame that finds every header that OpenFlow can match or rewrite.
//!
//! The result is a small map of header offsets. Keys are extracted and fields are rewritten at these offsets;
//! no header is copied. OpenFlow 1.3.5, section 7.2.3.8, defines the header of each field: the outermost VLAN
//! tag, the EtherType after all VLAN tags, the outermost MPLS label stack entry, the outer PBB tag; nothing
//! inside MPLS or PBB is matched.
//!
//! A header that is truncated, or that has an invalid length, ends the parse: the header and everything after
//! it count as absent. Lengths are checked against the size of the packet, not of the head, so a packet of
//! several segments is parsed as far as its head extends. An IPv4 or IPv6 packet with a length field that
//! exceeds the frame is therefore not an IP packet.
//!
//! Offsets have 16 bits; only the first 65,535 bytes of a longer head are parsed.

use crate::ipv6::{ExtHeaders, Fragment};
use crate::{EtherType, IpProto, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, mpls, pbb, sctp, tcp, udp};

mod parse;

/// The depth of a parse. A switch parses as deep as its tables can match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Depth {
    /// Ethernet and VLAN tags, up to the EtherType.
    L2,
    /// L2, and ARP, PBB, MPLS, IPv4, and IPv6 with its extension headers: up to the IP protocol.
    L3,
    /// L3, and TCP, UDP, SCTP and ICMP. A rewrite needs this depth to update transport checksums.
    L4,
    /// L4, and neighbour discovery with its options.
    All,
}

/// The valid header after Ethernet and the VLAN tags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum L3 {
    /// Another type, or an invalid header.
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

/// The transport header, if it is valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum L4 {
    /// Another protocol, an invalid header, or a later fragment.
    #[default]
    None,
    Tcp,
    Udp,
    Sctp,
    /// ICMP over IPv4.
    Icmpv4,
    /// ICMP over IPv6.
    Icmpv6,
}

/// Offsets of the headers of a frame, from the beginning of the head. The head contains each of these headers completely,
/// except for the options of TCP.
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
    /// Offset of the MAC address in the link-layer address option; zero without that option.
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
    /// The layers of an empty packet: no header.
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

    /// Returns true if there is an Ethernet header. Without it there are no other headers.
    #[inline]
    pub const fn has_ethernet(&self) -> bool {
        self.l3_offset != 0
    }

    /// Returns the EtherType after all VLAN tags; [`EtherType::NOT_ETH_TYPE`] for 802.3 frames without SNAP.
    ///
    /// The EtherType is in the two bytes before [`Layers::l3_offset`], unless it is `NOT_ETH_TYPE`.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        self.ether_type
    }

    /// Returns the number of VLAN tags. The outermost, if any, is at [`Layers::VLAN_OFFSET`].
    #[inline]
    pub const fn vlan_count(&self) -> usize {
        self.vlan_count as usize
    }

    /// Offset of the outermost VLAN tag's control information; its TPID is in the two bytes before it.
    pub const VLAN_OFFSET: usize = ethernet::SIZE;

    /// Returns the header after Ethernet and the VLAN tags.
    #[inline]
    pub const fn l3(&self) -> L3 {
        self.l3
    }

    /// Returns the offset after Ethernet and the VLAN tags, even if no valid header is there. Zero without
    /// Ethernet.
    #[inline]
    pub const fn l3_offset(&self) -> usize {
        self.l3_offset as usize
    }

    /// Returns true if this is IPv4 or IPv6.
    #[inline]
    pub const fn is_ip(&self) -> bool {
        matches!(self.l3, L3::Ipv4 | L3::Ipv6)
    }

    /// Returns the IPv4 protocol, or the IPv6 next header after the extension headers; for a later fragment, the
    /// protocol of the first fragment. If an extension header is truncated, returns that header's number. Zero if this
    /// is not IP.
    #[inline]
    pub const fn ip_proto(&self) -> IpProto {
        self.ip_proto
    }

    /// Returns the position of the packet in a fragmented IP packet.
    #[inline]
    pub const fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// Returns the summary of the IPv6 extension headers.
    #[inline]
    pub const fn ext_headers(&self) -> ExtHeaders {
        self.ext_headers
    }

    /// Returns true if an IPv6 routing header has segments left. Transport checksums then cover the final
    /// destination, and not the destination in the fixed header.
    #[inline]
    pub const fn is_routed(&self) -> bool {
        self.routed
    }

    /// Returns the transport header.
    #[inline]
    pub const fn l4(&self) -> L4 {
        self.l4
    }

    /// Returns the offset of the IP payload, after options and extension headers. The offset may be the end
    /// of the head. Zero if the packet is not IP.
    #[inline]
    pub const fn l4_offset(&self) -> usize {
        self.l4_offset as usize
    }

    /// Returns the size of the IP payload in bytes, over all segments, without padding of the frame.
    #[inline]
    pub const fn l4_size(&self) -> usize {
        self.l4_size as usize
    }

    /// Returns the number of MPLS label stack entries, up to the bottom of the stack or the end of the head. The
    /// outermost is at [`Layers::l3_offset`].
    #[inline]
    pub const fn mpls_count(&self) -> usize {
        self.mpls_count as usize
    }

    /// Returns the offset after the MPLS label stack; `None` if the bottom of the stack is not in the head.
    #[inline]
    pub const fn mpls_payload(&self) -> Option<usize> {
        present(self.mpls_payload)
    }

    /// Returns the apparent type of the MPLS payload: [`L3::Ipv4`], [`L3::Ipv6`] or [`L3::None`]. Only the version and
    /// the size of the fixed header were checked.
    #[inline]
    pub const fn mpls_inner(&self) -> L3 {
        self.mpls_inner
    }

    /// Returns the offset of the target of a neighbour solicitation or advertisement.
    #[inline]
    pub const fn nd_target(&self) -> Option<usize> {
        match self.nd {
            Nd::None => None,
            Nd::Solicit | Nd::Advert => Some(self.l4_offset as usize + icmpv6::offset::ND_TARGET),
        }
    }

    /// Returns the offset of the MAC address in the source link-layer address option of a solicitation.
    #[inline]
    pub const fn nd_sll(&self) -> Option<usize> {
        match self.nd {
            Nd::Solicit => present(self.nd_lla),
            Nd::None | Nd::Advert => None,
        }
    }

    /// Returns the offset of the MAC address in the target link-layer address option of an advertisement.
    #[inline]
    pub const fn nd_tll(&self) -> Option<usize> {
        match self.nd {
            Nd::Advert => present(self.nd_lla),
            Nd::None | Nd::Solicit => None,
        }
    }

    /// Returns the offset of the end of the last header: the smallest size of a head that holds all headers. Headers
    /// inside MPLS are not included.
    #[must_use]
    pub fn end(&self) -> usize {
        let l3_size = match self.l3() {
            L3::None => 0,
            L3::Arp => arp::SIZE,
            L3::Ipv4 => ipv4::MIN_SIZE,
            L3::Ipv6 => ipv6::SIZE,
            L3::Mpls => self.mpls_count() * mpls::SIZE,
            L3::Pbb => pbb::SIZE,
        };
        let l4_size = match self.l4() {
            L4::None => 0,
            L4::Tcp => tcp::MIN_SIZE,
            L4::Udp => udp::SIZE,
            L4::Sctp => sctp::SIZE,
            L4::Icmpv4 => icmpv4::SIZE,
            L4::Icmpv6 => icmpv6::SIZE,
        };
        let option = self.nd_sll().or(self.nd_tll());
        [
            Some(self.l3_offset() + l3_size),
            Some(self.l4_offset() + l4_size),
            self.mpls_payload(),
            self.nd_target().map(|at| at + 16),
            option.map(|at| at + 6),
        ]
        .into_iter()
        .flatten()
        .fold(0, usize::max)
    }
}

#[inline]
const fn present(offset: u16) -> Option<usize> {
    match offset {
        0 => None,
        offset => Some(offset as usize),
    }
}
