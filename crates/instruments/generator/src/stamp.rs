//! The stamp of a packet: run, sequence number and time of departure.
//!
//! A stamp has six words of 16 bits. Their one's complement sum is always 0xffff, which is zero in that arithmetic:
//! the checksums of a packet stay valid whatever the stamp contains, and the sum distinguishes a stamp from other
//! bytes.
//!
//! | content | UDP and others | TCP |
//! | --- | --- | --- |
//! | sequence number, big endian | payload, bytes 0 to 3 | sequence number |
//! | time, big endian | payload, bytes 4 to 7 | acknowledgment number |
//! | run | payload, bytes 8 and 9 | window |
//! | complement | payload, bytes 10 and 11 | urgent pointer |
//!
//! ```text
//!    0                   1                   2                   3
//!    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//!   +-----------------------------------------------------------------+
//!   |                  low bits of the sequence number                |
//!   |         low bits of the time-stamp counter >> TIME_SHIFT        |
//!   |               run               |  complement of the sum        |
//!   +-----------------------------------------------------------------+
//! ```
//!
//! TCP carries the stamp in its header because a packet of 64 bytes on the wire has only six bytes of payload. No
//! match field of OpenFlow 1.3.5, section 7.2.3.7, covers these header fields. Above other IP protocols the stamp
//! starts after eight bytes (ICMP has its type and identifier there).

use millrace_wire::checksum::{self, Change};

/// The right shift of the time-stamp counter: 16 ticks are a few nanoseconds, and 32 bits then last for 17 s at 4 GHz,
/// and longer at lower rates.
pub const TIME_SHIFT: u32 = 4;
/// The size of a contiguous stamp, as in UDP, in bytes.
const SIZE: usize = 12;

const VLAN: [u8; 2] = [0x81, 0x00];
const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// SCTP is excluded: its checksum is a CRC, which a stamp would invalidate.
const SCTP: u8 = 132;
/// The largest number of VLAN tags; a frame with more gets no stamp.
const TAGS_MAX: usize = 4;

/// The stamp of a generated packet, by which loss, order and latency are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The identifier of the run; packets of an earlier run have another one.
    pub run: u16,
    /// The low bits of the sequence number in the run.
    pub seq: u32,
    /// The low bits of the time-stamp counter, shifted right by [`TIME_SHIFT`].
    pub time: u32,
}

/// The location of the stamp in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampLocation {
    /// The offset of sequence number and time.
    first: u16,
    /// The offset of the layer 4 header.
    l4: u16,
    tcp: bool,
}

/// The header offsets and the IP protocol of a frame.
struct HeaderOffsets {
    l3: usize,
    l4: usize,
    proto: u8,
}

/// Finds the layer 4 header after VLAN tags and IP. Returns `None` for fragments and extension headers.
#[inline]
fn header_offsets(frame: &[u8]) -> Option<HeaderOffsets> {
    let mut l3 = 14;
    for _ in 0..=TAGS_MAX {
        let kind: [u8; 2] = frame.get(l3 - 2..l3)?.try_into().ok()?;
        match kind {
            IPV4 => {
                let header = frame.get(l3..l3 + 20)?;
                let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
                let size = usize::from(header[0] & 0x0f) * 4;
                return (header[0] >> 4 == 4 && size >= 20 && fragment == 0).then_some(HeaderOffsets {
                    l3,
                    l4: l3 + size,
                    proto: header[9],
                });
            }
            IPV6 => {
                let header = frame.get(l3..l3 + 40)?;
                return (header[0] >> 4 == 6).then_some(HeaderOffsets {
                    l3,
                    l4: l3 + 40,
                    proto: header[6],
                });
            }
            VLAN | SERVICE_VLAN => l3 += 4,
            _ => return None,
        }
    }
    None
}

