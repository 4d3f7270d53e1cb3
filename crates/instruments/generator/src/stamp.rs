//! What a packet carries so that it is known again: the run that it belongs to, its number, and when it left.
//!
//! Twelve bytes in six words of 16 bits, whose one's complement sum is always 0xffff: to every checksum that
//! covers them they count as nothing, so that the checksums of a packet stay right whatever is written here,
//! and bytes that are no stamp are told from one.
//!
//! | bytes | UDP, others | TCP |
//! | --- | --- | --- |
//! | number, big endian | 4 of the payload | sequence number |
//! | time, big endian | the next 4 | acknowledgment number |
//! | run | the next 2 | window |
//! | complement | the next 2 | urgent pointer |
//!
//! In TCP they are in the header because a packet of 64 bytes on the wire has no more payload than six; no
//! switch of OpenFlow 1.3 looks at these fields (section 7.2.3.7). Behind other protocols of IP the first eight
//! bytes are left alone (ICMP has its type and identifier there).

use millrace_wire::checksum::{self, Change};

/// How far the time-stamp counter is shifted: 16 ticks are a few nanoseconds, and 32 bits of them last for
/// twenty seconds or more.
pub const TIME_SHIFT: u32 = 4;
/// Size of a stamp that lie in a row in bytes, as in UDP.
const SIZE: usize = 12;

const VLAN: [u8; 2] = [0x81, 0x00];
const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// Its checksum is a CRC, which a stamp would spoil.
const SCTP: u8 = 132;
/// A frame with more tags is taken for one of unknown type.
const TAGS_MAX: usize = 4;

/// A stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The run, so that late packets of an earlier one are not taken for ones of this.
    pub run: u16,
    /// The low bits of the packet's number in the run.
    pub seq: u32,
    /// The low bits of the time-stamp counter, shifted by [`TIME_SHIFT`].
    pub time: u32,
}

/// Where the stamp of a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where number and time are.
    first: u16,
    /// Where the header of layer 4 begins.
    l4: u16,
    tcp: bool,
}

/// The parts of a frame that are looked at; all offsets are within the frame.
struct Parts {
    l3: usize,
    l4: usize,
    proto: u8,
}

