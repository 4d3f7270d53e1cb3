//! The journal of a sink: the list of extents that are on disk. After a crash, the transfer continues from
//! it.
//!
//! ```text
//!   header   "MRFJ" 2, digest of the manifest
//!   record   type (1 byte), number (8, little endian), value (32), checksum (8)
//!
//!   type  record             number  value
//!   1     extent             extent  its digest
//!   2     committed          file    identity of the final file: inode, size, mtime, ctime (8 bytes each)
//!   3     extent revoked     extent  0
//!   4     committed revoked  file    0
//!   5     temporary          file    identity of the temporary file, as of a committed one
//!   6     boot               0       identifier of the kernel's run
//! ```
//! Times are nanoseconds since 1970. A file name alone is no evidence of the file's bytes: another process
//! may have replaced or changed the file. So the extent records of a file are valid only if the file under the final or
//! temporary name has the identity in the journal: inode, size, mtime and ctime, all as they were when the record was made.
//! Each sync writes the identities of the temporary files anew. After a loss of power the bytes of a file may be newer than
//! its times, so a restart of the kernel ends the validity of all identities before it.
//!
//! A record is appended after its data is durable. A record is valid only if its checksum and the checksums
//! of all earlier records are correct. If the data of a record is lost, a further record revokes it before
//! the temporary file is created again.

use crate::digest::Value;
use crate::entry::Timestamp;
use crate::fs::Metadata;
use std::collections::BTreeMap;

const MAGIC: &[u8; 5] = b"MRFJ\x02";
const HEADER_SIZE: usize = MAGIC.len() + 32;
const BODY_SIZE: usize = 1 + 8 + 32;
const CHECKSUM_SIZE: usize = 8;
/// Bytes of a record.
pub(crate) const RECORD_SIZE: usize = BODY_SIZE + CHECKSUM_SIZE;

const EXTENT: u8 = 1;
const COMMITTED: u8 = 2;
const EXTENT_REVOKED: u8 = 3;
const COMMITTED_REVOKED: u8 = 4;
const TEMPORARY: u8 = 5;
const BOOT: u8 = 6;

/// Properties of a file that distinguish it from every later file with the same name, and from every later version of itself.
pub(crate) type Identity = [u8; 32];

/// The identity that no file has.
pub(crate) const NO_IDENTITY: Identity = [0; 32];

/// Returns the identity of a file. Each change of the file's bytes or attributes changes the identity.
pub(crate) fn identity(metadata: &Metadata) -> Identity {
    let Metadata {
        identity,
        size,
        modified,
        changed,
        ..
    } = metadata;
    let words = [
        identity.inode,
        *size,
        nanoseconds(*modified),
        nanoseconds(*changed),
    ];
    let mut bytes = [0; 32];
    for (field, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *field = word.to_le_bytes();
    }
    bytes
}

fn nanoseconds(time: Timestamp) -> u64 {
    let nanoseconds = time.seconds.wrapping_mul(1_000_000_000);
    nanoseconds.wrapping_add(time.nanoseconds.into()).cast_unsigned()
}

/// An entry of the journal: progress that survives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// The extent is durable and has this value.
    Extent(u64, Value),
    /// The file has its final name.
    Committed(u32, Identity),
    /// The earlier record of the extent is no longer valid.
    ExtentRevoked(u64),
    /// The file no longer has its final name.
    CommittedRevoked(u32),
    /// The extents of the file are in this temporary file.
    Temporary(u32, Identity),
    /// The kernel runs under this identifier.
    Boot(Identity),
}

/// The records of a journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Journal {
    pub(crate) extents: BTreeMap<u64, Value>,
    pub(crate) committed: BTreeMap<u32, Identity>,
    pub(crate) temporary: BTreeMap<u32, Identity>,
    /// The run of the kernel in which the identities were recorded.
    pub(crate) boot: Option<Identity>,
}

impl Journal {
    /// Applies a record.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Extent(extent, value) => drop(self.extents.insert(extent, value)),
            Record::Committed(file, identity) => drop(self.committed.insert(file, identity)),
            Record::ExtentRevoked(extent) => drop(self.extents.remove(&extent)),
            Record::CommittedRevoked(file) => drop(self.committed.remove(&file)),
            Record::Temporary(file, identity) => drop(self.temporary.insert(file, identity)),
            Record::Boot(boot) => {
                if self.boot.replace(boot) != Some(boot) {
                    self.temporary.clear();
                    self.committed
                        .values_mut()
                        .for_each(|identity| *identity = NO_IDENTITY);
                }
            }
        }
    }
}

/// Returns the bytes of an empty journal.
pub(crate) fn header(manifest: &[u8; 32]) -> Vec<u8> {
    [&MAGIC[..], manifest].concat()
}

/// Encodes a record for the position `offset` of the journal and appends it to `out`.
pub(crate) fn encode(manifest: &[u8; 32], offset: u64, record: Record, out: &mut Vec<u8>) {
    let (tag, number, value) = match record {
        Record::Extent(extent, value) => (EXTENT, extent, value),
        Record::Committed(file, identity) => (COMMITTED, u64::from(file), identity),
        Record::ExtentRevoked(extent) => (EXTENT_REVOKED, extent, [0; 32]),
        Record::CommittedRevoked(file) => (COMMITTED_REVOKED, u64::from(file), [0; 32]),
        Record::Temporary(file, identity) => (TEMPORARY, u64::from(file), identity),
        Record::Boot(boot) => (BOOT, 0, boot),
    };
    let start = out.len();
    out.push(tag);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&value);
    let checksum = checksum(manifest, offset, &out[start..]);
    out.extend_from_slice(&checksum);
}

