//! The virtio-net header (virtio 1.2, section 5.1.6), in little-endian byte order, which is also that of both sides'
//! processors.
//!
//! # Requirements on a frame
//! * A partial checksum starts inside the frame, and its field is inside the first segment.
//! * A GSO packet can be segmented ([`Cut::of`]), and is TCP over the IP version that the header names, if that was
//!   negotiated. Its segments are no longer than the MTU, and no smaller than those of any conforming sender.
//! * Any other frame is no longer than the port's largest frame.

use core::num::NonZeroU16;

use millrace_wire::Packet;
use millrace_wire::segment::Cut;

use super::Limits;
use crate::Features;

/// Size of the header in bytes, with the field `num_buffers` and without.
pub(super) const LONG: usize = 12;
pub(super) const SHORT: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is partial.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4` and `VIRTIO_NET_HDR_GSO_TCPV6`.
const TCPV4: u8 = 1;
const TCPV6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_ECN`: ignored, since the packet's own TCP flags say the same.
const ECN: u8 = 0x80;

/// Offset of the checksum field in the TCP header (RFC 9293) and in the UDP header (RFC 768), in bytes.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// The smallest accepted segment size in bytes: Linux's minimum (`tcp_min_snd_mss`), which allows for an IPv4 path MTU
/// of 68 bytes (RFC 791).
const SEGMENT_MIN: u16 = 48;

/// Returns the size of the header in bytes under the negotiated features.
pub(super) fn size(features: Features) -> usize {
    let is_long = features.contains(Features::VERSION_1) || features.contains(Features::MRG_RXBUF);
    if is_long { LONG } else { SHORT }
}

/// The fields of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Header {
    flags: u8,
    segmentation: u8,
    segment_size: u16,
    checksum_begin: u16,
    checksum_at: u16,
}

impl Header {
    /// Decodes the first eight bytes and the following two.
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

    /// Returns true if the frame needs neither a checksum nor segmentation.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.segmentation == 0
    }

    /// Returns true for a GSO packet.
    pub(super) fn is_cut(&self) -> bool {
        self.segmentation != 0
    }

    /// Completes the checksum of a received packet and sets its GSO metadata. Returns false if the packet does not
    /// agree with the header.
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
        // All checksums are computed at segmentation.
        true
    }

    /// Completes a partial checksum.
    fn complete<P: Packet>(&self, packet: &mut P) -> bool {
        if self.flags & NEEDS_CSUM == 0 {
            return true;
        }
        let (begin, size) = (usize::from(self.checksum_begin), packet.len());
        let at = begin + usize::from(self.checksum_at);
        if at + 2 > packet.head().len() {
            return false;
        }
        // The checksum field holds the sum of the pseudo-header, so the sum of all bytes from `begin` on is complete.
        let sum = packet.sum(begin, size - begin);
        let checksum = if usize::from(self.checksum_at) == UDP_CHECKSUM {
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
    pub(super) fn uncut<P: Packet>(packet: &mut P, cut: &Cut) -> Option<Header> {
        let [in_front, ip, _tcp] = cut.layers();
        let begin = in_front + ip;
        let at = begin + TCP_CHECKSUM;
        let slice = packet.head_mut().get_mut(at..at + 2)?;
        slice.copy_from_slice(&cut.pseudo_sum().to_be_bytes());
        Some(Header {
            flags: NEEDS_CSUM,
            segmentation: if cut.is_ipv6() { TCPV6 } else { TCPV4 },
            segment_size: u16::try_from(cut.segment_size()).ok()?,
            checksum_begin: u16::try_from(begin).ok()?,
            checksum_at: TCP_CHECKSUM as u16,
        })
    }

    /// Encodes the header. `headers` is the size of the packet's protocol headers in bytes, `chains` the number of
    /// chains that the frame occupies (`num_buffers`).
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
