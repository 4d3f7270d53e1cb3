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
//! The data may be that of a packet in a tunnel of a kernel ([`headers`]). The lengths, identifications and checksums of
//! the tunnel's headers are then set for each segment, too.
//!
//! A GSO packet of UDP (`UDP_SEGMENT` of Linux, USO of virtio 1.2) is a train of datagrams of one flow: each segment is a
//! datagram with its own length, identification and checksum.

use core::num::NonZeroU16;

use arrayvec::ArrayVec;

use crate::bytes::{be16, be32, chunk, chunk_mut};
use crate::checksum::Sum;
use crate::{Packet, ipv4, ipv6, tcp, udp};

mod headers;

pub use self::headers::HEADERS_MAX;
use self::headers::{OUTER_MAX, Outer, find_ip};

/// Offset of the checksum in a GRE header that has one (RFC 2784, section 2.1).
const GRE_CHECKSUM_AT: usize = 4;

/// The layout of a GSO packet, and the values that all its segments share.
#[derive(Clone, Debug)]
pub struct GsoLayout {
    headers: ArrayVec<u8, HEADERS_MAX>,
    /// Offset of the outermost IP header.
    outermost_at: usize,
    /// Offset of the innermost IP header.
    ip_at: usize,
    /// Offset of the TCP or UDP header.
    l4_at: usize,
    is_udp: bool,
    /// True if the innermost IP header is of IPv6.
    is_ipv6: bool,
    /// True if only Ethernet and VLAN tags precede the innermost IP header.
    is_plain: bool,
    /// The headers of tunnels, the outermost first.
    outer: ArrayVec<Outer, OUTER_MAX>,
    /// Size of the data in bytes.
    size: usize,
    /// Size of the data of a segment in bytes.
    segment_size: NonZeroU16,
    /// The sum of addresses and protocol in the pseudo-header.
    pseudo: Sum,
}