/// Returns the valid records of a journal and the number of valid bytes. Returns `None` if the header is not
/// that of a journal of this manifest.
pub(crate) fn decode(manifest: &[u8; 32], bytes: &[u8]) -> Option<(Journal, u64)> {
    if bytes.get(..HEADER_SIZE)? != header(manifest) {
        return None;
    }
    let mut journal = Journal::default();
    let mut offset = HEADER_SIZE;
    for record in bytes[HEADER_SIZE..].as_chunks::<RECORD_SIZE>().0 {
        let (body, sum) = record.split_at(BODY_SIZE);
        if checksum(manifest, offset as u64, body) != sum {
            break;
        }
        let (number, value) = body[1..].split_at(8);
        let number = number
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let record = match (body[0], <Value>::try_from(value), u32::try_from(number)) {
            (EXTENT, Ok(value), _) => Record::Extent(number, value),
            (COMMITTED, Ok(identity), Ok(file)) => Record::Committed(file, identity),
            (EXTENT_REVOKED, ..) => Record::ExtentRevoked(number),
            (COMMITTED_REVOKED, _, Ok(file)) => Record::CommittedRevoked(file),
            (TEMPORARY, Ok(identity), Ok(file)) => Record::Temporary(file, identity),
            (BOOT, Ok(boot), _) => Record::Boot(boot),
            _ => break,
        };
        journal.apply(record);
        offset += RECORD_SIZE;
    }
    Some((journal, offset as u64))
}

fn checksum(manifest: &[u8; 32], offset: u64, body: &[u8]) -> [u8; CHECKSUM_SIZE] {
    let mut hasher = blake3::Hasher::new_keyed(manifest);
    hasher.update(&offset.to_le_bytes());
    hasher.update(body);
    let mut sum = [0; CHECKSUM_SIZE];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_revoked_does_not_count_until_it_is_written_again() {
        let manifest = [3; 32];
        let mut bytes = header(&manifest);
        let mut append = |record| {
            let offset = bytes.len() as u64;
            encode(&manifest, offset, record, &mut bytes);
            decode(&manifest, &bytes).unwrap().0
        };
        append(Record::Extent(1, [1; 32]));
        append(Record::Extent(2, [2; 32]));
        append(Record::Committed(7, [8; 32]));
        append(Record::Temporary(6, [9; 32]));
        append(Record::ExtentRevoked(1));
        let journal = append(Record::CommittedRevoked(7));
        assert_eq!(journal.extents.keys().collect::<Vec<_>>(), [&2]);
        assert!(journal.committed.is_empty());
        assert_eq!(journal.temporary.get(&6), Some(&[9; 32]));
        let journal = append(Record::Extent(1, [3; 32]));
        assert_eq!(journal.extents.get(&1), Some(&[3; 32]));
    }

    #[test]
    fn identities_from_before_a_restart_of_the_kernel_do_not_count() {
        let mut journal = Journal::default();
        let records = [
            Record::Boot([1; 32]),
            Record::Extent(1, [1; 32]),
            Record::Committed(7, [8; 32]),
            Record::Temporary(6, [9; 32]),
            Record::Boot([1; 32]),
        ];
        records.into_iter().for_each(|record| journal.apply(record));
        assert_eq!(journal.temporary.len(), 1, "the kernel still runs");
        journal.apply(Record::Boot([2; 32]));
        assert!(journal.temporary.is_empty());
        assert_eq!(journal.committed.get(&7), Some(&NO_IDENTITY));
        assert_eq!(journal.extents.len(), 1);
    }

    #[test]
    fn a_torn_record_ends_the_journal() {
        let manifest = [3; 32];
        let mut bytes = header(&manifest);
        for extent in 0..3 {
            let offset = bytes.len() as u64;
            encode(
                &manifest,
                offset,
                Record::Extent(extent, [extent as u8; 32]),
                &mut bytes,
            );
        }
        let (journal, valid) = decode(&manifest, &bytes).unwrap();
        assert_eq!((journal.extents.len(), valid), (3, bytes.len() as u64));
        for at in HEADER_SIZE + RECORD_SIZE..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            let (journal, valid) = decode(&manifest, &torn).unwrap();
            let whole = (at - HEADER_SIZE) / RECORD_SIZE;
            assert_eq!(
                (journal.extents.len(), valid as usize),
                (whole, HEADER_SIZE + whole * RECORD_SIZE)
            );
        }
        assert_eq!(decode(&[4; 32], &bytes), None, "the journal of another set");
        // A record at another offset is not valid.
        let moved = [&bytes[..HEADER_SIZE], &bytes[HEADER_SIZE + RECORD_SIZE..]].concat();
        assert_eq!(decode(&manifest, &moved).unwrap().0.extents.len(), 0);
    }
}
