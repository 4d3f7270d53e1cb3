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

use crate::bytes::{be16, chunk};
use crate::ipv6::extensions::{self, ExtHeaders, Fragment};
use crate::{EtherType, IpProto, Packet, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, mpls, pbb, sctp};
use crate::{tcp, udp, vlan};

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
    #[inline]
    pub fn parse(frame: &[u8], depth: Depth) -> Layers {
        Self::parse_head(frame, frame.len(), depth)
    }

    /// Parses the head of a packet.
    #[inline]
    pub fn of<P: Packet>(packet: &P, depth: Depth) -> Layers {
        Self::parse_head(packet.head(), packet.len(), depth)
    }

    /// Parses the head of a packet of `size` bytes in all segments.
    #[inline]
    pub fn parse_head(head: &[u8], size: usize, depth: Depth) -> Layers {
        let mut layers = Layers::NONE;
        let head = head.get(..usize::from(u16::MAX)).unwrap_or(head);
        let Some(header) = chunk::<{ ethernet::SIZE }>(head, 0) else {
            return layers;
        };
        let mut ether_type = EtherType(be16(header, 12));
        let mut at = ethernet::SIZE;
        while ether_type.is_vlan() {
            let Some(tag) = chunk::<{ vlan::SIZE }>(head, at) else {
                break;
            };
            ether_type = EtherType(be16(tag, 2));
            at += vlan::SIZE;
            layers.vlan_count += 1;
        }
        if ether_type < EtherType::MIN {
            match head.get(at..).and_then(ethernet::snap) {
                Some(snap) => {
                    ether_type = snap;
                    at += ethernet::SNAP_SIZE;
                }
                None => ether_type = EtherType::NOT_ETH_TYPE,
            }
        }
        layers.ether_type = ether_type;
        layers.l3_offset = at as u16;
        if depth > Depth::L2 {
            match ether_type {
                EtherType::IPV4 => layers.ipv4(head, size, depth),
                EtherType::IPV6 => layers.ipv6(head, size, depth),
                _ => layers.other(head),
            }
        }
        layers
    }

    #[inline]
    fn ipv4(&mut self, head: &[u8], size: usize, depth: Depth) {
        let at = usize::from(self.l3_offset);
        let Some(header) = chunk::<{ ipv4::MIN_SIZE }>(head, at) else {
            return;
        };
        let header_size = usize::from(header[0] & 0xf) * 4;
        let total_size = usize::from(be16(header, ipv4::offset::TOTAL_SIZE));
        // The options are in the head, too; and the sizes do not contradict each other.
        let good = header[0] >> 4 == 4
            && header_size >= ipv4::MIN_SIZE
            && header_size <= total_size
            && at + header_size <= head.len()
            && at + total_size <= size;
        if !good {
            return;
        }
        let fragment = be16(header, ipv4::offset::FRAGMENT);
        self.fragment = if fragment & ipv4::FRAGMENT_OFFSET != 0 {
            Fragment::Later
        } else if fragment & ipv4::MORE_FRAGMENTS != 0 {
            Fragment::First
        } else {
            Fragment::Whole
        };
        self.l3 = L3::Ipv4;
        self.ip_proto = IpProto(header[ipv4::offset::PROTO]);
        self.l4_offset = (at + header_size) as u16;
        self.l4_size = (total_size - header_size) as u16;
        if depth > Depth::L3 && self.fragment != Fragment::Later {
            self.l4 = match self.ip_proto {
                IpProto::ICMPV4 => self.if_whole::<{ icmpv4::SIZE }>(head, L4::Icmpv4),
                _ => self.transport(head),
            };
        }
    }

    #[inline]
    fn ipv6(&mut self, head: &[u8], size: usize, depth: Depth) {
        let at = usize::from(self.l3_offset);
        let Some(header) = chunk::<{ ipv6::SIZE }>(head, at) else {
            return;
        };
        let payload_at = at + ipv6::SIZE;
        let payload_size = usize::from(be16(header, ipv6::offset::PAYLOAD_SIZE));
        if header[0] >> 4 != 6 || payload_at + payload_size > size {
            return;
        }
        let payload = &head[payload_at..head.len().min(payload_at + payload_size)];
        let walk = extensions::walk(IpProto(header[ipv6::offset::NEXT_HEADER]), payload);
        self.l3 = L3::Ipv6;
        self.ip_proto = walk.proto;
        self.ext_headers = walk.headers;
        self.fragment = walk.fragment;
        self.routed = walk.routed;
        self.l4_offset = (payload_at + walk.size) as u16;
        self.l4_size = (payload_size - walk.size) as u16;
        if depth > Depth::L3 && walk.complete && self.fragment != Fragment::Later {
            self.l4 = match self.ip_proto {
                IpProto::ICMPV6 => self.if_whole::<{ icmpv6::SIZE }>(head, L4::Icmpv6),
                _ => self.transport(head),
            };
            if depth > Depth::L4 && self.l4 == L4::Icmpv6 {
                self.neighbor(head);
            }
        }
    }

    /// The bytes of the IP packet's payload that are in the head.
    #[inline]
    fn l4_bytes<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        let at = usize::from(self.l4_offset);
        let end = head.len().min(at + usize::from(self.l4_size));
        head.get(at..end).unwrap_or_default()
    }

    /// `kind`, if the first `N` bytes of the payload are in the head.
    #[inline]
    fn if_whole<const N: usize>(&self, head: &[u8], kind: L4) -> L4 {
        if self.l4_bytes(head).len() >= N {
            kind
        } else {
            L4::None
        }
    }

    #[inline]
    fn transport(&self, head: &[u8]) -> L4 {
        let bytes = self.l4_bytes(head);
        let kind = match self.ip_proto {
            IpProto::TCP => chunk::<{ tcp::MIN_SIZE }>(bytes, 0).and_then(|header| {
                let header_size = header[tcp::offset::DATA_OFFSET] >> 4 << 2;
                let good =
                    usize::from(header_size) >= tcp::MIN_SIZE && u16::from(header_size) <= self.l4_size;
                good.then_some(L4::Tcp)
            }),
            IpProto::UDP => chunk::<{ udp::SIZE }>(bytes, 0).and_then(|header| {
                // A first fragment holds the length of the whole datagram.
                let size = be16(header, udp::offset::SIZE);
                let good =
                    size as usize >= udp::SIZE && (size <= self.l4_size || self.fragment == Fragment::First);
                good.then_some(L4::Udp)
            }),
            IpProto::SCTP => chunk::<{ sctp::SIZE }>(bytes, 0).map(|_| L4::Sctp),
            _ => None,
        };
        kind.unwrap_or(L4::None)
    }

    /// A later option, and what a malformed option hides, is not seen.
    fn neighbor(&mut self, head: &[u8]) {
        let bytes = self.l4_bytes(head);
        let Some(header) = chunk::<{ icmpv6::ND_SIZE }>(bytes, 0) else {
            return;
        };
        let kind = header[icmpv6::offset::TYPE];
        self.nd = match kind {
            _ if header[icmpv6::offset::CODE] != 0 => return,
            icmpv6::NEIGHBOR_SOLICIT => Nd::Solicit,
            icmpv6::NEIGHBOR_ADVERT => Nd::Advert,
            _ => return,
        };
        let mut at = icmpv6::ND_SIZE;
        while let Some(option) = chunk::<{ icmpv6::ND_LLA_SIZE }>(bytes, at) {
            let size = usize::from(option[1]) * 8;
            if size == 0 || at + size > bytes.len() {
                return;
            }
            if option[0] == icmpv6::lla_option(kind) && size == icmpv6::ND_LLA_SIZE {
                self.nd_lla = self.l4_offset + (at + icmpv6::offset::ND_LLA) as u16;
                return;
            }
            at += size;
        }
    }

    fn other(&mut self, head: &[u8]) {
        let at = usize::from(self.l3_offset);
        self.l3 = match self.ether_type {
            EtherType::ARP if chunk(head, at).is_some_and(arp::is_ipv4_over_ethernet) => L3::Arp,
            EtherType::PBB if chunk::<{ pbb::SIZE }>(head, at).is_some() => L3::Pbb,
            ether_type if ether_type.is_mpls() => return self.mpls(head),
            _ => L3::None,
        };
    }

    fn mpls(&mut self, head: &[u8]) {
        let mut at = usize::from(self.l3_offset);
        while let Some(entry) = chunk::<{ mpls::SIZE }>(head, at) {
            self.l3 = L3::Mpls;
            self.mpls_count += 1;
            at += mpls::SIZE;
            if u32::from_be_bytes(*entry) & mpls::BOS != 0 {
                // MPLS does not say what it carries; the first four bits of an IP packet do (RFC 4928).
                self.mpls_payload = at as u16;
                let version = head.get(at).map(|byte| byte >> 4);
                let has = |size: usize| head.len() - at >= size;
                self.mpls_inner = match version {
                    Some(4) if has(ipv4::MIN_SIZE) => L3::Ipv4,
                    Some(6) if has(ipv6::SIZE) => L3::Ipv6,
                    _ => L3::None,
                };
                return;
            }
        }
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
