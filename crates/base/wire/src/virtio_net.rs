//! The virtio-net header (virtio 1.2, section 5.1.6) says which checksum of a frame is partial, and how a GSO packet is
//! to be segmented. It precedes each frame in the rings of vhost-user, and in AF_PACKET sockets with `PACKET_VNET_HDR`.
//!
//! ```text
//!  0      1         2          4         6           8            10
//!  +------+---------+----------+---------+-----------+------------+----------------+
//!  | flags| gso_type| hdr_len  | gso_size| csum_start| csum_offset| num_buffers    |
//!  +------+---------+----------+---------+-----------+------------+----------------+
//! ```
//!
//! Numbers are little-endian, which is also the byte order of both sides' processors. AF_PACKET sockets and some rings
//! have no `num_buffers`.
//!
//! # Requirements on a frame
//! * A partial checksum starts inside the frame, and its field is inside the first segment.
//! * A GSO packet can be segmented ([`GsoLayout::of`]), and has the protocol and the IP version that the header names,
//!   at the checksum that is partial. The kernel's tunnels have no type of their own in this header: a packet of TCP in
//!   VXLAN has the type of TCP, and the checksum inside. (Virtio 1.3 has types for tunnels over UDP, with a longer
//!   header, which AF_PACKET does not have.) Its segments are no longer than the MTU, and TCP segments are no smaller than those of any conforming sender.
//! * Any other frame is no longer than the port's largest frame.

use core::num::NonZeroU16;

use crate::bytes::chunk_mut;
use crate::checksum::crc32c;
use crate::segment::GsoLayout;
use crate::{Packet, sctp, udp};

