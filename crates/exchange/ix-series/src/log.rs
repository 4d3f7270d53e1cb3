//! The log of an hour: one record for each interval, each written at once.
//!
//! ```text
//! record:   "MRrow" + version | size of the payload, 4 | CRC-32C of the payload, 4 | payload
//! payload:  start of the interval, 8 | first new number, 4 | new keys: count, 4, and 10 each | values: count, 4, and for
//!           each the distance to the number before (LEB128) and the code, 2
//! ```
//! Numbers are in network byte order. A key gets its number with the first interval that has a value for it. A reader skips
//! what is no valid record: it goes on at the next valid one. The end of an interrupted write is cut off before the next one. A number whose key was lost is
//! skipped.

use std::collections::HashMap;

use crate::key::{KEY_SIZE, Key};

/// The start of a record; the last byte is the version.
const MAGIC: [u8; 6] = *b"MRrow\x01";
/// The size of a record before its payload, in bytes.
const HEADER_SIZE: usize = 14;
/// The largest payload, in bytes: 60,000 new series need 800,000.
const PAYLOAD_SIZE_MAX: usize = 16 << 20;

/// An interval with its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interval {
    /// The start, in seconds since the Unix epoch.
    pub(crate) start: u64,
    /// The codes of values, by key.
    pub(crate) values: Vec<(Key, u16)>,
}

/// The numbers of keys for the next records of a log.
#[derive(Clone, Default, Debug)]
pub(crate) struct Numbers {
    numbers: HashMap<Key, u32>,
    next: u32,
}

impl Numbers {
    /// Returns the number of keys that the log has, also those that were forgotten.
    pub(crate) const fn len(&self) -> usize {
        self.next as usize
    }

    /// Forgets keys. One that comes again gets a new number.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(Key) -> bool) {
        self.numbers.retain(|key, _| is_kept(*key));
        self.numbers.shrink_to(self.numbers.len() * 2);
    }
}

/// Returns the record of an interval. Keys without a number get the next ones.
pub(crate) fn record(interval: &Interval, numbers: &mut Numbers) -> Vec<u8> {
    let first_new = numbers.next;
    let mut new = Vec::new();
    let mut values: Vec<(u32, u16)> = Vec::with_capacity(interval.values.len());
    for (key, code) in &interval.values {
        let number = *numbers.numbers.entry(*key).or_insert_with(|| {
            new.push(*key);
            numbers.next += 1;
            numbers.next - 1
        });
        values.push((number, *code));
    }
    values.sort_unstable();
    values.dedup_by_key(|(number, _)| *number);
    let mut payload = Vec::with_capacity(20 + new.len() * KEY_SIZE + values.len() * 4);
    payload.extend(interval.start.to_be_bytes());
    payload.extend(first_new.to_be_bytes());
    payload.extend((new.len() as u32).to_be_bytes());
    for key in new {
        payload.extend(key.bytes());
    }
    payload.extend((values.len() as u32).to_be_bytes());
    let mut before = 0;
    for (number, code) in values {
        put_varint(&mut payload, number - before);
        payload.extend(code.to_be_bytes());
        before = number;
    }
    let mut record = Vec::with_capacity(HEADER_SIZE + payload.len());
    record.extend(MAGIC);
    record.extend((payload.len() as u32).to_be_bytes());
    record.extend(crc32c::crc32c(&payload).to_be_bytes());
    record.extend(payload);
    record
}

/// The numbers and the size of a log that was read.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) numbers: Numbers,
    /// The size up to the end of the last valid record. What follows is an interrupted write, which the next record might
    /// happen to complete.
    pub(crate) size: usize,
}

/// Reads a log, one interval at a time.
pub(crate) fn read(bytes: &[u8], mut found: impl FnMut(Interval)) -> Log {
    let mut log = Log::default();
    let mut keys = HashMap::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match one(rest, &mut keys, &mut log.numbers) {
            Some((interval, size)) => {
                found(interval);
                at += size;
                log.size = at;
            }
            None => at += 1,
        }
    }
    log
}