impl StampLocation {
    /// Returns the location in this frame, or `None` if the frame is too short or has unknown headers.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<StampLocation> {
        let HeaderOffsets { l4, proto, .. } =
            header_offsets(frame).filter(|header_offsets| header_offsets.proto != SCTP)?;
        let tcp = proto == TCP;
        let first = if tcp { l4 + 4 } else { l4 + 8 };
        let end = if tcp { l4 + 20 } else { first + SIZE };
        (end <= frame.len() && end <= usize::from(u16::MAX)).then_some(StampLocation {
            first: first as u16,
            l4: l4 as u16,
            tcp,
        })
    }

    /// Returns the offsets of sequence number, run and complement; the time follows the sequence number.
    #[inline]
    fn offsets(self) -> (usize, usize, usize) {
        let first = usize::from(self.first);
        let (run, complement) = if self.tcp { (10, 14) } else { (8, 10) };
        (first, first + run, first + complement)
    }

    /// Returns the offset of the first byte after the stamp; from there on the packet is unchanged.
    #[inline]
    pub fn end(self) -> usize {
        usize::from(self.first) + if self.tcp { 16 } else { SIZE }
    }

    /// Clears the bytes of the location, and adjusts the layer 4 checksum so that it stays valid. A UDP datagram
    /// without a checksum keeps none.
    pub fn clear(self, frame: &mut [u8]) {
        let (first, run, complement) = self.offsets();
        let l4 = usize::from(self.l4);
        let proto = header_offsets(frame).map_or(0, |header_offsets| header_offsets.proto);
        let mut change = Change::default();
        for at in [first, first + 2, first + 4, first + 6, run, complement] {
            if let Some(word) = frame.get_mut(at..at + 2) {
                change = change.and(Change::of16(u16::from_be_bytes([word[0], word[1]]), 0));
                word.fill(0);
            }
        }
        let checksum = match proto {
            TCP => l4 + 16,
            UDP => l4 + 6,
            ICMP => l4 + 2,
            _ => return,
        };
        if let Some(field) = frame.get_mut(checksum..checksum + 2) {
            let old = u16::from_be_bytes([field[0], field[1]]);
            let new = if proto == UDP {
                change.apply_udp(old)
            } else {
                change.apply(old)
            };
            field.copy_from_slice(&new.to_be_bytes());
        }
    }
}

/// Returns the one's complement sum of all words but the last.
#[inline]
fn sum(stamp: Stamp) -> u16 {
    let words = u64::from(stamp.seq) + u64::from(stamp.time) + (u64::from(stamp.run) << 16);
    // In one's complement arithmetic 2^16 is 1: wide words can be added first and folded at the end.
    let folded = (words >> 32) + (words >> 16 & 0xffff) + (words & 0xffff);
    let folded = (folded >> 16) + (folded & 0xffff);
    ((folded >> 16) + (folded & 0xffff)) as u16
}

impl Stamp {
    /// Writes the stamp with its complement.
    #[inline]
    pub fn write(self, frame: &mut [u8], location: StampLocation) {
        let (first, run, complement) = location.offsets();
        if let Some(bytes) = frame.get_mut(first..first + 8) {
            bytes[..4].copy_from_slice(&self.seq.to_be_bytes());
            bytes[4..].copy_from_slice(&self.time.to_be_bytes());
        }
        for (at, word) in [(run, self.run), (complement, !sum(self))] {
            if let Some(bytes) = frame.get_mut(at..at + 2) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
        }
    }

    /// Reads a stamp. Returns `None` if the complement does not match.
    #[inline]
    pub fn read(frame: &[u8], location: StampLocation) -> Option<Stamp> {
        let (first, run, complement) = location.offsets();
        let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let number = |at: usize| Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
        let stamp = Stamp {
            run: word(run)?,
            seq: number(first)?,
            time: number(first + 4)?,
        };
        (word(complement)? == !sum(stamp)).then_some(stamp)
    }
}

/// Returns true if the checksum of the IPv4 header is valid, or the frame has none.
pub fn has_valid_ipv4_checksum(frame: &[u8]) -> bool {
    let Some(HeaderOffsets { l3, l4, .. }) = header_offsets(frame) else {
        return true;
    };
    let header = frame.get(l3..l4).unwrap_or_default();
    header.first().is_none_or(|first| first >> 4 != 4) || checksum::internet(header) == 0
}

