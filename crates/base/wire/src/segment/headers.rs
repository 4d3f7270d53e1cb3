//! The headers of a GSO packet down to its TCP or UDP data, through any tunnels.
//!
//! A kernel hands over a packet of its tunnels (VXLAN, Geneve, GRE, IP in IP) with the headers of the tunnel, and says only
//! where the inner checksum starts:
//!
//! ```text
//!  Ethernet | IP | UDP | VXLAN | Ethernet | VLAN | IP | TCP | data of many segments
//!           ^    ^                               ^    ^
//!           |    +---- outer: lengths and checksums differ between segments
//!           +--------- outermost IP: the MTU applies from here on
//!                                                +---- innermost IP, whose data is segmented
//! ```
//! The headers between the outer transport header and the inner IP header have no common form: the UDP port of a tunnel
//! is a setting of the kernel. Therefore the inner IP header is searched. It is one that says of itself that it ends where
//! the packet ends, with a correct header checksum (IPv4), up to a TCP or UDP header with the partial checksum that
//! fits the addresses and the size of the packet: 48 bits and more that must agree. A train of datagrams over UDP has no
//! such header, because each datagram has its own.

use arrayvec::ArrayVec;

use crate::bytes::{be16, chunk};
use crate::checksum::Sum;
use crate::{
    Depth, EtherType, ExtHeaders, Fragment, IpProto, L3, L4, Layers, ethernet, ipv4, ipv6, pbb, tcp, udp,
};

/// Largest size in bytes of all headers of a GSO packet, from Ethernet to the TCP options: 60 of TCP, 60 of IPv4 or 40
/// of IPv6 with extension headers, and the headers pushed in front, such as those of a tunnel.
pub const HEADERS_MAX: usize = 256;

/// The greatest number of headers of tunnels that a segment changes: IP and a transport header, for two tunnels.
pub(super) const OUTER_MAX: usize = 4;
/// All headers have an even size.
const STEP: usize = 2;
/// Protocols of packets in IP (IANA, "Protocol Numbers").
const IPV4: IpProto = IpProto(4);
const IPV6: IpProto = IpProto(41);
const GRE: IpProto = IpProto(47);
const MPLS: IpProto = IpProto(137);
/// Flag of GRE: a checksum follows (RFC 2784, section 2.1).
const GRE_CHECKSUM: u16 = 0x8000;

/// A header of a tunnel, at an offset, that differs between segments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outer {
    Ipv4 {
        at: usize,
        /// Size in bytes, with options.
        size: usize,
    },
    Ipv6 {
        at: usize,
    },
    Udp {
        at: usize,
        /// The sum of addresses and protocol in the pseudo-header; `None` without a checksum (RFC 768).
        pseudo: Option<Sum>,
    },
    /// GRE with a checksum.
    Gre {
        at: usize,
    },
}

/// The innermost IP header and its transport header.
pub(super) struct Innermost {
    pub(super) ip_at: usize,
    pub(super) is_ipv6: bool,
    /// Offset of the TCP or UDP header.
    pub(super) l4_at: usize,
    pub(super) is_udp: bool,
    /// Size in bytes of all headers, with those of TCP or UDP.
    pub(super) size: usize,
    /// The sum of addresses and protocol in the pseudo-header.
    pub(super) pseudo: Sum,
}

/// An IP header whose payload ends with the frame.
struct Ip {
    at: usize,
    is_ipv6: bool,
    protocol: IpProto,
    /// Offset of the payload.
    l4_at: usize,
    /// The sum of both addresses.
    addresses: Sum,
}

