//! The header in front of each frame (virtio 1.2, section 5.1.6), in the order of bytes of both machines, which are
//! little-endian.
//!
//! # What a frame must be
//! * A checksum that is left to us lies in the frame behind where it begins to count, and in its first segment.
//! * What is to be cut can be ([`Cut::of`]), and is what the header says, TCP over IPv4 or IPv6, if that was agreed upon. Its
//!   segments are no longer than the MTU, and no smaller than any honest sender's.
//! * Anything else is no longer than a frame.

use core::num::NonZeroU16;

use millrace_wire::Packet;
use millrace_wire::segment::Cut;

use super::Limits;
use crate::Features;

/// Bytes of the header, with the number of chains that the frame is in, and without.
pub(super) const LONG: usize = 12;
pub(super) const SHORT: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4`, and 6.
const TCPV4: u8 = 1;
const TCPV6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_ECN`: it says nothing that the packet does not.
const ECN: u8 = 0x80;

/// Where a checksum is behind the beginning of TCP's header (RFC 9293), and of UDP's (RFC 768).
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// The least data of a segment: what Linux sends at least (`tcp_min_snd_mss`), as a path of IPv4 may have an MTU of 68
/// bytes (RFC 791).
const SEGMENT_MIN: u16 = 48;

/// Bytes of the header of a driver that takes such features.
pub(super) fn size(features: Features) -> usize {
    let is_long = features.contains(Features::VERSION_1) || features.contains(Features::MRG_RXBUF);
    if is_long { LONG } else { SHORT }
}

/// What the header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Header {
    flags: u8,
    segmentation: u8,
    segment_size: u16,
    checksum_begin: u16,
    checksum_at: u16,
}

impl Header {
    /// Of the first eight bytes, and the next two.
    #[inline(always)]
    pub(super) fn parse((begin, checksum_at): (u64, u16)) -> Header {
        Header {
            flags: begin as u8,
            segmentation: (begin >> 8) as u8,
            segment_size: (begin >> 32) as u16,
            checksum_begin: (begin >> 48) as u16,
            checksum_at,
        }
    }

    /// Whether the frame is whole.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.segmentation == 0
    }

    /// Whether it is to be cut.
    pub(super) fn is_cut(&self) -> bool {
        self.segmentation != 0
    }

    /// Makes a packet that came what it would be, had nothing been left to us, but for being cut. False, if it is not what
    /// the header says.
    pub(super) fn finish<P: Packet>(&self, packet: &mut P, features: Features, limits: Limits) -> bool {
        let is_ipv6 = match self.segmentation & !ECN {
            0 => return packet.len() <= limits.frame_size && self.complete(packet),
            TCPV4 if features.contains(Features::HOST_TSO4) => false,
            TCPV6 if features.contains(Features::HOST_TSO6) => true,
            _ => return false,
        };
        let size = NonZeroU16::new(self.segment_size).filter(|size| size.get() >= SEGMENT_MIN);
        packet.set_segment_size(size);
        let Some(cut) = Cut::of(packet) else { return false };
        if cut.is_ipv6() != is_ipv6 || cut.packet_size() > limits.mtu {
            return false;
        }
        if cut.count() == 1 {
            packet.set_segment_size(None);
            return packet.len() <= limits.frame_size && self.complete(packet);
        }
        // Whoever cuts it computes all checksums.
        true
    }

    /// Computes the checksum that was left to us.
    fn complete<P: Packet>(&self, packet: &mut P) -> bool {
        if self.flags & NEEDS_CSUM == 0 {
            return true;
        }
        let (begin, size) = (usize::from(self.checksum_begin), packet.len());
        let at = begin + usize::from(self.checksum_at);
        if at + 2 > packet.head().len() {
            return false;
        }
        // The sum of the pseudo header is where the checksum is to be.
        let sum = packet.sum(begin, size - begin);
        let checksum = if usize::from(self.checksum_at) == UDP_CHECKSUM {
            sum.udp_checksum()
        } else {
            sum.checksum()
        };
        let place = packet.head_mut().get_mut(at..at + 2);
        place.is_some_and(|place| {
            place.copy_from_slice(&checksum.to_be_bytes());
            true
        })
    }

    /// For a packet that is left uncut, which is given the sum of the pseudo header; none if it cannot be.
    pub(super) fn uncut<P: Packet>(packet: &mut P, cut: &Cut) -> Option<Header> {
        let [in_front, ip, _tcp] = cut.layers();
        let begin = in_front + ip;
        let at = begin + TCP_CHECKSUM;
        let place = packet.head_mut().get_mut(at..at + 2)?;
        place.copy_from_slice(&cut.pseudo_sum().to_be_bytes());
        Some(Header {
            flags: NEEDS_CSUM,
            segmentation: if cut.is_ipv6() { TCPV6 } else { TCPV4 },
            segment_size: u16::try_from(cut.segment_size()).ok()?,
            checksum_begin: u16::try_from(begin).ok()?,
            checksum_at: TCP_CHECKSUM as u16,
        })
    }

    /// As the driver gets it, `headers` bytes of the packet being headers, in so many chains.
    pub(super) fn emit(&self, headers: u16, chains: u16) -> [u8; LONG] {
        let [h0, h1] = headers.to_le_bytes();
        let [s0, s1] = self.segment_size.to_le_bytes();
        let [b0, b1] = self.checksum_begin.to_le_bytes();
        let [a0, a1] = self.checksum_at.to_le_bytes();
        let [c0, c1] = chains.to_le_bytes();
        [
            self.flags,
            self.segmentation,
            h0,
            h1,
            s0,
            s1,
            b0,
            b1,
            a0,
            a1,
            c0,
            c1,
        ]
    }
}
