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
//! kind 3   known in a part of the time only: first point, 2 | points, 2 | a code for each, 2 | a coverage for each, 1
//! ```
//! The shortest kind is taken. Rates of the whole exchange are in kbit/s ([`Key::encode`]).
//!
//! Numbers are in network byte order. A file is written under another name and renamed when it is on the medium. A column
//! whose checksum is wrong is not read.

use std::fs::File;
use std::io;
use std::iter::Peekable;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::key::{KEY_SIZE, Key};
use crate::point::{FULL, GAP, Level, Point};

const MAGIC: [u8; 8] = *b"MRSERIES";
const VERSION: u8 = 1;
const HEADER_SIZE: usize = 32;
const ENTRY_SIZE: usize = KEY_SIZE + 4;

/// The points of a series in a file.
pub(crate) type Column = Vec<Point>;

/// The columns of a file, or of an hour in memory, in the order of keys.
pub(crate) type Source<'a> = Peekable<Box<dyn Iterator<Item = (Key, Column)> + 'a>>;

/// Returns columns as a source.
pub(crate) fn source<'a>(columns: impl Iterator<Item = (Key, Column)> + 'a) -> Source<'a> {
    let columns: Box<dyn Iterator<Item = (Key, Column)> + 'a> = Box::new(columns);
    columns.peekable()
}

/// Returns the columns of all sources in the order of keys, one at a time. Of several columns of a key, each point is the one
/// with the greatest coverage, and of equals the first source's.
pub(crate) fn merge(mut sources: Vec<Source<'_>>) -> impl Iterator<Item = (Key, Column)> {
    core::iter::from_fn(move || {
        let key = sources
            .iter_mut()
            .filter_map(|source| source.peek().map(|(key, _)| *key))
            .min()?;
        let found = sources
            .iter_mut()
            .filter_map(|source| source.next_if(|(other, _)| *other == key));
        let column = found.map(|(_, column)| column).reduce(combine)?;
        Some((key, column))
    })
}

/// Returns the points of two columns: of each pair the one with more coverage, or the first one.
fn combine(mut one: Column, two: Column) -> Column {
    for (own, other) in one.iter_mut().zip(two) {
        if other.coverage > own.coverage {
            *own = other;
        }
    }
    one
}

/// Writes a file with columns of `points` points each, which come in the order of keys. The file is complete on the medium
/// when the function returns its size. Only one column is in memory at a time, beside the bytes of the file.
pub(crate) fn write(
    path: &Path,
    level: Level,
    start: u64,
    points: u16,
    columns: impl Iterator<Item = (Key, Column)>,
) -> io::Result<u64> {
    let (mut index, mut data) = (Vec::new(), Vec::new());
    let mut count = 0_u32;
    for (key, column) in columns {
        let offset = u32::try_from(data.len()).map_err(io::Error::other)?;
        index.extend(key.bytes());
        index.extend(offset.to_be_bytes());
        put_column(&mut data, key, &column);
        count += 1;
    }
    let mut bytes = Vec::with_capacity(HEADER_SIZE + index.len() + data.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, level as u8]);
    bytes.extend(points.to_be_bytes());
    bytes.extend(start.to_be_bytes());
    bytes.extend(count.to_be_bytes());
    bytes.extend(((HEADER_SIZE + index.len()) as u32).to_be_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
    bytes.extend(index);
    bytes.extend(data);
    millrace_durable::replace(path, &bytes, millrace_durable::READABLE)?;
    Ok(bytes.len() as u64)
}

/// The sizes of kind, of the positions of kind 3, and of a checksum.
const KIND_SIZE: usize = 1;
const RANGE_SIZE: usize = 4;
const SUM_SIZE: usize = 4;

fn put_column(data: &mut Vec<u8>, key: Key, column: &[Point]) {
    let begin = data.len();
    let code = |point: &Point| {
        if point.is_known() {
            key.encode(point.value)
        } else {
            GAP
        }
    };
    let first = column.first().copied().unwrap_or(Point::UNKNOWN);
    let is_known = |point: &Point| point.is_known();
    let known_from = column.iter().position(is_known).unwrap_or(0);
    let known_to = column.iter().rposition(is_known).map_or(0, |at| at + 1);
    let known = column.get(known_from..known_to).unwrap_or_default();
    let is_simple = column
        .iter()
        .all(|point| point.coverage == 0 || point.coverage == FULL);
    let whole_size = column.len() * if is_simple { 2 } else { 3 };
    if column
        .iter()
        .all(|point| point.coverage == first.coverage && code(point) == code(&first))
    {
        data.push(0);
        data.extend(code(&first).to_be_bytes());
        data.push(first.coverage);
    } else if RANGE_SIZE + known.len() * 3 < whole_size {
        data.push(3);
        data.extend((known_from as u16).to_be_bytes());
        data.extend((known.len() as u16).to_be_bytes());
        data.extend(known.iter().flat_map(|point| code(point).to_be_bytes()));
        data.extend(known.iter().map(|point| point.coverage));
    } else {
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
    let number = |at: usize| Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)));
    let size = KIND_SIZE
        + match kind {
            0 => 3,
            1 => points * 2,
            2 => points * 3,
            3 => RANGE_SIZE + number(KIND_SIZE + 2)? * 3,
            _ => return None,
        };
    let (body, rest) = bytes.split_at_checked(size)?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(&key.bytes()), body);
    if rest.first_chunk::<SUM_SIZE>() != Some(&sum.to_be_bytes()) {
        return None;
    }
    let point = |code: &[u8], coverage: u8| match key.decode(u16::from_be_bytes([code[0], code[1]])) {
        Some(value) if coverage > 0 => Point { value, coverage },
        _ => Point::UNKNOWN,
    };
    // Codes, and behind them a coverage for each.
    let pairs = |bytes: &[u8]| -> Column {
        let (codes, coverage) = bytes.split_at(bytes.len() / 3 * 2);
        let codes = codes.chunks_exact(2).zip(coverage);
        codes.map(|(code, coverage)| point(code, *coverage)).collect()
    };
    let body = body.get(KIND_SIZE..)?;
    Some(match kind {
        0 => vec![point(body, body[2]); points],
        1 => body.chunks_exact(2).map(|code| point(code, FULL)).collect(),
        2 => pairs(body),
        _ => {
            let mut column = vec![Point::UNKNOWN; points];
            let known = pairs(body.get(RANGE_SIZE..)?);
            let range = column.get_mut(number(KIND_SIZE)?..)?.get_mut(..known.len())?;
            range.copy_from_slice(&known);
            column
        }
    })
}

