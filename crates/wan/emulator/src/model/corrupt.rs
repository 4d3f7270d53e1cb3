//! Inverted bits.
//!
//! A frame's outcome holds only a stream of random numbers that determines its inverted bits.
//! [`Flips::apply`] draws the bits. So an outcome is small, and no memory is allocated.

use arrayvec::ArrayVec;
use libm::{log, log1p};
use millrace_wire::{Depth, IpProto, L4, Layers, checksum::Change};

use super::chance::{Chance, LastDraw};
use super::outcome::DropReason;
use crate::config::{Corrupt, CorruptAction, Errors};
use crate::random::Stream;

/// The maximum number of inverted bits in a frame, if the number is configured. A bit error rate may invert
/// more.
const MOST_BITS: usize = 64;

/// The parameters of corruption.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CorruptModel {
    errors: ErrorModel,
    action: CorruptAction,
}

#[derive(Debug, Clone, Copy)]
enum ErrorModel {
    Frames {
        chance: Chance,
        bits: u8,
    },
    /// Each bit is inverted with a probability p, stored as 1 / ln(1 − p).
    Bits(f64),
}

/// The streams of random numbers of the stage: one for the frames, one for the bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CorruptStreams {
    pub(crate) frames: Stream,
    pub(crate) bits: Stream,
}

