//! Long TCP packets, and the segments that they are cut into.
//!
//! A virtual machine need not cut its stream into segments: it hands over up to 64 KiB with one header, and says how
//! much data a segment of the network may have ([`Packet::segment_size`]). Such a packet goes through the switch whole,
//! which costs as much as one segment does, and is cut here where it meets somebody who takes no more than a segment.
//!
//! The segments are what the sender would have sent: the headers are copied; lengths, the identification (RFC 791),
//! the sequence number, the flags and the urgent pointer (RFC 9293) and both checksums are those of each segment. CWR
//! is on the first one only (RFC 3168, section 6.1.2), FIN and PSH on the last. Checksums are computed anew: whoever
//! leaves the cutting to others leaves the checksums to them.

use core::num::NonZeroU16;

use arrayvec::ArrayVec;

use crate::bytes::{be16, be32, chunk, chunk_mut};
use crate::checksum::Sum;
use crate::{
    Depth, EtherType, ExtHeaders, Fragment, IpProto, L3, L4, Layers, Packet, ethernet, ipv4, ipv6, pbb, tcp,
};

/// Bytes of headers that a packet to be cut may have, from the first of Ethernet to the last option of TCP: 60 of TCP,
/// 60 of IPv4 or 40 of IPv6 with extension headers, and what was pushed in front.
pub const HEADERS_MAX: usize = 256;

/// A packet that is to be cut, and all that its segments have in common.
#[derive(Clone, Debug)]
pub struct Cut {
    headers: ArrayVec<u8, HEADERS_MAX>,
    ip_at: usize,
    tcp_at: usize,
    is_ipv6: bool,
    /// Whether there are only Ethernet and VLAN tags in front of IP.
    is_plain: bool,
    /// Bytes of data.
    size: usize,
    /// Bytes of data of a segment.
    segment_size: NonZeroU16,
    /// Of addresses and protocol.
    pseudo: Sum,
}

impl Cut {
    /// How a packet is to be cut; `None` if it is not to be, or cannot: it is no TCP over IP, or a part of one, has
    /// something behind it in the frame, begins or resets a connection, or is signed (RFC 4302), or has a source
    /// route.
    #[must_use]
    pub fn of<P: Packet>(packet: &P) -> Option<Cut> {
        let segment_size = packet.segment_size()?;
        let (head, frame_size) = (packet.head(), packet.len());
        let (ip_at, is_ipv6, is_plain) = find_ip(head, frame_size)?;
        // Whatever is in front of IP, it is parsed as if it were Ethernet.
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
        if layers.l4() != L4::Tcp || !is_whole {
            return None;
        }
        let tcp_at = ip_at + layers.l4_offset() - ethernet::SIZE;
        let fixed: &[u8; tcp::MIN_SIZE] = chunk(head, tcp_at)?;
        let headers_size = tcp_at + usize::from(fixed[tcp::offset::DATA_OFFSET] >> 4) * 4;
        if be16(fixed, tcp::offset::DATA_OFFSET) & (tcp::flags::SYN | tcp::flags::RST) != 0 {
            return None;
        }
        let addresses = if is_ipv6 {
            head.get(ip_at + ipv6::offset::SRC..ip_at + ipv6::SIZE)?
        } else {
            if has_source_route(head.get(ip_at + ipv4::MIN_SIZE..tcp_at)?) {
                return None;
            }
            head.get(ip_at + ipv4::offset::SRC..ip_at + ipv4::MIN_SIZE)?
        };
        let mut headers = ArrayVec::new();
        headers.try_extend_from_slice(head.get(..headers_size)?).ok()?;
        Some(Cut {
            headers,
            ip_at,
            tcp_at,
            is_ipv6,
            is_plain,
            size: frame_size - headers_size,
            segment_size,
            pseudo: Sum::of(addresses).add16(u16::from(IpProto::TCP.0)),
        })
    }

    /// Whether this is the packet that was looked at, or one with the same headers and as long.
    #[must_use]
    pub fn is_of<P: Packet>(&self, packet: &P) -> bool {
        packet.len() == self.headers.len() + self.size && packet.head().starts_with(&self.headers)
    }

