//! FEEDBACK: which packets arrived, and how much may be sent.
//!
//! ```text
//!  head │ delay │ CE │ credit │ rate │ backlog │ form │ acknowledged numbers
//!  16     µs      n    bytes    kbit/s  bytes    1 byte
//!
//!  form 0, nothing arrived yet
//!  form 1, ranges    largest │ count │ length − 1 │ (gap − 1 │ length − 1) × (count − 1)      descending, RFC 9000, 19.3.1
//!  form 2, bitmap    largest │ size  │ size bytes: bit i of byte j is set if number largest − (8j + i) arrived
//! ```
//!
//! All fields but the form are variable-length integers. A receiver repeats a range until the sender has confirmed a feedback
//! that contained it ([`super::Report`]), newest numbers first, so that the loss of feedback loses nothing.

use super::{CONTROL_MAX, HEAD_SIZE, Head, PacketError, Reader, Writer, encode_control};
use crate::seal::PairwiseKey;
use millrace_types::{BitRate, Duration};
use std::ops::Range;

/// The maximum number of ranges in one feedback, with one byte for each gap and length.
pub const ACK_RANGES_MAX: usize = (CONTROL_MAX - HEAD_SIZE) / 2;
/// The maximum bytes of acknowledged numbers in one feedback. The other bytes are for the fields before them.
const ACK_SIZE_MAX: usize = CONTROL_MAX - HEAD_SIZE - 7 * 8 - 1;
/// The limit of packet numbers: each number is smaller.
const NUMBER_MAX: u64 = super::VARINT_MAX;

/// Packet numbers that arrived: disjoint ranges in ascending order.
pub type Acknowledged = Vec<Range<u64>>;

/// The body of a FEEDBACK packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Feedback {
    /// Time since the largest number arrived; in µs on the wire.
    pub delay: Duration,
    /// Packets that arrived with a congestion mark (ECN-CE), in all.
    pub ce: u64,
    /// The total number of session bytes that the sender may have sent for the first time.
    pub credit: u64,
    /// Rate at which payload arrived lately; in kbit/s on the wire.
    pub rate: BitRate,
    /// Bytes that arrived and are not written yet.
    pub backlog: u64,
    /// The numbers that arrived.
    pub acknowledged: Acknowledged,
}

impl Feedback {
    /// Returns the body and the smallest number that it covers. Older ranges that do not fit are left out.
    pub fn encode(&self) -> (Vec<u8>, u64) {
        let mut body = Writer::default();
        body.varint(u64::try_from(self.delay.as_micros()).unwrap_or(u64::MAX));
        body.varint(self.ce);
        body.varint(self.credit);
        body.varint(self.rate.bps() / 1_000);
        body.varint(self.backlog);
        let from = encode_acknowledged(&mut body, &self.acknowledged);
        (body.finish(), from)
    }

    /// Returns the packet.
    pub fn packet(head: &Head, key: &PairwiseKey, body: &[u8]) -> Vec<u8> {
        encode_control(head, key, body)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// If it ends early or late, or a range ends below zero.
    pub fn decode(body: &[u8]) -> Result<Feedback, PacketError> {
        let mut reader = Reader::new(body);
        let delay = Duration::from_micros(reader.varint("delay")?);
        let ce = reader.varint("CE count")?;
        let credit = reader.varint("credit")?;
        let kbps = reader.varint("rate")?;
        let backlog = reader.varint("backlog")?;
        let acknowledged = decode_acknowledged(&mut reader)?;
        reader.finish()?;
        Ok(Feedback {
            delay,
            ce,
            credit,
            rate: BitRate::from_bps(kbps.saturating_mul(1_000)),
            backlog,
            acknowledged,
        })
    }
}

/// Writes the newest ranges that fit, in the form that covers more numbers. If both forms cover the same
/// numbers, the shorter form is used. Returns the smallest number covered.
fn encode_acknowledged(body: &mut Writer, ranges: &[Range<u64>]) -> u64 {
    let (Some(oldest), Some(newest)) = (ranges.first(), ranges.last()) else {
        body.byte(0);
        return 0;
    };
    let largest = newest.end - 1;
    let (mut size, mut count, mut from, mut above) = (0, 0, newest.start, None);
    for range in ranges.iter().rev().take(ACK_RANGES_MAX) {
        let gap = above.map_or(0, |above: u64| Writer::varint_size(above - range.end - 1));
        let larger = size + gap + Writer::varint_size(range.end - range.start - 1);
        if larger > ACK_SIZE_MAX {
            break;
        }
        (size, count, from, above) = (larger, count + 1, range.start, Some(range.start));
    }
    let bitmap_from = oldest
        .start
        .max((largest + 1).saturating_sub(8 * ACK_SIZE_MAX as u64));
    let bitmap_size = (largest - bitmap_from) / 8 + 1;
    let bitmap = bitmap_from < from || (bitmap_from == from && bitmap_size < size as u64);
    body.byte(if bitmap { 2 } else { 1 });
    body.varint(largest);
    if bitmap {
        encode_bitmap(body, ranges, largest, bitmap_from);
        return bitmap_from;
    }
    encode_ranges(body, ranges, count);
    from
}

fn encode_ranges(body: &mut Writer, ranges: &[Range<u64>], count: usize) {
    body.varint(count as u64);
    let mut above = None;
    for range in ranges.iter().rev().take(count) {
        if let Some(above) = above {
            let gap: u64 = above - range.end;
            body.varint(gap - 1);
        }
        body.varint(range.end - range.start - 1);
        above = Some(range.start);
    }
}

fn encode_bitmap(body: &mut Writer, ranges: &[Range<u64>], largest: u64, from: u64) {
    let size = usize::try_from((largest - from) / 8 + 1).unwrap_or(ACK_SIZE_MAX);
    let mut bitmap = vec![0_u8; size];
    for range in ranges.iter().rev().take_while(|range| range.end > from) {
        for number in range.start.max(from)..range.end {
            let bit = largest - number;
            if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get_mut(at)) {
                *byte |= 1 << (bit % 8);
            }
        }
    }
    body.varint(size as u64);
    body.bytes(&bitmap);
}