impl GsoLayout {
    /// Returns the layout of a GSO packet. Returns `None` if the packet is not a GSO packet, or cannot be segmented:
    /// it is neither TCP nor UDP over IP, also inside of tunnels ([`headers`]), is a fragment, has bytes after the IP
    /// packet, has SYN or RST, has an authentication header (RFC 4302), or has a source route.
    #[must_use]
    pub fn of<P: Packet>(packet: &P) -> Option<GsoLayout> {
        let segment_size = packet.segment_size()?;
        let (head, frame_size) = (packet.head(), packet.len());
        let (at, is_ipv6, is_plain) = find_ip(head, frame_size)?;
        let mut outer = ArrayVec::new();
        let found = headers::find(head, frame_size, at, is_ipv6, &mut outer)?;
        let mut headers = ArrayVec::new();
        headers.try_extend_from_slice(head.get(..found.size)?).ok()?;
        Some(GsoLayout {
            headers,
            outermost_at: at,
            ip_at: found.ip_at,
            l4_at: found.l4_at,
            is_udp: found.is_udp,
            is_ipv6: found.is_ipv6,
            is_plain: is_plain && outer.is_empty(),
            outer,
            size: frame_size - found.size,
            segment_size,
            pseudo: found.pseudo,
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

    /// Returns the size of the longest segment from the outermost IP header on, in bytes; the MTU limits it.
    #[must_use]
    pub fn packet_size(&self) -> usize {
        self.headers.len() - self.outermost_at + self.size.min(self.segment_size())
    }

    /// Returns three sizes in bytes: the headers before the innermost IP header, that IP header with everything up to TCP
    /// or UDP, and the TCP or UDP header.
    #[must_use]
    pub fn layers(&self) -> [usize; 3] {
        [
            self.ip_at,
            self.l4_at - self.ip_at,
            self.headers.len() - self.l4_at,
        ]
    }

    /// Returns true if the innermost IP header is of IPv6, false for IPv4.
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

    /// Returns true if only Ethernet and VLAN tags precede the innermost IP header. Other devices cannot segment packets with
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
        // From the innermost to the outermost: each checksum covers those inside.
        for outer in self.outer.iter().rev() {
            let (at, pseudo) = match *outer {
                Outer::Udp {
                    at,
                    pseudo: Some(pseudo),
                } => (at, Some(pseudo)),
                Outer::Gre { at } => (at, None),
                Outer::Udp { pseudo: None, .. } | Outer::Ipv4 { .. } | Outer::Ipv6 { .. } => continue,
            };
            let inside = self.headers.len() - at + size;
            let sum = segment.sum(at, inside);
            let (field, checksum) = match pseudo {
                Some(pseudo) => (
                    at + udp::offset::CHECKSUM,
                    sum.add16(pseudo.folded()).add16(inside as u16).udp_checksum(),
                ),
                None => (at + GRE_CHECKSUM_AT, sum.checksum()),
            };
            *chunk_mut(segment.head_mut(), field)? = checksum.to_be_bytes();
        }
        Some(segment)
    }

    /// Changes copied headers into those of a segment, with transport checksums of zero.
    fn place(&self, headers: &mut [u8], number: usize, begin: usize, size: usize) -> Option<()> {
        for outer in &self.outer {
            match *outer {
                Outer::Ipv4 {
                    at,
                    size: header_size,
                } => place_ipv4(headers, at, header_size, number, size)?,
                Outer::Ipv6 { at } => place_ipv6(headers, at, size)?,
                Outer::Udp { at, .. } => place_udp(headers, at, size)?,
                Outer::Gre { at } => *chunk_mut(headers, at + GRE_CHECKSUM_AT)? = [0; 2],
            }
        }
        if self.is_ipv6 {
            place_ipv6(headers, self.ip_at, size)?;
        } else {
            place_ipv4(headers, self.ip_at, self.l4_at - self.ip_at, number, size)?;
        }
        if self.is_udp {
            return place_udp(headers, self.l4_at, size);
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

/// Sets the length and the identification of the IPv4 header at `at`, which has `header_size` bytes, and its checksum.
/// `data_size` bytes follow all headers.
fn place_ipv4(
    headers: &mut [u8],
    at: usize,
    header_size: usize,
    number: usize,
    data_size: usize,
) -> Option<()> {
    let size = u16::try_from(headers.len() - at + data_size).ok()?;
    let ip = headers.get_mut(at..at + header_size)?;
    let fixed: &mut [u8; ipv4::MIN_SIZE] = chunk_mut(ip, 0)?;
    let ident = be16(fixed, ipv4::offset::IDENT).wrapping_add(number as u16);
    *chunk_mut(ip, ipv4::offset::TOTAL_SIZE)? = size.to_be_bytes();
    *chunk_mut(ip, ipv4::offset::IDENT)? = ident.to_be_bytes();
    *chunk_mut(ip, ipv4::offset::CHECKSUM)? = [0; 2];
    let checksum = Sum::of(ip).checksum();
    *chunk_mut(ip, ipv4::offset::CHECKSUM)? = checksum.to_be_bytes();
    Some(())
}

/// Sets the length of the IPv6 header at `at`. `data_size` bytes follow all headers.
fn place_ipv6(headers: &mut [u8], at: usize, data_size: usize) -> Option<()> {
    let size = u16::try_from(headers.len() - at - ipv6::SIZE + data_size).ok()?;
    *chunk_mut(headers, at + ipv6::offset::PAYLOAD_SIZE)? = size.to_be_bytes();
    Some(())
}

/// Sets the length of the UDP header at `at`, and its checksum to zero. `data_size` bytes follow all headers.
fn place_udp(headers: &mut [u8], at: usize, data_size: usize) -> Option<()> {
    let size = u16::try_from(headers.len() - at + data_size).ok()?;
    *chunk_mut(headers, at + udp::offset::SIZE)? = size.to_be_bytes();
    *chunk_mut(headers, at + udp::offset::CHECKSUM)? = [0; 2];
    Some(())
}