/// Finds layer 4 behind VLAN tags and IP; nothing where a packet is a fragment or has extension headers.
#[inline]
fn parts(frame: &[u8]) -> Option<Parts> {
    let mut l3 = 14;
    for _ in 0..=TAGS_MAX {
        let kind: [u8; 2] = frame.get(l3 - 2..l3)?.try_into().ok()?;
        match kind {
            IPV4 => {
                let header = frame.get(l3..l3 + 20)?;
                let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
                let size = usize::from(header[0] & 0x0f) * 4;
                return (header[0] >> 4 == 4 && size >= 20 && fragment == 0).then_some(Parts {
                    l3,
                    l4: l3 + size,
                    proto: header[9],
                });
            }
            IPV6 => {
                let header = frame.get(l3..l3 + 40)?;
                return (header[0] >> 4 == 6).then_some(Parts {
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

impl Place {
    /// The place in this frame; `None` where there is no room for it or it has no header that is known.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Place> {
        let Parts { l4, proto, .. } = parts(frame).filter(|parts| parts.proto != SCTP)?;
        let tcp = proto == TCP;
        let first = if tcp { l4 + 4 } else { l4 + 8 };
        let end = if tcp { l4 + 20 } else { first + SIZE };
        (end <= frame.len() && end <= usize::from(u16::MAX)).then_some(Place {
            first: first as u16,
            l4: l4 as u16,
            tcp,
        })
    }

    /// Where number, run and complement begin; time is behind the number.
    #[inline]
    fn offsets(self) -> (usize, usize, usize) {
        let first = usize::from(self.first);
        let (run, complement) = if self.tcp { (10, 14) } else { (8, 10) };
        (first, first + run, first + complement)
    }

    /// Where the bytes begin that are as they were before: behind the stamp.
    #[inline]
    pub fn end(self) -> usize {
        usize::from(self.first) + if self.tcp { 16 } else { SIZE }
    }

    /// Makes the bytes of the place zero, and sees to it that the checksum of layer 4 is as right as before.
    /// A UDP datagram without one stays without.
    pub fn clear(self, frame: &mut [u8]) {
        let (first, run, complement) = self.offsets();
        let l4 = usize::from(self.l4);
        let proto = parts(frame).map_or(0, |parts| parts.proto);
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

/// Returns the sum of the words of a stamp but the last, folded to 16 bits.
#[inline]
fn sum(stamp: Stamp) -> u16 {
    let words = u64::from(stamp.seq) + u64::from(stamp.time) + (u64::from(stamp.run) << 16);
    // 2^16 is 1 in this arithmetic, so wide words may be added and folded at the end.
    let folded = (words >> 32) + (words >> 16 & 0xffff) + (words & 0xffff);
    let folded = (folded >> 16) + (folded & 0xffff);
    ((folded >> 16) + (folded & 0xffff)) as u16
}

impl Stamp {
    /// Writes it, all but the time, which [`Stamp::set_time`] adds: nothing is right before that.
    #[inline]
    pub fn write(self, frame: &mut [u8], place: Place) {
        let (first, run, complement) = place.offsets();
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

    /// Reads it; `None` where these bytes are none.
    #[inline]
    pub fn read(frame: &[u8], place: Place) -> Option<Stamp> {
        let (first, run, complement) = place.offsets();
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

/// Returns true if the checksum of the IPv4 header is right; other frames have none.
pub fn is_header_right(frame: &[u8]) -> bool {
    let Some(Parts { l3, l4, .. }) = parts(frame) else {
        return true;
    };
    let header = frame.get(l3..l4).unwrap_or_default();
    header.first().is_none_or(|first| first >> 4 != 4) || checksum::internet(header) == 0
}

/// The 64-bit number whose low bits are `low`, and which is the nearest that is not above `latest`.
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

    /// Returns true if the checksum of layer 4 is right: pseudo header and segment sum to nothing.
    fn is_right(frame: &[u8]) -> bool {
        let Parts { l3: ip, l4, proto } = parts(frame).unwrap();
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
            let place = Place::of(&frame).unwrap();
            place.clear(&mut frame);
            prop_assert!(is_right(&frame));
            let stamp = Stamp { run, seq, time };
            stamp.write(&mut frame, place);
            prop_assert!(is_right(&frame));
            prop_assert_eq!(Stamp::read(&frame, Place::of(&frame).unwrap()), Some(stamp));
            prop_assert_eq!(Stamp::read(&frame, place), Some(stamp));
        }

        #[test]
        fn any_bytes_are_searched_without_harm(frame: Vec<u8>) {
            if let Some(place) = Place::of(&frame) {
                prop_assert!(place.end() <= frame.len());
                Stamp::read(&frame, place);
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
        let place = Place::of(&frame).unwrap();
        stamp.write(&mut frame, place);
        let mut tagged = frame[..12].to_vec();
        tagged.extend([0x81, 0, 0, 5]);
        tagged.extend(&frame[12..]);
        assert_eq!(Stamp::read(&tagged, Place::of(&tagged).unwrap()), Some(stamp));
    }

    #[test]
    fn a_frame_of_64_bytes_has_room_for_a_stamp_in_udp_and_tcp_with_a_tag_or_without() {
        assert!(udp().len() <= 60 && Place::of(&udp()).is_some());
        assert!(tcp().len() <= 60 && Place::of(&tcp()).is_some());
        let tagged = builder()
            .vlan(5, 0)
            .ipv4([1, 1, 1, 1], [2, 2, 2, 2])
            .udp(1, 2)
            .pad_to(60)
            .build();
        assert!(Place::of(&tagged).is_some());
    }

    #[test]
    fn fragments_and_foreign_frames_have_no_place() {
        let mut fragment = udp();
        fragment[20] = 0x20;
        assert_eq!(Place::of(&fragment), None);
        let mut foreign = udp();
        foreign[12..14].copy_from_slice(&[0x88, 0xcc]);
        assert_eq!(Place::of(&foreign), None);
    }

    #[test]
    fn bytes_that_are_no_stamp_are_told_from_one() {
        let frame = udp();
        assert_eq!(Stamp::read(&frame, Place::of(&frame).unwrap()), None);
    }
}