/// Bits of a frame to be inverted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flips {
    numbers: Stream,
    count: Count,
    /// The first byte that may be changed.
    first: u16,
    /// The number of bytes that may be changed.
    len: u16,
    /// The checksum that is updated.
    checksum: Option<ChecksumField>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Count {
    /// This number of different bits is inverted.
    Exactly(u8),
    /// Each bit is inverted with a probability p, stored as 1 / ln(1 − p).
    Each(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChecksumField {
    at: u16,
    /// The first byte of the header. The checksum's 16-bit words begin there.
    header: u16,
    is_udp: bool,
}

/// The part of a frame that may be changed.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: u16,
    len: u16,
    checksum: Option<ChecksumField>,
}

impl CorruptModel {
    pub(crate) fn new(config: &Corrupt) -> CorruptModel {
        CorruptModel {
            errors: match config.errors {
                Errors::Frames {
                    probability,
                    correlation,
                    bits,
                } => ErrorModel::Frames {
                    chance: Chance::new(probability, correlation),
                    bits,
                },
                Errors::Bits(rate) => ErrorModel::Bits(1.0 / log1p(-rate.get())),
            },
            action: config.action,
        }
    }

    /// Returns the inverted bits of a copy of a frame, or the drop reason if the link drops the corrupted
    /// frame. `bytes` is `None` if only the frame's size is known.
    #[inline]
    pub(crate) fn pass(
        &self,
        streams: CorruptStreams,
        copy: u64,
        (size, bytes): (usize, Option<&[u8]>),
        last: &mut LastDraw,
    ) -> Result<Option<Flips>, DropReason> {
        let count = match self.errors {
            ErrorModel::Frames { chance, bits } => {
                if !chance.happens(streams.frames, copy, last) {
                    return Ok(None);
                }
                Count::Exactly(bits)
            }
            ErrorModel::Bits(inverse_log) => Count::Each(inverse_log),
        };
        let whole = Range {
            first: 0,
            len: size.min(usize::from(u16::MAX)) as u16,
            checksum: None,
        };
        let range = match self.action {
            CorruptAction::Undetectable => bytes.and_then(transport_payload),
            CorruptAction::Drop | CorruptAction::Deliver => Some(whole),
        };
        let Some(Range { first, len, checksum }) = range.filter(|range| range.len > 0) else {
            return Ok(None);
        };
        let numbers = streams.bits.substream(copy);
        let flips = Flips {
            numbers,
            count,
            first,
            len,
            checksum,
        };
        match (flips.positions().next(), self.action) {
            (None, _) => Ok(None),
            (Some(_), CorruptAction::Drop) => Err(DropReason::Corrupted),
            (Some(_), _) => Ok(Some(flips)),
        }
    }
}

/// The size of a UDP header (RFC 768), and the positions of fields in UDP and TCP headers (RFC 9293, section 3.1), in
/// bytes.
const UDP_HEADER_SIZE: usize = 8;
const UDP_CHECKSUM: usize = 6;
const TCP_DATA_OFFSET: usize = 12;
const TCP_CHECKSUM: usize = 16;

/// Returns the TCP or UDP payload of a frame that has one.
fn transport_payload(frame: &[u8]) -> Option<Range> {
    let layers = Layers::parse(frame, Depth::L4);
    let header = layers.l4_offset();
    let is_udp = match layers.l4() {
        L4::Udp if layers.ip_proto() == IpProto::UDP => true,
        L4::Tcp => false,
        _ => return None,
    };
    let (header_size, checksum) = if is_udp {
        (UDP_HEADER_SIZE, UDP_CHECKSUM)
    } else {
        let words = frame.get(header + TCP_DATA_OFFSET)? >> 4;
        (4 * usize::from(words), TCP_CHECKSUM)
    };
    let len = layers.l4_size().checked_sub(header_size)?;
    let first = header + header_size;
    frame.get(first..first + len)?;
    let (first, len) = (u16::try_from(first).ok()?, u16::try_from(len).ok()?);
    let (header, at) = (
        u16::try_from(header).ok()?,
        u16::try_from(header + checksum).ok()?,
    );
    Some(Range {
        first,
        len,
        checksum: Some(ChecksumField { at, header, is_udp }),
    })
}

impl Flips {
    /// Inverts the bits in a frame. It must be the frame that was offered. In another frame, other bytes are
    /// changed within its bounds.
    pub fn apply(&self, frame: &mut [u8]) {
        let mut change = Change::default();
        for position in self.positions() {
            let at = usize::from(self.first) + (position / 8) as usize;
            let Some(byte) = frame.get_mut(at) else { continue };
            let old = *byte;
            *byte ^= 1 << (position % 8);
            if let Some(field) = self.checksum {
                // The position of the byte in its 16-bit word.
                let shift = if (at - usize::from(field.header)).is_multiple_of(2) {
                    8
                } else {
                    0
                };
                change = change.and(Change::of16(u16::from(old) << shift, u16::from(*byte) << shift));
            }
        }
        let Some(field) = self.checksum else { return };
        let at = usize::from(field.at);
        if let Some(bytes) = frame.get_mut(at..at + 2) {
            let old = u16::from_be_bytes([bytes[0], bytes[1]]);
            let new = if field.is_udp {
                change.apply_udp(old)
            } else {
                change.apply(old)
            };
            bytes.copy_from_slice(&new.to_be_bytes());
        }
    }

    /// Returns the number of inverted bits.
    pub fn count(&self) -> usize {
        self.positions().count()
    }

    /// Returns the positions of the bits, each once.
    fn positions(&self) -> Positions {
        let bits = u32::from(self.len) * 8;
        match self.count {
            Count::Exactly(count) => {
                Positions::Chosen(self.choose(u32::from(count).min(bits), bits).into_iter())
            }
            Count::Each(inverse_log) => Positions::Gaps {
                numbers: self.numbers,
                inverse_log,
                bits,
                next: 0,
                drawn: 0,
            },
        }
    }

    /// Returns `count` different positions below `bits`, by Floyd's algorithm (Bentley and Floyd, "A Sample of Brilliance",
    /// CACM 30, 1987).
    fn choose(&self, count: u32, bits: u32) -> ArrayVec<u32, MOST_BITS> {
        let mut chosen = ArrayVec::new();
        for limit in bits - count..bits {
            let position = self.numbers.below(u64::from(limit), u64::from(limit) + 1) as u32;
            let position = if chosen.contains(&position) {
                limit
            } else {
                position
            };
            chosen.push(position);
        }
        chosen
    }
}

/// The positions of inverted bits.
#[allow(clippy::large_enum_variant, reason = "it lives on the stack of one call")]
enum Positions {
    Chosen(arrayvec::IntoIter<u32, MOST_BITS>),
    /// Geometrically distributed distances, because each bit is inverted independently.
    Gaps {
        numbers: Stream,
        inverse_log: f64,
        bits: u32,
        next: u32,
        drawn: u64,
    },
}

impl Iterator for Positions {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Positions::Chosen(chosen) => chosen.next(),
            Positions::Gaps {
                numbers,
                inverse_log,
                bits,
                next,
                drawn,
            } => {
                let gap = log(numbers.fraction(*drawn)) * *inverse_log;
                *drawn += 1;
                let position = f64::from(*next) + gap.floor();
                if position < f64::from(*bits) {
                    *next = position as u32 + 1;
                    return Some(position as u32);
                }
                *next = *bits;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;
    use crate::random::Stage;
    use millrace_wire::{Builder, checksum};

    fn pass(config: &str, copy: u64, frame: &[u8]) -> Result<Option<Flips>, DropReason> {
        let model = CorruptModel::new(&config.parse().unwrap());
        let streams = CorruptStreams {
            frames: Stream::new(Seed::new(1), Stage::Corrupt),
            bits: Stream::new(Seed::new(1), Stage::CorruptBits),
        };
        model.pass(
            streams,
            copy,
            (frame.len(), Some(frame)),
            &mut LastDraw::default(),
        )
    }

    fn difference(a: &[u8], b: &[u8]) -> u32 {
        a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    #[test]
    fn exactly_the_asked_number_of_different_bits_is_inverted() {
        let frame = [0; 60];
        for copy in 0..1000 {
            let flips = pass("100%,bits=64,deliver", copy, &frame).unwrap().unwrap();
            let mut damaged = frame;
            flips.apply(&mut damaged);
            assert_eq!(difference(&frame, &damaged), 64);
        }
    }

    #[test]
    fn a_failing_check_sequence_drops_the_frame() {
        assert_eq!(pass("100%", 0, &[0; 60]), Err(DropReason::Corrupted));
        assert_eq!(pass("0%", 0, &[0; 60]), Ok(None));
        assert_eq!(pass("ber:0", 0, &[0; 60]), Ok(None));
    }

    #[test]
    fn undetectable_corruption_leaves_every_checksum_right() {
        let eth = || Builder::ethernet(millrace_types::Mac([2; 6]), millrace_types::Mac([4; 6]));
        let frames = [
            eth()
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
                .udp(1, 2)
                .payload(b"some words")
                .build(),
            eth()
                .vlan(5, 0)
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
                .udp(1, 2)
                .payload(b"odd")
                .build(),
        ];
        for frame in frames {
            let layers = Layers::parse(&frame, Depth::L4);
            let l4 = layers.l4_offset()..layers.l4_offset() + layers.l4_size();
            // The pseudo-header is the same before and after the change.
            let before = checksum::Sum::of(&frame[l4.clone()]).folded();
            for copy in 0..200 {
                let mut damaged = frame.clone();
                let flips = pass("100%,bits=3,undetectable", copy, &frame).unwrap().unwrap();
                flips.apply(&mut damaged);
                assert_ne!(frame, damaged);
                assert_eq!(frame[..l4.start + 6], damaged[..l4.start + 6]);
                let after = checksum::Sum::of(&damaged[l4.clone()]).folded();
                // In one's complement, 0 and 0xffff are the same number.
                assert_eq!(before % 0xffff, after % 0xffff);
            }
        }
        let arp = [0xff; 60];
        assert_eq!(pass("100%,undetectable", 0, &arp), Ok(None));
    }
}