impl Ip {
    /// Parses the IP header at `at`. Returns `None` if the packet is a fragment, has bytes after it, an authentication
    /// header (RFC 4302), or a source route.
    fn parse(head: &[u8], frame_size: usize, at: usize, is_ipv6: bool) -> Option<(Ip, L4)> {
        // The parser needs a plain frame, so one Ethernet header replaces all headers in front of IP.
        let mut view: ArrayVec<u8, HEADERS_MAX> = ArrayVec::new();
        let kind = if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        view.try_extend_from_slice(&[0; ethernet::SIZE - 2]).ok()?;
        view.try_extend_from_slice(&kind.0.to_be_bytes()).ok()?;
        let shown = head.len().min(at + HEADERS_MAX - ethernet::SIZE);
        view.try_extend_from_slice(head.get(at..shown)?).ok()?;
        let ip_size = frame_size.checked_sub(at)?;
        let layers = Layers::parse_head(&view, ethernet::SIZE + ip_size, Depth::L4);
        let is_whole = layers.fragment() == Fragment::Whole
            && layers.l4_offset() + layers.l4_size() == ethernet::SIZE + ip_size
            && !layers.ext_headers().contains(ExtHeaders::AUTH)
            && !layers.ext_headers().contains(ExtHeaders::FRAG)
            && !layers.is_routed();
        if !is_whole {
            return None;
        }
        let l4_at = at + layers.l4_offset() - ethernet::SIZE;
        let addresses = if is_ipv6 {
            head.get(at + ipv6::offset::SRC..at + ipv6::SIZE)?
        } else {
            if has_source_route(head.get(at + ipv4::MIN_SIZE..l4_at)?) {
                return None;
            }
            head.get(at + ipv4::offset::SRC..at + ipv4::MIN_SIZE)?
        };
        let ip = Ip {
            at,
            is_ipv6,
            protocol: layers.ip_proto(),
            l4_at,
            addresses: Sum::of(addresses),
        };
        Some((ip, layers.l4()))
    }

    /// Returns this header as one of a tunnel.
    fn outer(&self) -> Outer {
        let (at, size) = (self.at, self.l4_at - self.at);
        match self.is_ipv6 {
            true => Outer::Ipv6 { at },
            false => Outer::Ipv4 { at, size },
        }
    }

    fn pseudo(&self) -> Sum {
        self.addresses.add16(u16::from(self.protocol.0))
    }

    /// Returns the innermost headers if this is the IP header of a TCP or UDP packet.
    fn innermost(&self, head: &[u8], frame_size: usize, l4: L4) -> Option<Innermost> {
        let (size, is_udp) = match l4 {
            L4::Tcp => (self.l4_at + tcp_header_size(head, self.l4_at)?, false),
            L4::Udp => (self.l4_at + udp_header_size(head, self.l4_at, frame_size)?, true),
            _ => return None,
        };
        Some(Innermost {
            ip_at: self.at,
            is_ipv6: self.is_ipv6,
            l4_at: self.l4_at,
            is_udp,
            size,
            pseudo: self.pseudo(),
        })
    }
}

/// Finds the innermost TCP or UDP header behind the IP header at `at`, and appends the headers of tunnels on the way, the
/// outermost first.
pub(super) fn find(
    head: &[u8],
    frame_size: usize,
    at: usize,
    is_ipv6: bool,
    outer: &mut ArrayVec<Outer, OUTER_MAX>,
) -> Option<Innermost> {
    let (ip, l4) = Ip::parse(head, frame_size, at, is_ipv6)?;
    if l4 == L4::Tcp {
        return ip.innermost(head, frame_size, l4);
    }
    // The checksum of a tunnel's UDP header covers the inner packet; the search begins behind it.
    let inside = find_inside(head, frame_size, &ip, l4, outer);
    inside.or_else(|| ip.innermost(head, frame_size, l4))
}

/// Searches the headers of a packet inside an IP packet.
fn find_inside(
    head: &[u8],
    frame_size: usize,
    ip: &Ip,
    l4: L4,
    outer: &mut ArrayVec<Outer, OUTER_MAX>,
) -> Option<Innermost> {
    let (depth, at) = (outer.len(), ip.l4_at);
    outer.try_push(ip.outer()).ok()?;
    let found = (|| {
        let mut from = at;
        match l4 {
            L4::Udp => {
                udp_header_size(head, at, frame_size)?;
                let fixed: &[u8; udp::SIZE] = chunk(head, at)?;
                let has_checksum = be16(fixed, udp::offset::CHECKSUM) != 0;
                let pseudo = has_checksum.then(|| ip.pseudo());
                outer.try_push(Outer::Udp { at, pseudo }).ok()?;
                from += udp::SIZE;
            }
            _ if ip.protocol == GRE => {
                let fixed: &[u8; 2] = chunk(head, at)?;
                if be16(fixed, 0) & GRE_CHECKSUM != 0 {
                    outer.try_push(Outer::Gre { at }).ok()?;
                }
                from += 4;
            }
            _ if matches!(ip.protocol, IPV4 | IPV6 | MPLS) => {}
            _ => return None,
        }
        let until = head.len().min(HEADERS_MAX);
        (from..until)
            .step_by(STEP)
            .find_map(|at| inner_at(head, frame_size, at, outer))
    })();
    if found.is_none() {
        outer.truncate(depth);
    }
    found
}