/// Size of the header in bytes, with the field `num_buffers`.
pub const LONG: usize = 12;
/// Size of the header in bytes, without the field `num_buffers`.
pub const SHORT: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is partial.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4`.
const TCPV4: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV6`.
const TCPV6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: a train of datagrams.
const UDP_L4: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`: the first segment carries CWR, the others do not.
const ECN: u8 = 0x80;

/// The smallest accepted TCP segment size in bytes: Linux's minimum (`tcp_min_snd_mss`), which allows for an IPv4 path
/// MTU of 68 bytes (RFC 791).
const SEGMENT_MIN: u16 = 48;

/// The frames that a receiver accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// True for GSO packets of TCP over IPv4.
    pub tcpv4: bool,
    /// True for GSO packets of TCP over IPv6.
    pub tcpv6: bool,
    /// True for GSO packets of UDP.
    pub udp: bool,
    /// The largest frame that is not a GSO packet, in bytes.
    pub frame_size: usize,
    /// The largest IP packet after segmentation of a GSO packet, in bytes.
    pub mtu: usize,
}

/// The fields of the header, except `num_buffers` and `hdr_len`, which is a hint that receivers must not rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Header {
    /// Decodes a header from its first eight bytes and the following two bytes, both as little-endian
    /// integers.
    #[inline(always)]
    #[must_use]
    pub fn parse((begin, csum_offset): (u64, u16)) -> Header {
        Header {
            flags: begin as u8,
            gso_type: (begin >> 8) as u8,
            gso_size: (begin >> 32) as u16,
            csum_start: (begin >> 48) as u16,
            csum_offset,
        }
    }

    /// Decodes the header.
    #[inline]
    #[must_use]
    pub fn from_bytes([b0, b1, b2, b3, b4, b5, b6, b7, a0, a1]: [u8; SHORT]) -> Header {
        let begin = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        Header::parse((begin, u16::from_le_bytes([a0, a1])))
    }

    /// Returns true if the frame needs neither a checksum nor segmentation.
    #[inline(always)]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.gso_type == 0
    }

    /// Returns true for a GSO packet.
    #[must_use]
    pub fn is_gso(&self) -> bool {
        self.gso_type != 0
    }

    /// Returns the header of the same frame after `size` bytes were inserted in front of the IP header: a VLAN tag.
    #[must_use]
    pub fn shifted(mut self, size: u16) -> Header {
        // An offset outside of every frame must not wrap to one inside.
        self.csum_start = self.csum_start.saturating_add(size);
        self
    }

    /// Completes the checksum of a received packet and sets its GSO metadata. Returns false if the packet does not
    /// agree with the header, or is not accepted.
    #[must_use]
    pub fn finish<P: Packet>(&self, packet: &mut P, accepted: &Accepted) -> bool {
        let (is_udp, is_ipv6) = match self.gso_type & !ECN {
            0 => return packet.len() <= accepted.frame_size && self.complete(packet),
            TCPV4 if accepted.tcpv4 => (false, Some(false)),
            TCPV6 if accepted.tcpv6 => (false, Some(true)),
            UDP_L4 if accepted.udp => (true, None),
            _ => return false,
        };
        let least = if is_udp { 1 } else { SEGMENT_MIN };
        let size = NonZeroU16::new(self.gso_size).filter(|size| size.get() >= least);
        packet.set_segment_size(size);
        let Some(gso) = GsoLayout::of(packet) else {
            return false;
        };
        let is_other = gso.is_udp() != is_udp || is_ipv6.is_some_and(|is_ipv6| is_ipv6 != gso.is_ipv6());
        if is_other || gso.packet_size() > accepted.mtu || !self.is_checksum_of(&gso) {
            return false;
        }
        if gso.count() == 1 {
            packet.set_segment_size(None);
            return packet.len() <= accepted.frame_size && self.complete(packet);
        }
        // All checksums are computed at segmentation.
        true
    }

    /// Returns true if the partial checksum is that of the header in front of the data, which in a tunnel is the innermost.
    fn is_checksum_of(&self, gso: &GsoLayout) -> bool {
        let [in_front, ip, _l4] = gso.layers();
        self.flags & NEEDS_CSUM == 0 || usize::from(self.csum_start) == in_front + ip
    }

    /// Completes the checksum if it is partial. Returns false if the checksum field is outside the head.
    fn complete<P: Packet>(&self, packet: &mut P) -> bool {
        if self.flags & NEEDS_CSUM == 0 {
            return true;
        }
        let (begin, size) = (usize::from(self.csum_start), packet.len());
        let csum_offset = usize::from(self.csum_offset);
        let at = begin + csum_offset;
        if csum_offset == sctp::offset::CHECKSUM {
            return complete_sctp(packet, begin, at).is_some();
        }
        if at + 2 > packet.head().len() {
            return false;
        }
        // The checksum field holds the sum of the pseudo-header, so the sum of all bytes from `begin` on is complete.
        let sum = packet.sum(begin, size - begin);
        let checksum = if csum_offset == udp::offset::CHECKSUM {
            sum.udp_checksum()
        } else {
            sum.checksum()
        };
        let slice = packet.head_mut().get_mut(at..at + 2);
        slice.is_some_and(|slice| {
            slice.copy_from_slice(&checksum.to_be_bytes());
            true
        })
    }

    /// Returns the header of a GSO packet that is sent unsegmented, and writes the sum of the pseudo-header to its
    /// checksum field; `None` if a field does not fit the header.
    #[must_use]
    pub fn for_gso<P: Packet>(packet: &mut P, gso: &GsoLayout) -> Option<Header> {
        let [in_front, ip, _l4] = gso.layers();
        let begin = in_front + ip;
        let at = begin + gso.checksum_offset();
        let slice = packet.head_mut().get_mut(at..at + 2)?;
        slice.copy_from_slice(&gso.pseudo_sum().to_be_bytes());
        let kind = match (gso.is_udp(), gso.is_ipv6()) {
            (true, _) => UDP_L4,
            (false, true) => TCPV6,
            (false, false) => TCPV4,
        };
        Some(Header {
            flags: NEEDS_CSUM,
            gso_type: if gso.has_cwr() { kind | ECN } else { kind },
            gso_size: u16::try_from(gso.segment_size()).ok()?,
            csum_start: u16::try_from(begin).ok()?,
            csum_offset: gso.checksum_offset() as u16,
        })
    }

    /// Encodes the header. `headers` is the size of the packet's protocol headers in bytes, `chains` the number of
    /// chains of a ring that the frame occupies (`num_buffers`).
    #[must_use]
    pub fn emit(&self, headers: u16, chains: u16) -> [u8; LONG] {
        let [h0, h1] = headers.to_le_bytes();
        let [s0, s1] = self.gso_size.to_le_bytes();
        let [b0, b1] = self.csum_start.to_le_bytes();
        let [a0, a1] = self.csum_offset.to_le_bytes();
        let [c0, c1] = chains.to_le_bytes();
        [self.flags, self.gso_type, h0, h1, s0, s1, b0, b1, a0, a1, c0, c1]
    }
}

/// Computes the CRC32c (RFC 9260, appendix A) of an SCTP packet that starts at `begin`, and writes it at
/// `at`. Only the offset of the checksum field distinguishes SCTP, because no other protocol has this offset.
fn complete_sctp<P: Packet>(packet: &mut P, begin: usize, at: usize) -> Option<()> {
    *chunk_mut(packet.head_mut(), at)? = [0; 4];
    let (mut skip, mut crc) = (begin, 0);
    packet.each_segment(&mut |bytes| {
        let from = skip.min(bytes.len());
        skip -= from;
        crc = crc32c::append(crc, bytes.get(from..).unwrap_or_default());
    });
    *chunk_mut(packet.head_mut(), at)? = crc.to_le_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    const ACCEPTED: Accepted = Accepted {
        tcpv4: true,
        tcpv6: true,
        udp: true,
        frame_size: 9000,
        mtu: 1500,
    };

    fn checksum_left(begin: u16, at: u16) -> Header {
        Header {
            flags: NEEDS_CSUM,
            csum_start: begin,
            csum_offset: at,
            ..Header::default()
        }
    }

    #[test]
    fn a_header_is_what_it_was_written_as() {
        let header = Header {
            flags: 1,
            gso_type: 4,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        };
        let bytes = header.emit(66, 1);
        let (first, _) = bytes.split_first_chunk::<SHORT>().unwrap();
        assert_eq!(Header::from_bytes(*first), header);
        assert_eq!(header.shifted(4).csum_start, 38);
    }

    #[test]
    fn a_tag_in_front_of_a_checksum_that_lies_outside_does_not_bring_it_inside() {
        let mut frame = Frame::new(&[0; 100]);
        for begin in [97, 0xfffc, 0xffff] {
            assert!(!checksum_left(begin, 6).shifted(4).finish(&mut frame, &ACCEPTED));
        }
        assert_eq!(frame.bytes(), [0; 100]);
    }

    #[test]
    fn the_checksum_of_sctp_is_its_crc_over_all_segments() {
        let mut packet = vec![0; 34];
        packet.extend([0, 1, 0, 2, 0, 0, 0, 3, 9, 9, 9, 9, 0, 0, 0, 4]);
        packet.extend([7; 100]);
        for head_size in [46, 60, 200] {
            let mut frame = Frame::segmented(&packet, head_size);
            assert!(checksum_left(34, 8).finish(&mut frame, &ACCEPTED));
            let view = crate::sctp::View::new(&frame.bytes()[34..]).unwrap();
            assert!(view.checksum_is_right(), "{head_size}");
        }
        let mut frame = Frame::segmented(&packet, 45);
        assert!(!checksum_left(34, 8).finish(&mut frame, &ACCEPTED));
    }
}
