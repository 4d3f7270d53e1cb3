//! GSO packets: TCP and UDP packets longer than the MTU, and their segmentation.
//!
//! A virtual machine or a kernel may send TCP data unsegmented: up to 64 KiB with one header, and the segment size as
//! metadata ([`Packet::segment_size`]). Such a packet passes through the switch whole, at the cost of one ordinary
//! packet, and is segmented here if its output port accepts no GSO packets.
//!
//! The segments are those that the sender would have sent. Headers are copied; lengths, the identification (RFC 791),
//! the sequence number, the flags and the urgent pointer (RFC 9293) and both checksums are set for each segment. CWR
//! is on the first segment only (RFC 3168, section 6.1.2), FIN and PSH on the last. Checksums are computed from the
//! data, since the sender of a GSO packet leaves them partial.
//!
//! A GSO packet of UDP (`UDP_SEGMENT` of Linux, USO of virtio 1.2) is a train of datagrams of one flow: each segment is a
//! datagram with its own length, identification and checksum.

use core::num::NonZeroU16;

use arrayvec::ArrayVec;

use crate::bytes::{be16, be32, chunk, chunk_mut};
use crate::checksum::Sum;
use crate::{
    Depth, EtherType, ExtHeaders, Fragment, IpProto, L3, L4, Layers, Packet, ethernet, ipv4, ipv6, pbb, tcp,
    udp,
};

/// Largest size in bytes of all headers of a GSO packet, from Ethernet to the TCP options: 60 of TCP, 60 of IPv4 or 40
/// of IPv6 with extension headers, and the headers pushed in front.
pub const HEADERS_MAX: usize = 256;

/// The layout of a GSO packet, and the values that all its segments share.
#[derive(Clone, Debug)]
pub struct GsoLayout {
    headers: ArrayVec<u8, HEADERS_MAX>,
    ip_at: usize,
    /// Offset of the TCP or UDP header.
    l4_at: usize,
    is_udp: bool,
    is_ipv6: bool,
    /// True if only Ethernet and VLAN tags precede IP.
    is_plain: bool,
    /// Size of the data in bytes.
    size: usize,
    /// Size of the data of a segment in bytes.
    segment_size: NonZeroU16,
    /// The sum of addresses and protocol in the pseudo-header.
    pseudo: Sum,
}

impl GsoLayout {
    /// Returns the layout of a GSO packet. Returns `None` if the packet is not a GSO packet, or cannot be segmented:
    /// it is neither TCP nor UDP over IP, is a fragment, has bytes after the IP packet, has SYN or RST, has an
    /// authentication header (RFC 4302), or has a source route.
    #[must_use]
    pub fn of<P: Packet>(packet: &P) -> Option<GsoLayout> {
        let segment_size = packet.segment_size()?;
        let (head, frame_size) = (packet.head(), packet.len());
        let (ip_at, is_ipv6, is_plain) = find_ip(head, frame_size)?;
        // The parser needs a plain frame, so one Ethernet header replaces all headers in front of IP.
        let mut view: ArrayVec<u8, HEADERS_MAX> = ArrayVec::new();
        let kind = if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        view.try_extend_from_slice(&[0; ethernet::SIZE - 2]).ok()?;
        view.try_extend_from_slice(&kind.0.to_be_bytes()).ok()?;
        let shown = head.len().min(ip_at + HEADERS_MAX - ethernet::SIZE);
        view.try_extend_from_slice(head.get(ip_at..shown)?).ok()?;
        let ip_size = frame_size.checked_sub(ip_at)?;
        let layers = Layers::parse_head(&view, ethernet::SIZE + ip_size, Depth::L4);
        let is_whole = layers.fragment() == Fragment::Whole
            && layers.l4_offset() + layers.l4_size() == ethernet::SIZE + ip_size
            && !layers.ext_headers().contains(ExtHeaders::AUTH)
            && !layers.ext_headers().contains(ExtHeaders::FRAG)
            && !layers.is_routed();
        if !is_whole {
            return None;
        }
        let l4_at = ip_at + layers.l4_offset() - ethernet::SIZE;
        let (headers_size, is_udp) = match layers.l4() {
            L4::Tcp => (l4_at + tcp_header_size(head, l4_at)?, false),
            L4::Udp => (l4_at + udp_header_size(head, l4_at, frame_size)?, true),
            _ => return None,
        };
        let protocol = if is_udp { IpProto::UDP } else { IpProto::TCP };
        let addresses = if is_ipv6 {
            head.get(ip_at + ipv6::offset::SRC..ip_at + ipv6::SIZE)?
        } else {
            if has_source_route(head.get(ip_at + ipv4::MIN_SIZE..l4_at)?) {
                return None;
            }
            head.get(ip_at + ipv4::offset::SRC..ip_at + ipv4::MIN_SIZE)?
        };
        let mut headers = ArrayVec::new();
        headers.try_extend_from_slice(head.get(..headers_size)?).ok()?;
        Some(GsoLayout {
            headers,
            ip_at,
            l4_at,
            is_udp,
            is_ipv6,
            is_plain,
            size: frame_size - headers_size,
            segment_size,
            pseudo: Sum::of(addresses).add16(u16::from(protocol.0)),
        })
    }

