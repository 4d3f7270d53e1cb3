//! The parts of a response of type multipart/byteranges (RFC 9110, section 14.6), each a range of a file.
//!
//! ```text
//!  Skip ── boundary ──▶ Headers ── Content-Range ──▶ Bytes ── boundary ──▶ Headers …
//!    ▲                     └── none ──▶ Skip            └── last boundary ──▶ Ended
//! ```

use memchr::memmem;

use super::headers::{Headers, Lines};
use super::multipart::{BOUNDARY_SIZE, HEADERS_SIZE, headers_end, partial};
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::parameter::parameter;
use crate::app::ranges::RangePart;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

const SIDE: Direction = Direction::ToClient;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary, or in a part without range.
    Skip,
    /// In the headers of a part.
    Headers,
    /// In the bytes of a range.
    Bytes,
    /// After the last boundary, or after lost bytes.
    Ended,
}

/// A body of several ranges in progress.
#[derive(Debug)]
pub(super) struct ByteRanges {
    /// Line feed, two hyphens, boundary.
    delimiter: Vec<u8>,
    pending: Vec<u8>,
    /// Offset in `pending` at which the search for the empty line after headers continues.
    searched: usize,
    state: State,
    /// The name of the file.
    name: Vec<u8>,
}

heap!(ByteRanges {
    delimiter,
    pending,
    name
});

impl ByteRanges {
    /// Returns a parser for a Content-Type value, if it is multipart/byteranges with a boundary.
    pub(super) fn for_content_type(value: &[u8], name: &[u8]) -> Option<ByteRanges> {
        const TYPE: &[u8] = b"multipart/byteranges";
        let kind = value.get(..TYPE.len())?;
        let boundary = parameter(value, b"boundary")
            .filter(|boundary| kind.eq_ignore_ascii_case(TYPE) && !boundary.is_empty())?;
        // The first boundary has no line end before it, so one is added.
        Some(ByteRanges {
            delimiter: [b"\n--", &boundary[..boundary.len().min(BOUNDARY_SIZE)]].concat(),
            pending: b"\r\n".to_vec(),
            searched: 0,
            state: State::Skip,
            name: name.to_vec(),
        })
    }

    /// Parses the next bytes of the body.
    pub(super) fn data(&mut self, bytes: &[u8], transaction: &mut Transaction, settings: &AppSettings) {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = &self.pending[at..];
            match self.state {
                State::Ended => {
                    at = self.pending.len();
                    break;
                }
                State::Headers => {
                    let (end, searched) = headers_end(rest, self.searched);
                    self.searched = searched;
                    match end {
                        Some((size, line_feed)) if line_feed <= HEADERS_SIZE => {
                            self.state = begin(&rest[..size], &self.name, transaction, settings);
                            at += line_feed + 1;
                        }
                        None if rest.len() <= HEADERS_SIZE => break,
                        _ => {
                            transaction.raise("http.range_invalid");
                            self.state = State::Skip;
                        }
                    }
                }
                State::Skip | State::Bytes => {
                    let found = memmem::find(rest, &self.delimiter);
                    // Bytes that may begin a delimiter wait for more.
                    let end = found.unwrap_or_else(|| rest.len() - partial(rest, &self.delimiter));
                    let content = end - usize::from(rest[..end].ends_with(b"\r"));
                    if let Some(ranges) = transaction.range.as_mut().filter(|_| self.state == State::Bytes) {
                        ranges.add(&rest[..content]);
                    }
                    at += content;
                    let tail = &rest[(end + self.delimiter.len()).min(rest.len())..];
                    if found.is_none() || tail.len() < 2 {
                        break;
                    }
                    if let Some(ranges) = &mut transaction.range {
                        ranges.end();
                    }
                    (self.state, self.searched) = match tail.starts_with(b"--") {
                        true => (State::Ended, 0),
                        false => (State::Headers, 0),
                    };
                    let line_end = match tail {
                        [b'\n', ..] => 1,
                        [b'\r', b'\n', ..] => 2,
                        _ => 0,
                    };
                    at += end - content + self.delimiter.len() + line_end;
                }
            }
        }
        self.pending.drain(..at);
    }

    /// Ends the parts: the body ends, or bytes are lost.
    pub(super) fn end(&mut self, transaction: &mut Transaction) {
        let rest = core::mem::take(&mut self.pending);
        if let Some(ranges) = transaction.range.as_mut().filter(|_| self.state == State::Bytes) {
            ranges.add(&rest);
        }
        self.state = State::Ended;
    }
}