/// The header of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) level: u8,
    pub(crate) start: u64,
    pub(crate) points: usize,
    series: usize,
    /// The offset of the columns.
    data: u64,
}

impl Header {
    /// Returns the header at the start of some bytes; `None` if it is none of this form, or damaged.
    fn parse(bytes: &[u8]) -> Option<Header> {
        let header = bytes.first_chunk::<HEADER_SIZE>()?;
        let (body, sum) = header.split_last_chunk::<4>()?;
        if crc32c::crc32c(body).to_be_bytes() != *sum || !body.starts_with(&MAGIC) || body[8] != VERSION {
            return None;
        }
        let number = |at: usize, size: usize| {
            body[at..at + size]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Some(Header {
            level: body[9],
            points: usize::try_from(number(10, 2)).ok()?,
            start: number(12, 8),
            series: usize::try_from(number(20, 4)).ok()?,
            data: number(24, 4),
        })
    }
}

/// Returns the header and all columns of a file with these bytes, as [`Chunk::columns`]; `None` if its header is damaged, or its
/// index is cut.
pub(crate) fn parse(bytes: Vec<u8>) -> Option<(Header, impl Iterator<Item = (Key, Column)>)> {
    let header = Header::parse(&bytes)?;
    let index_end = header.series.checked_mul(ENTRY_SIZE)?.checked_add(HEADER_SIZE)?;
    (index_end <= bytes.len()).then(|| (header, columns_of(bytes, header)))
}

/// Returns the columns of the file with these bytes that are not damaged, in the order of keys.
fn columns_of(bytes: Vec<u8>, header: Header) -> impl Iterator<Item = (Key, Column)> {
    let column = move |number: usize| {
        let entry = bytes.get(HEADER_SIZE + number * ENTRY_SIZE..)?;
        let (key, offset) = entry.split_first_chunk::<KEY_SIZE>()?;
        let key = Key::from_bytes(*key)?;
        let offset = u64::from(u32::from_be_bytes(*offset.first_chunk::<4>()?));
        let at = usize::try_from(header.data + offset).ok()?;
        Some((key, column(bytes.get(at..)?, key, header.points)?))
    };
    (0..header.series).filter_map(column)
}

/// A file of columns.
#[derive(Debug)]
pub(crate) struct Chunk {
    file: File,
    pub(crate) header: Header,
}

impl Chunk {
    /// Opens a file. Returns `None` if it is none of this form, or damaged in its header.
    pub(crate) fn open(path: &Path) -> Option<Chunk> {
        let file = File::open(path).ok()?;
        let mut header = [0; HEADER_SIZE];
        file.read_exact_at(&mut header, 0).ok()?;
        Some(Chunk {
            file,
            header: Header::parse(&header)?,
        })
    }

    /// Returns the points of a series; `None` if the file does not have it, or if its column is damaged.
    pub(crate) fn column(&self, key: Key) -> Option<Column> {
        let wanted = key.bytes();
        let (mut low, mut high) = (0, self.header.series);
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
        let mut bytes = vec![0; KIND_SIZE + self.header.points * 3 + SUM_SIZE];
        let at = self.header.data + u64::from(offset);
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
        column(&bytes[..size], key, self.header.points)
    }

    /// Returns the keys of all series.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut index = vec![0; self.header.series * ENTRY_SIZE];
        if self.file.read_exact_at(&mut index, HEADER_SIZE as u64).is_err() {
            return Vec::new();
        }
        let keys = index
            .chunks_exact(ENTRY_SIZE)
            .filter_map(|entry| Key::from_bytes(*entry.first_chunk()?));
        keys.collect()
    }

    /// Returns all columns that are not damaged, in the order of keys, one at a time.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (Key, Column)> + use<> {
        // The file is read at once: the end of a day reads all files of its hours.
        let size = self.file.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let is_read = self.file.read_exact_at(&mut bytes, 0).is_ok();
        let mut header = self.header;
        if !is_read {
            header.series = 0;
        }
        columns_of(bytes, header)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

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
        let one_of = |at: usize| {
            let mut column = vec![Point::UNKNOWN; 4];
            column[at] = Point {
                value: 8,
                coverage: 33,
            };
            column
        };
        let columns = BTreeMap::from([
            (key(1), vec![known(5); 4]),
            (key(2), vec![known(5), Point::UNKNOWN, known(7), known(9)]),
            (key(3), one_of(0)),
            (key(5), one_of(3)),
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
        write(&path, Level::Raw, 3600, 4, columns.clone().into_iter()).unwrap();
        let chunk = Chunk::open(&path).unwrap();
        assert_eq!((chunk.header.start, chunk.header.points), (3600, 4));
        assert!(chunk.columns().eq(columns.clone()));
        assert!(chunk.keys().iter().eq(columns.keys()));
        assert_eq!(chunk.column(key(4)), None);
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
