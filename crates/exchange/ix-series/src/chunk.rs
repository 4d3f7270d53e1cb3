//! Files of columns: the points of all series for one hour or one day.
//!
//! ```text
//! header   "MRSERIES", 8 | version, 1 | level, 1 | points of a series, 2 | start, 8 | series: count, 4 | offset of columns, 4 | CRC-32C, 4
//! index    for each series, in the order of keys: key, 10 | offset of its column, 4
//! columns  kind, 1 | points | CRC-32C of key, kind and points, 4
//!
//! kind 0   all points are equal:             code, 2 | coverage, 1
//! kind 1   all or nothing of a point known:  a code for each point, 2; gaps are all ones
//! kind 2                                     a code for each point, 2 | a coverage for each point, 1
//! ```
//! Numbers are in network byte order. A file is written under another name and renamed when it is on the medium. A column
//! whose checksum is wrong is not read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::key::{KEY_SIZE, Key};
use crate::point::{FULL, GAP, Level, Point, decode, encode};

const MAGIC: [u8; 8] = *b"MRSERIES";
const VERSION: u8 = 1;
const HEADER_SIZE: usize = 32;
const ENTRY_SIZE: usize = KEY_SIZE + 4;

/// The points of a series in a file.
pub(crate) type Column = Vec<Point>;

/// The points of all series in a file.
pub(crate) type Columns = BTreeMap<Key, Column>;

/// Returns the points of two columns: those of the first one, and where it has gaps, those of the second one.
pub(crate) fn combine(mut one: Column, two: &[Point]) -> Column {
    for (own, other) in one.iter_mut().zip(two) {
        if other.coverage > own.coverage {
            *own = *other;
        }
    }
    one
}

/// Writes a file with columns of `points` points each. The file is complete on the medium when the function returns.
pub(crate) fn write(
    path: &Path,
    level: Level,
    start: u64,
    points: u16,
    columns: &Columns,
) -> io::Result<u64> {
    let (mut index, mut data) = (Vec::with_capacity(columns.len() * ENTRY_SIZE), Vec::new());
    for (key, column) in columns {
        let offset = u32::try_from(data.len()).map_err(io::Error::other)?;
        index.extend(key.bytes());
        index.extend(offset.to_be_bytes());
        put_column(&mut data, *key, column);
    }
    let mut bytes = Vec::with_capacity(HEADER_SIZE + index.len() + data.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, level as u8]);
    bytes.extend(points.to_be_bytes());
    bytes.extend(start.to_be_bytes());
    bytes.extend((columns.len() as u32).to_be_bytes());
    bytes.extend(((HEADER_SIZE + index.len()) as u32).to_be_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
    bytes.extend(index);
    bytes.extend(data);
    millrace_durable::replace(path, &bytes, millrace_durable::READABLE)?;
    Ok(bytes.len() as u64)
}

fn put_column(data: &mut Vec<u8>, key: Key, column: &[Point]) {
    let begin = data.len();
    let code = |point: &Point| {
        if point.is_known() {
            encode(point.value)
        } else {
            GAP
        }
    };
    let first = column.first().copied().unwrap_or(Point::UNKNOWN);
    if column
        .iter()
        .all(|point| point.coverage == first.coverage && code(point) == code(&first))
    {
        data.push(0);
        data.extend(code(&first).to_be_bytes());
        data.push(first.coverage);
    } else {
        let is_whole = |point: &Point| point.coverage == 0 || point.coverage == FULL;
        let is_simple = column.iter().all(is_whole);
        data.push(if is_simple { 1 } else { 2 });
        data.extend(column.iter().flat_map(|point| code(point).to_be_bytes()));
        if !is_simple {
            data.extend(column.iter().map(|point| point.coverage));
        }
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&key.bytes()), &data[begin..]);
    data.extend(sum.to_be_bytes());
}

/// Returns the points of the column at the start of some bytes.
fn column(bytes: &[u8], key: Key, points: usize) -> Option<Column> {
    let kind = *bytes.first()?;
    let size = 1 + match kind {
        0 => 3,
        1 => points * 2,
        2 => points * 3,
        _ => return None,
    };
    let (body, rest) = bytes.split_at_checked(size)?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(&key.bytes()), body);
    if rest.first_chunk::<4>() != Some(&sum.to_be_bytes()) {
        return None;
    }
    let point = |code: [u8; 2], coverage: u8| match decode(u16::from_be_bytes(code)) {
        Some(value) if coverage > 0 => Point { value, coverage },
        _ => Point::UNKNOWN,
    };
    let body = body.get(1..)?;
    Some(match kind {
        0 => vec![point([body[0], body[1]], body[2]); points],
        1 => body
            .chunks_exact(2)
            .map(|code| point([code[0], code[1]], FULL))
            .collect(),
        _ => {
            let (codes, coverage) = body.split_at(points * 2);
            let codes = codes.chunks_exact(2).zip(coverage);
            codes
                .map(|(code, coverage)| point([code[0], code[1]], *coverage))
                .collect()
        }
    })
}

/// A file of columns.
#[derive(Debug)]
pub(crate) struct Chunk {
    file: File,
    pub(crate) start: u64,
    pub(crate) points: usize,
    series: usize,
    data: u64,
}