fn decode_acknowledged(reader: &mut Reader<'_>) -> Result<Acknowledged, PacketError> {
    let form = reader.bytes(1, "form")?[0];
    if form == 0 {
        return Ok(Vec::new());
    }
    let largest = reader.varint("largest")?;
    if largest >= NUMBER_MAX {
        return Err(PacketError::Range {
            field: "largest",
            value: largest,
        });
    }
    let mut ranges = match form {
        1 => decode_ranges(reader, largest)?,
        2 => decode_bitmap(reader, largest)?,
        _ => {
            return Err(PacketError::Range {
                field: "form",
                value: u64::from(form),
            });
        }
    };
    ranges.reverse();
    Ok(ranges)
}

fn decode_ranges(reader: &mut Reader<'_>, largest: u64) -> Result<Acknowledged, PacketError> {
    let count = reader.varint("count of ranges")?;
    let out_of_range = |field, value| PacketError::Range { field, value };
    if count == 0 || count > ACK_RANGES_MAX as u64 {
        return Err(out_of_range("count of ranges", count));
    }
    let mut ranges = Vec::new();
    let mut end = largest + 1;
    for index in 0..count {
        if index > 0 {
            let gap = reader.varint("gap")?;
            end = end.checked_sub(gap + 1).ok_or(out_of_range("gap", gap))?;
        }
        let len = reader.varint("length")?;
        let start = end.checked_sub(len + 1).ok_or(out_of_range("length", len))?;
        ranges.push(start..end);
        end = start;
    }
    Ok(ranges)
}

fn decode_bitmap(reader: &mut Reader<'_>, largest: u64) -> Result<Acknowledged, PacketError> {
    let size = reader.varint("size of the bitmap")?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut ranges: Acknowledged = Vec::new();
    for (at, byte) in reader.bytes(size, "bitmap")?.iter().enumerate() {
        for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
            let below = at as u64 * 8 + bit;
            let number = largest.checked_sub(below).ok_or(PacketError::Range {
                field: "bitmap",
                value: below,
            })?;
            match ranges.last_mut() {
                Some(range) if range.start == number + 1 => range.start = number,
                _ => ranges.push(number..number + 1),
            }
        }
    }
    match ranges.first() {
        Some(range) if range.end == largest + 1 => Ok(ranges),
        _ => Err(PacketError::Range {
            field: "largest",
            value: largest,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::RangeSet;
    use proptest::prelude::*;

    fn feedback(acknowledged: Acknowledged) -> Feedback {
        Feedback {
            delay: Duration::from_micros(77),
            ce: 3,
            credit: 1 << 40,
            rate: BitRate::from_kbps(123_456),
            backlog: 9,
            acknowledged,
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_down_to_the_smallest_number_covered(
            base in 0..1_u64 << 50, steps in prop::collection::vec((1..40_u64, 1..90_u64), 0..900)
        ) {
            let mut set = RangeSet::new();
            let mut at = base;
            for (gap, len) in steps {
                set.insert(at + gap..at + gap + len);
                at += gap + len;
            }
            let sent = feedback(set.ranges().to_vec());
            let (body, from) = sent.encode();
            prop_assert!(body.len() + HEAD_SIZE <= CONTROL_MAX);
            set.remove(0..from);
            prop_assert_eq!(Feedback::decode(&body), Ok(feedback(set.ranges().to_vec())));
        }

        #[test]
        fn any_bytes_decode_to_ascending_ranges_or_to_an_error(body: Vec<u8>) {
            if let Ok(feedback) = Feedback::decode(&body) {
                prop_assert!(feedback.acknowledged.iter().all(|range| range.start < range.end));
                prop_assert!(feedback.acknowledged.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }

    /// docs/transport-protocol.md, "Vectors".
    #[test]
    fn the_vector_of_the_protocol_page_decodes_and_encodes() {
        let body = [
            0x40, 0x4d, 0x00, 0x80, 0x10, 0x00, 0x00, 0x80, 0x01, 0x86, 0xa0, 0x00, // fields
            0x01, 0x40, 0x63, 0x03, 0x09, 0x08, 0x00, 0x00, 0x04, // ranges
        ];
        let feedback = Feedback {
            delay: Duration::from_micros(77),
            ce: 0,
            credit: 1 << 20,
            rate: BitRate::from_kbps(100_000),
            backlog: 0,
            acknowledged: vec![74..79, 80..81, 90..100],
        };
        assert_eq!(Feedback::decode(&body), Ok(feedback.clone()));
        // Our encoder takes the bitmap, which is shorter here.
        let (ours, from) = feedback.encode();
        assert_eq!((Feedback::decode(&ours), from), (Ok(feedback), 74));
        assert!(ours.len() <= body.len());
    }

    #[test]
    fn sparse_losses_take_two_bytes_a_gap_and_dense_ones_a_bit_a_packet() {
        let sparse = (0..200).map(|gap| gap * 50..gap * 50 + 49).collect();
        let dense = (0..2_000).map(|number| number * 2..number * 2 + 1).collect();
        let size = |ranges| feedback(ranges).encode().0.len() - feedback(Vec::new()).encode().0.len();
        assert!(size(sparse) < 200 * 2 + 8);
        assert!(
            size(dense) < 4_000 / 8 + 12,
            "{}",
            size((0..2_000).map(|n| n * 2..n * 2 + 1).collect())
        );
    }
}
