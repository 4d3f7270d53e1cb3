//! The parts of one fragment, and the headers of the reassembled packet, made from the headers of the first
//! fragment.

use millrace_wire::ipv6::FragmentHeader;
use millrace_wire::{Depth, Fragment, IpProto, L3, Layers, checksum, ipv4};
use thiserror::Error;

/// The size of the fixed IPv6 header in bytes.
const IPV6_SIZE: usize = 40;
/// The maximum value of an IP length field, in bytes.
const SIZE_MAX: usize = 65_535;
/// The maximum number of bytes of headers in front of the data: Ethernet, tags, and IP with options or
/// extensions.
pub(super) const HEADERS_MAX: usize = 256;

/// The defect of a fragment that cannot be reassembled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FragmentError {
    /// The frame ends within its headers.
    #[error("a fragment that ends within its headers")]
    Truncated,
    /// The fragment has no data.
    #[error("a fragment without data")]
    Empty,
    /// The fragment is not the last, and the size of its data is not a multiple of eight bytes.
    #[error("a fragment in the middle whose {size} bytes are no multiple of 8")]
    Odd {
        /// The size of the fragment's data in bytes.
        size: usize,
    },
    /// The fragment ends beyond the end of the longest packet (the "ping of death").
    #[error("a fragment that ends at byte {end} of the packet")]
    TooLong {
        /// The offset of the fragment's end.
        end: usize,
    },
    /// The fragment has too many bytes of headers in front of the data.
    #[error("{size} bytes of headers")]
    Headers {
        /// The size of the fragment's headers in bytes.
        size: usize,
    },
}

/// The identity of a packet, which all of its fragments share (RFC 791, section 3.2; RFC 8200, section 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Identity {
    /// The source and the destination; IPv4 addresses are in the last four bytes.
    addresses: [u8; 32],
    ident: u32,
    /// The bytes between the MAC addresses and IP: networks with different tags may use the same addresses.
    tags: u64,
    /// The protocol of IPv4; zero for IPv6, where the first fragment decides.
    proto: u8,
    pub(super) is_v6: bool,
}