    /// How many segments there are, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.size.div_ceil(self.segment_size()).max(1)
    }

    /// Bytes of data of each segment but the last.
    #[must_use]
    pub fn segment_size(&self) -> usize {
        usize::from(self.segment_size.get())
    }

    /// Bytes of headers, which each segment has.
    #[must_use]
    pub fn headers_size(&self) -> usize {
        self.headers.len()
    }

    /// Bytes of the longest segment from the IP header on: what an MTU limits.
    #[must_use]
    pub fn packet_size(&self) -> usize {
        self.headers.len() - self.ip_at + self.size.min(self.segment_size())
    }

    /// Bytes in front of IP, of IP with all that is between it and TCP, and of TCP's header.
    #[must_use]
    pub fn layers(&self) -> [usize; 3] {
        [
            self.ip_at,
            self.tcp_at - self.ip_at,
            self.headers.len() - self.tcp_at,
        ]
    }

    /// Whether it is IPv6; otherwise it is IPv4.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// What stands in the place of TCP's checksum while it is left to whoever gets the packet whole: the sum of the pseudo
    /// header, with the length of the whole.
    #[must_use]
    pub fn pseudo_sum(&self) -> u16 {
        let tcp_size = self.headers.len() - self.tcp_at + self.size;
        self.pseudo.add32(tcp_size as u32).folded()
    }

    /// Whether there are only Ethernet and VLAN tags in front of IP: nobody else is told how to cut more than that.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether the first segment is to say that the congestion window was reduced, and the others not.
    #[must_use]
    pub fn has_cwr(&self) -> bool {
        self.flags() & tcp::flags::CWR != 0
    }

    /// The segment of a number less than [`Cut::count`], of this packet, which is the one that was looked at; `None` when
    /// no buffer is free, or there is no such segment.
    #[must_use]
    pub fn segment<P: Packet>(&self, packet: &P, number: usize) -> Option<P> {
        if number >= self.count() {
            return None;
        }
        let begin = number.checked_mul(self.segment_size())?;
        let size = self.size.checked_sub(begin)?.min(self.segment_size());
        let mut headers = self.headers.clone();
        self.place(&mut headers, number, begin, size)?;
        let mut segment = packet.piece(&headers, self.headers.len() + begin, size)?;
        let tcp_size = self.headers.len() - self.tcp_at + size;
        let sum = segment
            .sum(self.tcp_at, tcp_size)
            .add16(self.pseudo.folded())
            .add16(tcp_size as u16);
        let at = self.tcp_at + tcp::offset::CHECKSUM;
        *chunk_mut(segment.head_mut(), at)? = sum.checksum().to_be_bytes();
        Some(segment)
    }

    /// Makes the headers those of a segment, with a checksum of TCP that is zero.
    fn place(&self, headers: &mut [u8], number: usize, begin: usize, size: usize) -> Option<()> {
        let ip_size = headers.len() - self.ip_at + size;
        let ip = headers.get_mut(self.ip_at..self.tcp_at)?;
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
        let fixed: &mut [u8; tcp::MIN_SIZE] = chunk_mut(headers, self.tcp_at)?;
        let sequence = be32(fixed, tcp::offset::SEQ).wrapping_add(begin as u32);
        let (is_first, is_last) = (number == 0, begin + size == self.size);
        let mut word = be16(fixed, tcp::offset::DATA_OFFSET);
        if !is_first {
            word &= !tcp::flags::CWR;
        }
        if !is_last {
            word &= !(tcp::flags::FIN | tcp::flags::PSH);
        }
        // It counts from the sequence number on, and is of no use in segments behind what it points to.
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

    fn flags(&self) -> u16 {
        chunk::<{ tcp::MIN_SIZE }>(&self.headers, self.tcp_at)
            .map_or(0, |fixed| be16(fixed, tcp::offset::DATA_OFFSET))
    }
}

/// Whether IPv4 options say where the packet is to go: its checksum covers the last address then, not that in the
/// header (RFC 1122, section 4.2.3.8).
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

/// Where an IP header is behind VLAN tags, MPLS labels and at most one PBB tag; whether it is IPv6; and whether there
/// is nothing but VLAN tags.
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