    /// Returns true if the layout was made from this packet, or from a packet of the same size with the same
    /// headers.
    #[must_use]
    pub fn is_of<P: Packet>(&self, packet: &P) -> bool {
        packet.len() == self.headers.len() + self.size && packet.head().starts_with(&self.headers)
    }

    /// Returns the number of segments, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.size.div_ceil(self.segment_size()).max(1)
    }

    /// Returns the size of the TCP data of each segment except the last, in bytes.
    #[must_use]
    pub fn segment_size(&self) -> usize {
        usize::from(self.segment_size.get())
    }

    /// Returns the size of the headers, which each segment repeats, in bytes.
    #[must_use]
    pub fn headers_size(&self) -> usize {
        self.headers.len()
    }

    /// Returns the size of the longest segment from the IP header on, in bytes; the MTU limits it.
    #[must_use]
    pub fn packet_size(&self) -> usize {
        self.headers.len() - self.ip_at + self.size.min(self.segment_size())
    }

    /// Returns three sizes in bytes: the headers before IP, the IP header with everything up to TCP or UDP,
    /// and the TCP or UDP header.
    #[must_use]
    pub fn layers(&self) -> [usize; 3] {
        [
            self.ip_at,
            self.l4_at - self.ip_at,
            self.headers.len() - self.l4_at,
        ]
    }

    /// Returns true for IPv6, false for IPv4.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Returns true for UDP, false for TCP.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.is_udp
    }

    /// Returns the offset of the checksum in the header of TCP (RFC 9293) or UDP (RFC 768).
    #[must_use]
    pub fn checksum_offset(&self) -> usize {
        if self.is_udp {
            udp::offset::CHECKSUM
        } else {
            tcp::offset::CHECKSUM
        }
    }

    /// Returns the sum of the pseudo-header, with the length of the whole packet. It is the partial checksum
    /// of a GSO packet that is sent unsegmented.
    #[must_use]
    pub fn pseudo_sum(&self) -> u16 {
        let l4_size = self.headers.len() - self.l4_at + self.size;
        self.pseudo.add32(l4_size as u32).folded()
    }

    /// Returns true if only Ethernet and VLAN tags precede IP. Other devices cannot segment packets with
    /// further headers.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Returns true if only the first segment may carry the CWR flag.
    #[must_use]
    pub fn has_cwr(&self) -> bool {
        self.flags() & tcp::flags::CWR != 0
    }

    /// Returns a segment of `packet`, from which this layout must have been made. Returns `None` if no buffer
    /// is free or `number` is not less than [`GsoLayout::count`].
    #[must_use]
    pub fn segment<P: Packet>(&self, packet: &P, number: usize) -> Option<P> {
        if number >= self.count() {
            return None;
        }
        let begin = number.checked_mul(self.segment_size())?;
        let size = self.size.checked_sub(begin)?.min(self.segment_size());
        let mut headers = self.headers.clone();
        self.place(&mut headers, number, begin, size)?;
        let mut segment = packet.gso_segment(&headers, self.headers.len() + begin, size)?;
        let l4_size = self.headers.len() - self.l4_at + size;
        let sum = segment
            .sum(self.l4_at, l4_size)
            .add16(self.pseudo.folded())
            .add16(l4_size as u16);
        let checksum = if self.is_udp {
            sum.udp_checksum()
        } else {
            sum.checksum()
        };
        let at = self.l4_at + self.checksum_offset();
        *chunk_mut(segment.head_mut(), at)? = checksum.to_be_bytes();
        Some(segment)
    }

    /// Changes copied headers into those of a segment, with a TCP or UDP checksum of zero.
    fn place(&self, headers: &mut [u8], number: usize, begin: usize, size: usize) -> Option<()> {
        let ip_size = headers.len() - self.ip_at + size;
        let ip = headers.get_mut(self.ip_at..self.l4_at)?;
        if self.is_ipv6 {
            let payload_size = u16::try_from(ip_size - ipv6::SIZE).ok()?;
            *chunk_mut(ip, ipv6::offset::PAYLOAD_SIZE)? = payload_size.to_be_bytes();
        } else {
            let fixed: &mut [u8; ipv4::MIN_SIZE] = chunk_mut(ip, 0)?;
            let ident = be16(fixed, ipv4::offset::IDENT).wrapping_add(number as u16);
            *chunk_mut(ip, ipv4::offset::TOTAL_SIZE)? = u16::try_from(ip_size).ok()?.to_be_bytes();
            *chunk_mut(ip, ipv4::offset::IDENT)? = ident.to_be_bytes();
            *chunk_mut(ip, ipv4::offset::CHECKSUM)? = [0; 2];
            let checksum = Sum::of(ip).checksum();
            *chunk_mut(ip, ipv4::offset::CHECKSUM)? = checksum.to_be_bytes();
        }
        if self.is_udp {
            let datagram_size = u16::try_from(headers.len() - self.l4_at + size).ok()?;
            let fixed: &mut [u8; udp::SIZE] = chunk_mut(headers, self.l4_at)?;
            *chunk_mut(fixed, udp::offset::SIZE)? = datagram_size.to_be_bytes();
            *chunk_mut(fixed, udp::offset::CHECKSUM)? = [0; 2];
            return Some(());
        }
        let fixed: &mut [u8; tcp::MIN_SIZE] = chunk_mut(headers, self.l4_at)?;
        let sequence = be32(fixed, tcp::offset::SEQ).wrapping_add(begin as u32);
        let (is_first, is_last) = (number == 0, begin + size == self.size);
        let mut word = be16(fixed, tcp::offset::DATA_OFFSET);
        if !is_first {
            word &= !tcp::flags::CWR;
        }
        if !is_last {
            word &= !(tcp::flags::FIN | tcp::flags::PSH);
        }
        // The urgent pointer is relative to the sequence number, and is meaningless in segments after its target.
        let mut urgent = usize::from(be16(fixed, tcp::offset::URGENT));
        if word & tcp::flags::URG != 0 {
            urgent = urgent.saturating_sub(begin);
            if urgent == 0 && !is_first {
                word &= !tcp::flags::URG;
            }
        }
        *chunk_mut(fixed, tcp::offset::SEQ)? = sequence.to_be_bytes();
        *chunk_mut(fixed, tcp::offset::DATA_OFFSET)? = word.to_be_bytes();
        *chunk_mut(fixed, tcp::offset::CHECKSUM)? = [0; 2];
        *chunk_mut(fixed, tcp::offset::URGENT)? = (urgent as u16).to_be_bytes();
        Some(())
    }

    /// Returns the TCP flags; none for UDP.
    fn flags(&self) -> u16 {
        if self.is_udp {
            return 0;
        }
        chunk::<{ tcp::MIN_SIZE }>(&self.headers, self.l4_at)
            .map_or(0, |fixed| be16(fixed, tcp::offset::DATA_OFFSET))
    }
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
fn find_ip(head: &[u8], size: usize) -> Option<(usize, bool, bool)> {
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