/// Returns the interval of the record at the start of some bytes, and the size of the record.
fn one(bytes: &[u8], keys: &mut HashMap<u32, Key>, numbers: &mut Numbers) -> Option<(Interval, usize)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (size, rest) = rest.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let size = u32::from_be_bytes(*size) as usize;
    if size > PAYLOAD_SIZE_MAX {
        return None;
    }
    let payload = rest.get(..size)?;
    if crc32c::crc32c(payload) != u32::from_be_bytes(*sum) {
        return None;
    }
    let (start, rest) = payload.split_first_chunk::<8>()?;
    let (first_new, rest) = rest.split_first_chunk::<4>()?;
    let (new_len, mut rest) = rest.split_first_chunk::<4>()?;
    let first_new = u32::from_be_bytes(*first_new);
    for offset in 0..u32::from_be_bytes(*new_len) {
        let (bytes, after) = rest.split_first_chunk::<KEY_SIZE>()?;
        rest = after;
        let number = first_new.checked_add(offset)?;
        if let Some(key) = Key::from_bytes(*bytes) {
            keys.insert(number, key);
            numbers.numbers.insert(key, number);
        }
        numbers.next = numbers.next.max(number.checked_add(1)?);
    }
    let (len, mut rest) = rest.split_first_chunk::<4>()?;
    let mut values = Vec::new();
    let mut number = 0_u32;
    for _ in 0..u32::from_be_bytes(*len) {
        let (distance, after) = varint(rest)?;
        let (code, after) = after.split_first_chunk::<2>()?;
        rest = after;
        number = number.checked_add(distance)?;
        if let Some(key) = keys.get(&number) {
            values.push((*key, u16::from_be_bytes(*code)));
        }
    }
    let start = u64::from_be_bytes(*start);
    Some((Interval { start, values }, HEADER_SIZE + size))
}

/// Appends a number (LEB128).
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Returns the number at the start of some bytes (LEB128), and the bytes behind it.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u32;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 0x7f).checked_shl(at as u32 * 7)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{Measure, Subject};

    /// Returns the intervals of a log.
    fn intervals_of(bytes: &[u8]) -> Vec<Interval> {
        let mut found = Vec::new();
        read(bytes, |interval| found.push(interval));
        found
    }

    fn interval(start: u64, values: &[(u32, u16)]) -> Interval {
        let key = |number: u32| Key::new(Subject::End(number), Measure::In);
        Interval {
            start,
            values: values
                .iter()
                .map(|(number, code)| (key(*number), *code))
                .collect(),
        }
    }

    #[test]
    fn a_damaged_record_is_skipped_and_the_others_are_read() {
        let intervals = [
            interval(10, &[(1, 7), (2, 8)]),
            interval(20, &[(1, 9), (3, 1)]),
            interval(30, &[(1, 4), (2, 5), (3, 6)]),
        ];
        let mut numbers = Numbers::default();
        let records: Vec<Vec<u8>> = intervals
            .iter()
            .map(|interval| record(interval, &mut numbers))
            .collect();
        let bytes = records.concat();
        assert_eq!(intervals_of(&bytes), intervals);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let found = intervals_of(&damaged);
            assert_eq!(found.len(), 2, "byte {at}");
            for one in &found {
                let original = intervals.iter().find(|other| other.start == one.start);
                let original = original
                    .map(|original| original.values.as_slice())
                    .unwrap_or_default();
                assert!(
                    one.values.iter().all(|value| original.contains(value)),
                    "byte {at}: {one:?}"
                );
            }
            // Cut at the same byte, the whole records before it are left.
            let whole = records.iter().scan(0, |size, record| {
                *size += record.len();
                Some(*size)
            });
            let expected = whole.filter(|end| *end <= at).count();
            assert_eq!(intervals_of(&bytes[..at]), intervals[..expected], "cut at {at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let with_magic = [&MAGIC[..], &bytes].concat();
            prop_assert!(intervals_of(&bytes).is_empty());
            let _ = intervals_of(&with_magic);
        }

        #[test]
        fn intervals_are_read_back(
            all in prop::collection::vec(prop::collection::btree_map(0..400u32, any::<u16>(), 0..30), 1..8)
        ) {
            let mut numbers = Numbers::default();
            let mut bytes = Vec::new();
            for (at, values) in all.iter().enumerate() {
                let values: Vec<_> = values.iter().map(|(number, code)| (*number, *code)).collect();
                bytes.extend(record(&interval(at as u64 * 10, &values), &mut numbers));
            }
            let mut found = Vec::new();
            let Log { numbers: after, size } = read(&bytes, |interval| found.push(interval));
            prop_assert_eq!(size, bytes.len());
            prop_assert_eq!(after.next, numbers.next);
            for (interval, expected) in found.iter().zip(&all) {
                let mut found: Vec<u32> = interval.values.iter().map(|(key, _)| match key.subject {
                    Subject::End(number) => number,
                    _ => u32::MAX,
                }).collect();
                found.sort_unstable();
                prop_assert_eq!(found, expected.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