/// Returns the innermost headers if an IP header is at `at` that ends where the frame ends.
fn inner_at(
    head: &[u8],
    frame_size: usize,
    at: usize,
    outer: &mut ArrayVec<Outer, OUTER_MAX>,
) -> Option<Innermost> {
    let is_ipv6 = match head.get(at)? >> 4 {
        4 => {
            let fixed: &[u8; ipv4::MIN_SIZE] = chunk(head, at)?;
            let header = head.get(at..at + usize::from(fixed[0] & 0xf) * 4)?;
            let is_right = at + usize::from(be16(fixed, ipv4::offset::TOTAL_SIZE)) == frame_size
                && Sum::of(header).checksum() == 0;
            is_right.then_some(false)?
        }
        6 => {
            let fixed: &[u8; ipv6::SIZE] = chunk(head, at)?;
            let size = ipv6::SIZE + usize::from(be16(fixed, ipv6::offset::PAYLOAD_SIZE));
            (at + size == frame_size).then_some(true)?
        }
        _ => return None,
    };
    let depth = outer.len();
    let found = find(head, frame_size, at, is_ipv6, outer)
        .filter(|found| has_partial_checksum(head, frame_size, found));
    if found.is_none() {
        outer.truncate(depth);
    }
    found
}

/// Returns true if the checksum field of TCP or UDP has the sum of the pseudo-header, as in every GSO packet.
fn has_partial_checksum(head: &[u8], frame_size: usize, found: &Innermost) -> bool {
    let offset = if found.is_udp {
        udp::offset::CHECKSUM
    } else {
        tcp::offset::CHECKSUM
    };
    let field: Option<&[u8; 2]> = chunk(head, found.l4_at + offset);
    let size = frame_size - found.l4_at;
    field.is_some_and(|field| be16(field, 0) == found.pseudo.add32(size as u32).folded())
}

/// Returns the size of the TCP header at `at` in bytes; `None` if it has SYN or RST.
fn tcp_header_size(head: &[u8], at: usize) -> Option<usize> {
    let fixed: &[u8; tcp::MIN_SIZE] = chunk(head, at)?;
    let is_data = be16(fixed, tcp::offset::DATA_OFFSET) & (tcp::flags::SYN | tcp::flags::RST) == 0;
    is_data.then(|| usize::from(fixed[tcp::offset::DATA_OFFSET] >> 4) * 4)
}

/// Returns the size of the UDP header at `at` in bytes; `None` if the datagram does not end with the frame.
fn udp_header_size(head: &[u8], at: usize, frame_size: usize) -> Option<usize> {
    let fixed: &[u8; udp::SIZE] = chunk(head, at)?;
    let size = usize::from(be16(fixed, udp::offset::SIZE));
    (at + size == frame_size).then_some(udp::SIZE)
}

/// Returns true if the IPv4 options contain a source route. The checksum then covers the final destination, not the
/// address in the header (RFC 1122, section 4.2.3.8).
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    loop {
        options = match options {
            [] | [END, ..] => return false,
            [NOTHING, rest @ ..] => rest,
            [LOOSE | STRICT, ..] => return true,
            [_, size, ..] => match options.get(usize::from(*size).max(2)..) {
                Some(rest) => rest,
                None => return false,
            },
            [_] => return false,
        };
    }
}

/// Returns the offset of the IP header after VLAN tags, MPLS labels and at most one PBB tag; true if it is IPv6; and
/// true if only VLAN tags precede it.
pub(super) fn find_ip(head: &[u8], size: usize) -> Option<(usize, bool, bool)> {
    let outer = Layers::parse_head(head, size, Depth::L3);
    let customer = match outer.l3() {
        L3::Pbb => outer.l3_offset() + pbb::SIZE - ethernet::SIZE,
        _ => 0,
    };
    let layers = if customer == 0 {
        outer
    } else {
        Layers::parse_head(head.get(customer..)?, size.checked_sub(customer)?, Depth::L3)
    };
    let (at, kind) = match layers.l3() {
        L3::Mpls => (layers.mpls_payload()?, layers.mpls_inner()),
        l3 => (layers.l3_offset(), l3),
    };
    let is_plain = customer == 0 && layers.l3() != L3::Mpls;
    match kind {
        L3::Ipv4 => Some((customer + at, false, is_plain)),
        L3::Ipv6 => Some((customer + at, true, is_plain)),
        _ => None,
    }
}