impl Identity {
    /// Returns a hash of the identity and the packet's tunnel_id. The hash is not keyed: collisions slow
    /// down, a little, the lookup of the fragments of the sender that causes them.
    pub(super) fn hash(&self, tunnel_id: u64) -> u32 {
        let words = self.addresses.as_chunks::<8>().0;
        let start =
            (u64::from(self.ident) << 8 | u64::from(self.proto)) ^ self.tags ^ tunnel_id.rotate_left(40);
        let mixed = words.iter().fold(start, |hash, word| {
            (hash.rotate_left(23) ^ u64::from_ne_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (mixed >> 32) as u32
    }
}

/// A fragment in a frame. Offsets count from the beginning of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentView {
    pub(super) identity: Identity,
    pub(super) l3: usize,
    /// The offset of the data, where the headers end.
    pub(super) data: usize,
    /// The size of the data in bytes.
    pub(super) size: usize,
    /// The offset of the data in the reassembled packet.
    pub(super) offset: usize,
    pub(super) is_last: bool,
    /// The offset of the byte that announces the fragment header (IPv6 only).
    announcer: usize,
    /// The ECN field.
    pub(super) ecn: u8,
}

impl FragmentView {
    /// Returns the fragment in a frame of `size` bytes that begins with `frame`; `None` if the frame has no fragment.
    /// Fragments are found after VLAN tags, but not inside MPLS or PBB, as in [`Layers`].
    ///
    /// # Errors
    /// [`FragmentError`].
    pub fn find(frame: &[u8], size: usize) -> Option<Result<FragmentView, FragmentError>> {
        let layers = Layers::parse_head(frame, size, Depth::L3);
        if layers.fragment() == Fragment::Whole {
            return None;
        }
        let fragment = FragmentView::parse(frame, &layers).ok_or(FragmentError::Truncated);
        Some(fragment.and_then(FragmentView::checked))
    }

    fn parse(frame: &[u8], layers: &Layers) -> Option<FragmentView> {
        let l3 = layers.l3_offset();
        let packet = frame.get(l3..)?;
        let mut fragment = match layers.l3() {
            L3::Ipv4 => FragmentView::v4(packet, l3)?,
            L3::Ipv6 => FragmentView::v6(packet, l3)?,
            _ => return None,
        };
        fragment.identity.tags = frame.get(12..l3)?.iter().fold(0_u64, |tags, byte| {
            tags.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte)
        });
        Some(fragment)
    }

    fn v4(packet: &[u8], l3: usize) -> Option<FragmentView> {
        let header = packet.first_chunk::<{ ipv4::MIN_SIZE }>()?;
        let header_size = usize::from(header[0] & 0xf) * 4;
        let field = u16::from_be_bytes([header[6], header[7]]);
        let mut addresses = [0; 32];
        addresses[12..16].copy_from_slice(&header[12..16]);
        addresses[28..].copy_from_slice(&header[16..20]);
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        Some(FragmentView {
            identity: Identity {
                addresses,
                ident: u16::from_be_bytes([header[4], header[5]]).into(),
                tags: 0,
                proto: header[9],
                is_v6: false,
            },
            l3,
            data: l3 + header_size,
            size: total.saturating_sub(header_size),
            offset: usize::from(field & ipv4::FRAGMENT_OFFSET) * 8,
            is_last: field & ipv4::MORE_FRAGMENTS == 0,
            announcer: 0,
            ecn: header[1] & 3,
        })
    }

    fn v6(packet: &[u8], l3: usize) -> Option<FragmentView> {
        let header = packet.first_chunk::<IPV6_SIZE>()?;
        let end = IPV6_SIZE + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let fragment = FragmentHeader::find(IpProto(header[6]), packet.get(IPV6_SIZE..)?)?;
        let data = IPV6_SIZE + fragment.at + FragmentHeader::SIZE;
        let mut addresses = [0; 32];
        addresses.copy_from_slice(&header[8..40]);
        Some(FragmentView {
            identity: Identity {
                addresses,
                ident: fragment.ident,
                tags: 0,
                proto: 0,
                is_v6: true,
            },
            l3,
            data: l3 + data,
            size: end.saturating_sub(data),
            offset: fragment.offset.into(),
            is_last: !fragment.more_fragments,
            announcer: l3 + fragment.named_at.map_or(6, |at| IPV6_SIZE + at),
            ecn: header[1] >> 4 & 3,
        })
    }

    fn checked(self) -> Result<FragmentView, FragmentError> {
        let size = self.size;
        if size == 0 {
            return Err(FragmentError::Empty);
        }
        if !self.is_last && !size.is_multiple_of(8) {
            return Err(FragmentError::Odd { size });
        }
        // The headers of this fragment count, too; its options may be fewer than those of the first.
        let end = self.offset + size;
        if end + self.headers_of_packet() > SIZE_MAX {
            return Err(FragmentError::TooLong { end });
        }
        if self.data > HEADERS_MAX {
            return Err(FragmentError::Headers { size: self.data });
        }
        Ok(self)
    }

    /// Returns the number of header bytes in the IP length field of the reassembled packet.
    fn headers_of_packet(&self) -> usize {
        let header = self.data - self.l3;
        if self.identity.is_v6 {
            header.saturating_sub(IPV6_SIZE + FragmentHeader::SIZE)
        } else {
            header
        }
    }

    /// Writes the headers of a reassembled packet with `size` bytes of data to `out`. `self` is the first
    /// fragment, and `headers` are its headers. Returns false if the result is not a valid packet.
    pub(super) fn write_headers(&self, headers: &[u8], size: usize, ecn: u8, out: &mut Vec<u8>) -> bool {
        let announced = self.headers_of_packet() + size;
        let Ok(length) = u16::try_from(announced) else {
            return false;
        };
        if self.identity.is_v6 {
            let Some((kept, fragment)) = self
                .data
                .checked_sub(FragmentHeader::SIZE)
                .and_then(|at| headers.split_at_checked(at))
            else {
                return false;
            };
            let Some(next) = fragment.first() else {
                return false;
            };
            out.extend_from_slice(kept);
            let Some(announcer) = out.get_mut(self.announcer) else {
                return false;
            };
            *announcer = *next;
            let Some(fixed) = out
                .get_mut(self.l3..)
                .and_then(<[u8]>::first_chunk_mut::<IPV6_SIZE>)
            else {
                return false;
            };
            fixed[1] = fixed[1] & 0xcf | ecn << 4;
            fixed[4..6].copy_from_slice(&length.to_be_bytes());
            return true;
        }
        out.extend_from_slice(headers);
        let Some(header) = out.get_mut(self.l3..self.data) else {
            return false;
        };
        let Some(fixed) = header.first_chunk_mut::<{ ipv4::MIN_SIZE }>() else {
            return false;
        };
        fixed[1] = fixed[1] & 0xfc | ecn;
        fixed[2..4].copy_from_slice(&length.to_be_bytes());
        fixed[6] &= 0x40;
        fixed[7] = 0;
        fixed[10..12].fill(0);
        let sum = checksum::internet(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        true
    }
}
