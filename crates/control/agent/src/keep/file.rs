//! The file of the kept state of a bridge. All numbers are big-endian.
//!
//! ```text
//!  "MLRFLOWS"   version u32   size of the body u64   body   CRC-32C of the body u32
//!
//!  body    size u8, name of the bridge   datapath id u64   tables u8   time of the save u64   record …
//!  record  age u64   idle time u64   packets u64   bytes u64   parts u16   (packets u64, bytes u64) …   message
//! ```
//!
//! The time of the save is in nanoseconds since 1970-01-01 UTC; ages and idle times are in nanoseconds. A message is that
//! of a controller that adds the item (OpenFlow 1.3.5): meter_mod, group_mod or flow_mod, or a table features request
//! for one table. Parts are the bands of a meter or the buckets of a group.

use millrace_openflow::multipart::{MultipartRequest, RequestBody};
use millrace_openflow::{Message, decode, encode};
use millrace_pipeline::{EntryCount, FlowMod, FlowModCommand, GroupMod, MeterMod};
use millrace_types::{Dpid, Duration, Time, Xid};
use thiserror::Error;

use super::kept::{Captured, Counted, Kept};
use crate::handlers::{flows, groups, meters};

const MAGIC: &[u8; 8] = b"MLRFLOWS";
/// The version of the format. A file of another version is refused.
const VERSION: u32 = 1;
/// The size of an OpenFlow header, whose bytes 2 and 3 are the size of the message (OpenFlow 1.3.5, section 7.1).
const HEADER_SIZE: usize = 8;

/// The reason why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileError {
    /// The bytes do not begin like a file of a switch.
    #[error("it is no file of flow entries: expected a file that millraced saved")]
    Foreign,
    /// The format has another version.
    #[error("its format has version {0}: expected {VERSION}; another version of Millrace wrote it")]
    Version(u32),
    /// The bytes are not those that were saved.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

/// Returns the file of a captured state. `saved_unix_nanos` is the time of the save.
pub(super) fn encode_file(state: &Captured, saved_unix_nanos: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_be_bytes());
    let size_at = out.len();
    out.extend(0_u64.to_be_bytes());
    let body_at = out.len();
    // Names of bridges have at most 15 bytes.
    let name = state.bridge.as_bytes();
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend(name.iter().take(usize::from(u8::MAX)));
    out.extend(state.dpid.0.to_be_bytes());
    out.push(state.tables);
    out.extend(saved_unix_nanos.to_be_bytes());
    for features in &state.features {
        let body = RequestBody::TableFeatures(vec![features.clone()]);
        let request = Message::MultipartRequest(MultipartRequest { more: false, body });
        record(&Counted::default(), &request, &mut out);
    }
    for (meter, counted) in &state.meters {
        record(counted, &meters::message(&MeterMod::Add(meter.clone())), &mut out);
    }
    for (group, counted) in &state.groups {
        record(counted, &groups::message(&GroupMod::Add(group.clone())), &mut out);
    }
    for (entry, count) in &state.flows {
        let counted = Counted {
            age: state.at.since(entry.created()),
            idle: state.at.since(entry.created().max(count.last_used)),
            count: *count,
            parts: Vec::new(),
        };
        let parts = entry.parts();
        let add = FlowMod {
            cookie: parts.cookie,
            idle_timeout: parts.idle_timeout,
            hard_timeout: parts.hard_timeout,
            flags: parts.flags,
            instructions: parts.instructions,
            ..FlowMod::new(FlowModCommand::Add, parts.table, parts.priority, parts.match_)
        };
        record(&counted, &flows::message(add), &mut out);
    }
    let size = (out.len() - body_at) as u64;
    let body = out.get(body_at..).unwrap_or_default();
    let sum = crc32c::crc32c(body);
    if let Some(field) = out.get_mut(size_at..body_at) {
        field.copy_from_slice(&size.to_be_bytes());
    }
    out.extend(sum.to_be_bytes());
    out
}

fn record(counted: &Counted, message: &Message, out: &mut Vec<u8>) {
    let start = out.len();
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    out.extend(nanos(counted.age).to_be_bytes());
    out.extend(nanos(counted.idle).to_be_bytes());
    out.extend(counted.count.packets.to_be_bytes());
    out.extend(counted.count.bytes.to_be_bytes());
    out.extend(
        u16::try_from(counted.parts.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes(),
    );
    for part in counted.parts.iter().take(usize::from(u16::MAX)) {
        out.extend(part.packets.to_be_bytes());
        out.extend(part.bytes.to_be_bytes());
    }
    if let Err(error) = encode(message, Xid(0), out) {
        // An item that a controller added fits a message; an operator's entry may be longer.
        tracing::warn!(%error, "an item is too long to be saved, and is left out");
        out.truncate(start);
    }
}

/// The numbers of items in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    pub flows: usize,
    pub groups: usize,
    pub meters: usize,
}

/// Returns the numbers of items in a file, of which every byte is checked.
///
/// # Errors
/// [`FileError`].
pub fn count_items(bytes: &[u8]) -> Result<ItemCounts, FileError> {
    let kept = decode_file(bytes)?;
    Ok(ItemCounts {
        flows: kept.flows.len(),
        groups: kept.groups.len(),
        meters: kept.meters.len(),
    })
}

