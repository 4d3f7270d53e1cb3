//! The headers of a packet that is reassembled from fragments.

use millrace_wire::ipv6::FragmentHeader;
use millrace_wire::{ipv4, ipv6};

use crate::packet::{IpVersion, Packet};

/// Returns the payload of a fragment and the protocol of the payload.
pub(super) fn data<'a>(packet: &Packet<'a>) -> (&'a [u8], u8) {
    let protocol = match packet.ip.fragment_header {
        Some(header) => header.next_header.0,
        None => packet.protocol,
    };
    (packet.ip_payload(), protocol)
}

/// Returns the smallest number of bytes of headers that are included in the length of the packet of a fragment. The options of
/// a fragment of IPv4 other than the first are not part of the whole packet (RFC 791, section 3.2); those of IPv6 count (RFC
/// 8200, section 4.5).
pub(super) fn counted_minimum(packet: &Packet<'_>) -> u64 {
    let fragment_header = packet.ip.fragment_header.map_or(0, |_| FragmentHeader::SIZE);
    match packet.ip.version {
        IpVersion::V4 => ipv4::MIN_SIZE as u64,
        version => of_version(version, packet.ip.header_size - fragment_header),
    }
}

/// Returns the number of bytes of headers of this size that are included in the length of a packet: IPv6 does
/// not count its fixed header.
fn of_version(version: IpVersion, header_size: usize) -> u64 {
    let counted = match version {
        IpVersion::V4 => header_size,
        IpVersion::V6 => header_size.saturating_sub(ipv6::SIZE),
    };
    counted as u64
}

/// The headers that precede the data of the whole packet: the unfragmentable part.
#[derive(Debug)]
pub(super) struct Header {
    /// The bytes of the headers, without a fragment header.
    pub(super) bytes: Vec<u8>,
    version: IpVersion,
}

impl Header {
    /// Returns the headers of the whole packet, made from its first fragment.
    pub(super) fn of(packet: &Packet<'_>) -> Header {
        let mut bytes = packet.ip.bytes[..packet.ip.header_size].to_vec();
        if let Some(header) = packet.ip.fragment_header {
            let at = ipv6::SIZE + header.at;
            bytes.drain(at..(at + FragmentHeader::SIZE).min(bytes.len()));
            // The Next Header field before the fragment header now names the first header of the data.
            let named_at = header.named_at.map_or(6, |at| ipv6::SIZE + at);
            if let Some(next_header) = bytes.get_mut(named_at) {
                *next_header = header.next_header.0;
            }
        }
        Header {
            bytes,
            version: packet.ip.version,
        }
    }

    /// Returns the number of header bytes that are included in the length of the whole packet.
    pub(super) fn counted_size(&self) -> u64 {
        of_version(self.version, self.bytes.len())
    }

    /// Sets the lengths and the checksum of the whole packet.
    pub(super) fn finish(&self, whole: &mut [u8]) {
        let size = whole.len();
        match self.version {
            IpVersion::V4 => {
                let size = u16::try_from(size).unwrap_or(u16::MAX);
                whole[2..4].copy_from_slice(&size.to_be_bytes());
                // The reserved bit and "don't fragment" are unchanged; "more fragments" and the offset become
                // 0.
                whole[6] &= 0xc0;
                whole[7] = 0;
                let (header, rest) = whole.split_at_mut(ipv4::MIN_SIZE);
                let options = &rest[..self.bytes.len() - ipv4::MIN_SIZE];
                if let Some(fixed) = header.first_chunk::<{ ipv4::MIN_SIZE }>() {
                    let checksum = ipv4::header_checksum(fixed, options);
                    header[10..12].copy_from_slice(&checksum.to_be_bytes());
                }
            }
            IpVersion::V6 => {
                let size = u16::try_from(size - ipv6::SIZE).unwrap_or(u16::MAX);
                whole[4..6].copy_from_slice(&size.to_be_bytes());
            }
        }
    }
}