/// Returns the largest 64-bit number with the low bits `low` that is at most `latest`.
#[inline]
pub fn widen(low: u32, latest: u64) -> u64 {
    latest.saturating_sub(u64::from((latest as u32).wrapping_sub(low)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::Mac;
    use millrace_wire::{Builder, tcp};
    use proptest::prelude::*;

    fn builder() -> Builder<'static> {
        Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
    }

    fn udp() -> Vec<u8> {
        builder()
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(7, 9)
            .payload(&[7; 18])
            .build()
    }

    fn tcp() -> Vec<u8> {
        let repr = tcp::Repr {
            src: 7,
            dst: 9,
            seq: 77,
            window: 1000,
            ..tcp::Repr::default()
        };
        builder()
            .vlan(5, 0)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .tcp(repr)
            .build()
    }

    /// Returns true if the layer 4 checksum is valid: pseudo header and segment sum to zero.
    fn is_right(frame: &[u8]) -> bool {
        let HeaderOffsets { l3: ip, l4, proto } = header_offsets(frame).unwrap();
        let mut bytes = frame[ip + 12..ip + 20].to_vec();
        let size = (usize::from(u16::from_be_bytes([frame[ip + 2], frame[ip + 3]])) - 20) as u16;
        bytes.extend([0, proto]);
        bytes.extend(size.to_be_bytes());
        bytes.extend(&frame[l4..l4 + usize::from(size)]);
        checksum::internet(&bytes) == 0
    }

    proptest! {
        #[test]
        fn a_stamp_is_read_back_and_no_checksum_becomes_wrong(run: u16, seq: u32, time: u32, is_tcp: bool) {
            let mut frame = if is_tcp { tcp() } else { udp() };
            let location = StampLocation::of(&frame).unwrap();
            location.clear(&mut frame);
            prop_assert!(is_right(&frame));
            let stamp = Stamp { run, seq, time };
            stamp.write(&mut frame, location);
            prop_assert!(is_right(&frame));
            prop_assert_eq!(Stamp::read(&frame, StampLocation::of(&frame).unwrap()), Some(stamp));
            prop_assert_eq!(Stamp::read(&frame, location), Some(stamp));
        }

        #[test]
        fn any_bytes_are_searched_without_harm(frame: Vec<u8>) {
            if let Some(location) = StampLocation::of(&frame) {
                prop_assert!(location.end() <= frame.len());
                Stamp::read(&frame, location);
            }
        }

        #[test]
        fn a_number_is_widened_to_the_nearest_that_was_sent(latest in 0..u64::MAX / 2, back in 0..1_u64 << 31) {
            let number = latest.saturating_sub(back);
            prop_assert_eq!(widen(number as u32, latest), number);
        }
    }

    #[test]
    fn a_stamp_is_found_again_behind_a_tag_that_was_pushed() {
        let mut frame = udp();
        let stamp = Stamp {
            run: 3,
            seq: 4,
            time: 5,
        };
        let location = StampLocation::of(&frame).unwrap();
        stamp.write(&mut frame, location);
        let mut tagged = frame[..12].to_vec();
        tagged.extend([0x81, 0, 0, 5]);
        tagged.extend(&frame[12..]);
        assert_eq!(
            Stamp::read(&tagged, StampLocation::of(&tagged).unwrap()),
            Some(stamp)
        );
    }

    #[test]
    fn a_frame_of_64_bytes_has_room_for_a_stamp_in_udp_and_tcp_with_a_tag_or_without() {
        assert!(udp().len() <= 60 && StampLocation::of(&udp()).is_some());
        assert!(tcp().len() <= 60 && StampLocation::of(&tcp()).is_some());
        let tagged = builder()
            .vlan(5, 0)
            .ipv4([1, 1, 1, 1], [2, 2, 2, 2])
            .udp(1, 2)
            .pad_to(60)
            .build();
        assert!(StampLocation::of(&tagged).is_some());
    }

    #[test]
    fn fragments_and_foreign_frames_have_no_place() {
        let mut fragment = udp();
        fragment[20] = 0x20;
        assert_eq!(StampLocation::of(&fragment), None);
        let mut foreign = udp();
        foreign[12..14].copy_from_slice(&[0x88, 0xcc]);
        assert_eq!(StampLocation::of(&foreign), None);
    }

    #[test]
    fn bytes_that_are_no_stamp_are_told_from_one() {
        let frame = udp();
        assert_eq!(Stamp::read(&frame, StampLocation::of(&frame).unwrap()), None);
    }
}