impl Chunk {
    /// Opens a file. Returns `None` if it is none of this form, or damaged in its header.
    pub(crate) fn open(path: &Path) -> Option<Chunk> {
        let file = File::open(path).ok()?;
        let mut header = [0; HEADER_SIZE];
        file.read_exact_at(&mut header, 0).ok()?;
        let (body, sum) = header.split_last_chunk::<4>()?;
        if crc32c::crc32c(body).to_be_bytes() != *sum || !body.starts_with(&MAGIC) || body[8] != VERSION {
            return None;
        }
        let number = |at: usize, size: usize| {
            body[at..at + size]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Some(Chunk {
            file,
            points: usize::try_from(number(10, 2)).ok()?,
            start: number(12, 8),
            series: usize::try_from(number(20, 4)).ok()?,
            data: number(24, 4),
        })
    }

    /// Returns the points of a series; `None` if the file does not have it, or if its column is damaged.
    pub(crate) fn column(&self, key: Key) -> Option<Column> {
        let wanted = key.bytes();
        let (mut low, mut high) = (0, self.series);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut entry = [0; ENTRY_SIZE];
            self.file
                .read_exact_at(&mut entry, (HEADER_SIZE + middle * ENTRY_SIZE) as u64)
                .ok()?;
            let (found, offset) = entry.split_first_chunk::<KEY_SIZE>()?;
            match found.cmp(&wanted) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
                core::cmp::Ordering::Equal => {
                    let offset = u32::from_be_bytes(*offset.first_chunk::<4>()?);
                    return self.column_at(key, offset);
                }
            }
        }
        None
    }

    fn column_at(&self, key: Key, offset: u32) -> Option<Column> {
        let mut bytes = vec![0; 1 + self.points * 3 + 4];
        let at = self.data + u64::from(offset);
        let mut size = 0;
        // The last column of a file may be shorter than the longest kind.
        while size < bytes.len() {
            match self.file.read_at(&mut bytes[size..], at + size as u64) {
                Ok(0) => break,
                Ok(read) => size += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        column(&bytes[..size], key, self.points)
    }

    /// Returns the keys of all series.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let entry = |number: usize| {
            let mut bytes = [0; KEY_SIZE];
            let at = (HEADER_SIZE + number * ENTRY_SIZE) as u64;
            self.file.read_exact_at(&mut bytes, at).ok()?;
            Some(Key::from_bytes(bytes))
        };
        (0..self.series).map_while(entry).flatten()
    }

    /// Returns all columns that are not damaged.
    pub(crate) fn columns(&self) -> Columns {
        // The file is read at once: the end of a day reads all files of its hours.
        let size = self.file.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        if self.file.read_exact_at(&mut bytes, 0).is_err() {
            return Columns::new();
        }
        let entries = bytes
            .get(HEADER_SIZE..)
            .unwrap_or_default()
            .chunks_exact(ENTRY_SIZE);
        let found = entries.take(self.series).filter_map(|entry| {
            let (key, offset) = entry.split_first_chunk::<KEY_SIZE>()?;
            let key = Key::from_bytes(*key)?;
            let offset = u64::from(u32::from_be_bytes(*offset.first_chunk::<4>()?));
            let at = usize::try_from(self.data + offset).ok()?;
            Some((key, column(bytes.get(at..)?, key, self.points)?))
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::key::{Measure, Subject};

    #[test]
    fn a_damaged_file_gives_right_columns_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw-0.chunk");
        let key = |number| Key::new(Subject::End(number), Measure::Out);
        let known = |value| Point {
            value,
            coverage: FULL,
        };
        let columns = Columns::from([
            (key(1), vec![known(5); 4]),
            (key(2), vec![known(5), Point::UNKNOWN, known(7), known(9)]),
            (
                key(9),
                vec![
                    known(5),
                    Point {
                        value: 6,
                        coverage: 33,
                    },
                    known(7),
                    Point::UNKNOWN,
                ],
            ),
        ]);
        write(&path, Level::Raw, 3600, 4, &columns).unwrap();
        let chunk = Chunk::open(&path).unwrap();
        assert_eq!((chunk.start, chunk.points), (3600, 4));
        assert_eq!(chunk.columns(), columns);
        assert_eq!(chunk.column(key(3)), None);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            for (damaged, what) in [
                (
                    [&bytes[..at], &[bytes[at] ^ 0x41], &bytes[at + 1..]].concat(),
                    "changed",
                ),
                (bytes[..at].to_vec(), "cut"),
            ] {
                std::fs::write(&path, damaged).unwrap();
                let Some(chunk) = Chunk::open(&path) else {
                    assert!(at < HEADER_SIZE);
                    continue;
                };
                for (key, column) in &columns {
                    let found = chunk.column(*key);
                    assert!(
                        found.is_none() || found.as_ref() == Some(column),
                        "{what} at {at}: {found:?}"
                    );
                }
                for (key, column) in chunk.columns() {
                    assert_eq!(columns.get(&key), Some(&column), "{what} at {at}");
                }
            }
        }
    }
}