/// Reads a file.
///
/// # Errors
/// [`FileError`].
pub(super) fn decode_file(bytes: &[u8]) -> Result<Kept, FileError> {
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len()) != Some(MAGIC) {
        return Err(FileError::Foreign);
    }
    let truncated = || FileError::Damaged("it ends early");
    let version = reader.u32().ok_or_else(truncated)?;
    if version != VERSION {
        return Err(FileError::Version(version));
    }
    let size = reader.u64().ok_or_else(truncated)?;
    let size = usize::try_from(size).map_err(|_| truncated())?;
    let body = reader.take(size).ok_or_else(truncated)?;
    let sum = reader.u32().ok_or_else(truncated)?;
    if !reader.0.is_empty() {
        return Err(FileError::Damaged("bytes follow its end"));
    }
    if crc32c::crc32c(body) != sum {
        return Err(FileError::Damaged("its checksum is wrong"));
    }
    let mut reader = Reader(body);
    let mut kept = head(&mut reader).ok_or_else(truncated)?;
    while !reader.0.is_empty() {
        let counted = reader.counted().ok_or_else(truncated)?;
        let message = reader.message().ok_or_else(truncated)?;
        let (_, message) = decode(message).map_err(|_| FileError::Damaged("a message in it is malformed"))?;
        add(&mut kept, message, counted)?;
    }
    Ok(kept)
}

fn head(reader: &mut Reader<'_>) -> Option<Kept> {
    let size = reader.u8()?;
    Some(Kept {
        bridge: String::from_utf8_lossy(reader.take(usize::from(size))?).into_owned(),
        dpid: Dpid(reader.u64()?),
        tables: reader.u8()?,
        saved_unix_nanos: reader.u64()?,
        ..Kept::default()
    })
}

fn add(kept: &mut Kept, message: Message, counted: Counted) -> Result<(), FileError> {
    match message {
        Message::FlowMod(mut flow) => kept.flows.push((flows::request(&mut flow), counted)),
        Message::GroupMod(mut group) => match groups::request(&mut group) {
            GroupMod::Add(group) => kept.groups.push((group, counted)),
            _ => return Err(FileError::Damaged("a message in it adds no group")),
        },
        Message::MeterMod(meter) => match meters::request(&meter) {
            MeterMod::Add(meter) => kept.meters.push((meter, counted)),
            _ => return Err(FileError::Damaged("a message in it adds no meter")),
        },
        Message::MultipartRequest(MultipartRequest {
            body: RequestBody::TableFeatures(features),
            ..
        }) => kept.features.extend(features),
        _ => return Err(FileError::Damaged("a message in it is of an unexpected type")),
    }
    Ok(())
}

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        self.take(SIZE)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn count(&mut self) -> Option<EntryCount> {
        Some(EntryCount {
            packets: self.u64()?,
            bytes: self.u64()?,
            last_used: Time::ZERO,
        })
    }

    fn counted(&mut self) -> Option<Counted> {
        let (age, idle) = (self.u64()?, self.u64()?);
        let count = self.count()?;
        let parts = self.u16()?;
        Some(Counted {
            age: Duration::from_nanos(age),
            idle: Duration::from_nanos(idle),
            count,
            parts: (0..parts).map(|_| self.count()).collect::<Option<_>>()?,
        })
    }

    fn message(&mut self) -> Option<&'a [u8]> {
        let header = self.0.get(..HEADER_SIZE)?;
        let size = u16::from_be_bytes([*header.get(2)?, *header.get(3)?]);
        self.take(usize::from(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Vec<u8> {
        let state = Captured {
            bridge: "br0".to_owned(),
            dpid: Dpid(7),
            tables: 9,
            ..Captured::default()
        };
        encode_file(&state, 11)
    }

    #[test]
    fn a_file_says_whose_state_it_holds_and_when_it_was_saved() {
        let kept = decode_file(&empty()).unwrap();
        assert_eq!(
            (
                kept.bridge.as_str(),
                kept.dpid,
                kept.tables,
                kept.saved_unix_nanos
            ),
            ("br0", Dpid(7), 9, 11)
        );
    }

    #[test]
    fn a_foreign_or_damaged_file_and_one_of_another_version_are_told_apart() {
        assert_eq!(decode_file(b"[[bridge]]\nname").unwrap_err(), FileError::Foreign);
        assert_eq!(decode_file(b"").unwrap_err(), FileError::Foreign);
        let good = empty();
        let mut newer = good.clone();
        newer[11] = 2;
        assert_eq!(decode_file(&newer).unwrap_err(), FileError::Version(2));
        let longer = [good.as_slice(), b"x"].concat();
        assert_eq!(
            decode_file(&longer).unwrap_err(),
            FileError::Damaged("bytes follow its end")
        );
        for len in MAGIC.len()..good.len() {
            assert!(
                matches!(decode_file(&good[..len]), Err(FileError::Damaged(_))),
                "{len}"
            );
        }
        for at in MAGIC.len() + 4..good.len() {
            for bit in 0..8 {
                let mut flipped = good.clone();
                flipped[at] ^= 1 << bit;
                assert!(
                    matches!(decode_file(&flipped), Err(FileError::Damaged(_))),
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn a_body_of_arbitrary_records_is_refused_without_a_panic() {
        let with_body = |body: &[u8]| {
            let mut file = MAGIC.to_vec();
            file.extend(VERSION.to_be_bytes());
            file.extend((body.len() as u64).to_be_bytes());
            file.extend(body);
            file.extend(crc32c::crc32c(body).to_be_bytes());
            file
        };
        let good = empty();
        let head = &good[20..good.len() - 4];
        for len in 1..200_usize {
            for fill in [0_u8, 1, 4, 14, 0xff] {
                let body = [head, &vec![fill; len]].concat();
                assert!(decode_file(&with_body(&body)).is_err(), "{len} bytes {fill}");
            }
        }
    }
}
