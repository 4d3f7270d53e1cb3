//! An interval as engines give it to each other: one record that needs no other one.
//!
//! ```text
//! record:   "MRint" + version | size of the payload, 4 | CRC-32C of the payload, 4 | payload
//! payload:  start of the interval, 8 | groups in the order of keys
//! group:    kind of the subject, 1 | measure, 1 | values: count, 4, and for each the distance of its first number to the
//!           one before (LEB128), its second number (LEB128) and the code, 2
//! ```
//! Numbers are in network byte order. A value takes some 4 bytes: 60,000 series need 240 kB.

use crate::current::SERIES_MAX;
use crate::key::{KEY_SIZE, Key};
use crate::log::{Interval, put_varint, varint};
use crate::point::GAP;

/// The start of a record; the last byte is the version.
const MAGIC: [u8; 6] = *b"MRint\x01";
/// The size of kind and measure, by which values are grouped.
const GROUP_SIZE: usize = 2;

/// Returns the record of an interval. Gaps are left out.
pub(crate) fn encode(interval: &Interval) -> Vec<u8> {
    let known = interval.values.iter().filter(|(_, code)| *code != GAP);
    let mut values: Vec<([u8; KEY_SIZE], u16)> = known.map(|(key, code)| (key.bytes(), *code)).collect();
    values.sort_unstable();
    let mut payload = Vec::with_capacity(8 + values.len() * 5);
    payload.extend(interval.start.to_be_bytes());
    for group in values.chunk_by(|(one, _), (other, _)| one[..GROUP_SIZE] == other[..GROUP_SIZE]) {
        let Some((first, _)) = group.first() else {
            continue;
        };
        payload.extend(&first[..GROUP_SIZE]);
        payload.extend((group.len() as u32).to_be_bytes());
        let mut before = 0;
        for (key, code) in group {
            let [_, _, a, b, c, d, e, f, g, h] = *key;
            let (one, two) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
            put_varint(&mut payload, one - before);
            put_varint(&mut payload, two);
            payload.extend(code.to_be_bytes());
            before = one;
        }
    }
    let mut record = Vec::with_capacity(MAGIC.len() + 8 + payload.len());
    record.extend(MAGIC);
    record.extend((payload.len() as u32).to_be_bytes());
    record.extend(crc32c::crc32c(&payload).to_be_bytes());
    record.extend(payload);
    record
}

/// Returns the interval of a record; `None` if the bytes are no valid record, or have more than [`SERIES_MAX`] values.
pub(crate) fn decode(bytes: &[u8]) -> Option<Interval> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (size, rest) = rest.split_first_chunk::<4>()?;
    let (sum, payload) = rest.split_first_chunk::<4>()?;
    if payload.len() != u32::from_be_bytes(*size) as usize
        || crc32c::crc32c(payload) != u32::from_be_bytes(*sum)
    {
        return None;
    }
    let (start, mut rest) = payload.split_first_chunk::<8>()?;
    let start = u64::from_be_bytes(*start);
    let mut values = Vec::new();
    while !rest.is_empty() {
        let (group, after) = rest.split_first_chunk::<GROUP_SIZE>()?;
        let (len, after) = after.split_first_chunk::<4>()?;
        rest = after;
        let mut one = 0_u32;
        for _ in 0..u32::from_be_bytes(*len) {
            let (distance, after) = varint(rest)?;
            let (two, after) = varint(after)?;
            let (code, after) = after.split_first_chunk::<2>()?;
            rest = after;
            one = one.checked_add(distance)?;
            if values.len() == SERIES_MAX {
                return None;
            }
            let mut key = [0; KEY_SIZE];
            key[..GROUP_SIZE].copy_from_slice(group);
            key[GROUP_SIZE..GROUP_SIZE + 4].copy_from_slice(&one.to_be_bytes());
            key[GROUP_SIZE + 4..].copy_from_slice(&two.to_be_bytes());
            // A newer engine may have kinds that this one does not know.
            if let Some(key) = Key::from_bytes(key) {
                values.push((key, u16::from_be_bytes(*code)));
            }
        }
    }
    Some(Interval { start, values })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{Measure, Subject};

    fn key() -> impl Strategy<Value = Key> {
        let measure = prop::sample::select(Measure::TRAFFIC.to_vec());
        let subject = prop_oneof![
            any::<u32>().prop_map(Subject::Connection),
            (0..500_u32).prop_map(Subject::End),
            (any::<u32>(), any::<u32>()).prop_map(|(from, to)| Subject::Peers { from, to }),
            Just(Subject::Exchange),
        ];
        (subject, measure).prop_map(|(subject, measure)| Key::new(subject, measure))
    }

    proptest! {
        #[test]
        fn an_interval_is_read_back_and_a_wrong_byte_makes_it_none(
            values in prop::collection::btree_map(key(), 0..GAP, 0..60),
            start in any::<u64>(), at in any::<prop::sample::Index>(), bit in 0..8u8
        ) {
            let values: Vec<(Key, u16)> = values.into_iter().collect();
            let mut record = encode(&Interval { start, values: values.clone() });
            prop_assert_eq!(decode(&record), Some(Interval { start, values }));
            let at = at.index(record.len());
            prop_assert_eq!(decode(&record[..at]), None);
            record[at] ^= 1 << bit;
            prop_assert_eq!(decode(&record), None);
        }

        #[test]
        fn any_payload_is_read_without_a_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let size = (payload.len() as u32).to_be_bytes();
            let sum = crc32c::crc32c(&payload).to_be_bytes();
            let _ = decode(&[&MAGIC[..], &size, &sum, &payload].concat());
        }
    }

    #[test]
    fn sixty_thousand_series_take_a_quarter_of_a_megabyte() {
        let of = |number: u32| {
            let measure = Measure::COUNTED[number as usize % 2];
            (Key::new(Subject::End(number / 2), measure), 777)
        };
        let values: Vec<(Key, u16)> = (0..60_000).map(of).collect();
        let size = encode(&Interval { start: 1, values }).len();
        assert!(size < 250_000, "{size}");
    }
}