/// Begins the range of a part from its headers.
fn begin(block: &[u8], name: &[u8], transaction: &mut Transaction, settings: &AppSettings) -> State {
    let mut headers = Headers::default();
    headers.add_block(block, (SIDE, Lines::of(SIDE)), &mut Vec::new());
    let value = headers.value(b"content-range");
    let Some(part) = value.and_then(|value| RangePart::of_part(value, name, settings)) else {
        transaction.raise("http.range_invalid");
        return State::Skip;
    };
    if !transaction.range.get_or_insert_default().push(part) {
        transaction.raise("http.range_invalid");
        transaction.exceeds_limits = true;
        return State::Skip;
    }
    State::Bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::AppProtocol;

    const BODY: &[u8] = b"preamble\r\n--xyz\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-5/12\r\n\r\nAB\r\n--\r\n\
        --xyz\r\ncontent-range: bytes 8-11/12\r\n\r\nIJKL\r\n--xyz\r\nContent-Type: none\r\n\r\nother\r\n--xyz--\r\nbehind";

    /// Returns the ranges of a body in pieces of `step` bytes, each with the offset of its first byte, and the anomalies.
    fn parsed(body: &[u8], step: usize) -> (Vec<(u64, Vec<u8>)>, Vec<&'static str>) {
        let mut transaction = Transaction::new(0, AppProtocol::Http);
        let mut ranges =
            ByteRanges::for_content_type(b"Multipart/Byteranges; boundary=\"xyz\"", b"f").unwrap();
        for chunk in body.chunks(step) {
            ranges.data(chunk, &mut transaction, &AppSettings::default());
        }
        ranges.end(&mut transaction);
        let parts = transaction.range.map(|range| range.taken()).unwrap_or_default();
        (parts, transaction.events)
    }

    #[test]
    fn each_part_with_a_range_is_one_in_any_segmentation() {
        for step in 1..BODY.len() {
            let expected = vec![(0, b"AB\r\n--".to_vec()), (8, b"IJKL".to_vec())];
            assert_eq!(
                parsed(BODY, step),
                (expected, vec!["http.range_invalid"]),
                "{step}"
            );
        }
    }

    #[test]
    fn a_body_that_ends_in_a_part_has_its_bytes() {
        let size = BODY.len() - b"L\r\n--xyz\r\nContent-Type: none\r\n\r\nother\r\n--xyz--\r\nbehind".len();
        for step in [1, 3, 4096] {
            let expected = vec![(0, b"AB\r\n--".to_vec()), (8, b"IJK".to_vec())];
            assert_eq!(parsed(&BODY[..size], step), (expected, vec![]), "{step}");
        }
    }

    #[test]
    fn a_body_without_boundary_or_of_another_type_has_no_parts() {
        for value in ["multipart/byteranges", "multipart/form-data; boundary=a", "text"] {
            assert!(
                ByteRanges::for_content_type(value.as_bytes(), b"f").is_none(),
                "{value}"
            );
        }
    }

    #[test]
    fn more_parts_than_are_followed_exceed_a_limit() {
        let part = b"--xyz\r\nContent-Range: bytes 1-1/9\r\n\r\nB\r\n";
        let (parts, events) = parsed(&part.repeat(300), 4096);
        assert_eq!((parts.len(), events), (256, vec!["http.range_invalid"]));
    }

    #[test]
    fn headers_that_never_end_are_skipped() {
        let long = [
            &b"--xyz\r\nA: "[..],
            &[b'x'; 9000],
            b"\r\n\r\n--xyz\r\nContent-Range: bytes 1-1/9\r\n\r\nB\r\n--xyz--",
        ];
        for step in [1, 100, 20_000] {
            assert_eq!(
                parsed(&long.concat(), step),
                (vec![(1, b"B".to_vec())], vec!["http.range_invalid"]),
                "{step}"
            );
        }
    }
}
