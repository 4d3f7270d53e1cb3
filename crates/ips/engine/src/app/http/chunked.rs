//! The chunked transfer coding (RFC 9112, section 7.1), for the bodies of requests and responses.
//!
//! ```text
//!  Size ── line with a size ──▶ Data(left) ── all of it ──▶ DataEnd ── line end ──▶ Size
//!    └─── size 0 ──▶ trailer
//! ```

use super::framing;
use super::headers::{Lines, line};
use super::request_line::trimmed;
use crate::app::transaction::AppEvent;

/// The position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Chunked {
    /// In the line with the size of a chunk.
    #[default]
    Size,
    /// In the data of a chunk, with the number of bytes that are still to come.
    Data(u64),
    /// After the data of a chunk.
    DataEnd,
}

/// The result of one step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// More bytes are needed.
    NeedMore,
    /// A line between the data of chunks.
    Framing {
        /// Size of the line in bytes.
        size: usize,
        /// True if the chunk has an extension.
        has_extension: bool,
    },
    /// Bytes of the body.
    Data(&'a [u8]),
    /// The line of the last chunk, with its size in bytes; the trailer follows.
    Last(usize),
    /// A line that is not a chunk size, with its size in bytes; 0 if the line is not complete.
    Invalid(usize),
}

impl Chunked {
    /// Returns the next part of the bytes, and advances the position past it.
    pub(super) fn step<'a>(&mut self, data: &'a [u8], lines: Lines) -> Part<'a> {
        let framing = |size| Part::Framing {
            size,
            has_extension: false,
        };
        match *self {
            Chunked::Size => {
                let Some((end, mut next)) = line(data, lines, false) else {
                    // A line that does not begin with a hexadecimal digit is not a chunk size.
                    return match data.iter().find(|byte| !byte.is_ascii_whitespace()) {
                        Some(byte) if !byte.is_ascii_hexdigit() => Part::Invalid(0),
                        _ => Part::NeedMore,
                    };
                };
                let text = trimmed(&data[..end]);
                if text.is_empty() {
                    return framing(next);
                }
                // Browsers skip all carriage returns before the line feed.
                if next == end + 1 && data[end] == b'\r' {
                    let returns = data[end..].iter().take_while(|byte| **byte == b'\r').count();
                    match data.get(end + returns) {
                        Some(b'\n') => next = end + returns + 1,
                        Some(_) => {}
                        None => return Part::NeedMore,
                    }
                }
                match chunk_size(text) {
                    None => Part::Invalid(next),
                    Some((0, _)) => Part::Last(next),
                    Some((size, has_extension)) => {
                        *self = Chunked::Data(size);
                        Part::Framing {
                            size: next,
                            has_extension,
                        }
                    }
                }
            }
            Chunked::Data(left) => {
                let size = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                *self = match size as u64 == left {
                    true => Chunked::DataEnd,
                    false => Chunked::Data(left - size as u64),
                };
                Part::Data(&data[..size])
            }
            Chunked::DataEnd => match data.iter().position(|&byte| byte == b'\n') {
                Some(end) => {
                    *self = Chunked::Size;
                    framing(end + 1)
                }
                None => Part::NeedMore,
            },
        }
    }
}

/// Returns the problem of the line between chunks that a step found at a position, or of the beginning of such a line.
pub(super) fn problem(at: Chunked, data: &[u8], part: &Part<'_>) -> Option<AppEvent> {
    match (at, part) {
        (Chunked::Size, Part::Framing { size, .. } | Part::Last(size) | Part::Invalid(size)) => {
            framing::chunk_line(&data[..*size])
        }
        (Chunked::Size, Part::NeedMore) => framing::incomplete_line(data, 0).map(|_| framing::CHUNK),
        (Chunked::DataEnd, Part::Framing { size, .. }) => {
            (&data[..*size] != b"\r\n").then_some(framing::CHUNK)
        }
        (Chunked::DataEnd, Part::NeedMore) => (!b"\r\n".starts_with(data)).then_some(framing::CHUNK),
        _ => None,
    }
}

/// Returns the size of a chunk and true if the chunk has extensions, from the line of the size. Returns
/// `None` if the line is not valid.
fn chunk_size(text: &[u8]) -> Option<(u64, bool)> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let number = core::str::from_utf8(&text[..digits]).ok()?;
    let size = u64::from_str_radix(number, 16)
        .ok()
        .filter(|&size| size <= i32::MAX as u64)?;
    Some((size, text[digits..].contains(&b';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the body and the bytes after its last chunk, if it has one; the input comes in pieces of `size` bytes.
    fn decode(text: &[u8], size: usize) -> (Vec<u8>, Option<usize>) {
        let (mut chunked, mut body, mut pending, mut taken) = (Chunked::default(), Vec::new(), Vec::new(), 0);
        for piece in text.chunks(size) {
            pending.extend_from_slice(piece);
            loop {
                if pending.is_empty() {
                    break;
                }
                let used = match chunked.step(&pending, Lines::CrOrLf) {
                    Part::NeedMore | Part::Invalid(_) => break,
                    Part::Framing { size, .. } => size,
                    Part::Data(bytes) => {
                        body.extend_from_slice(bytes);
                        bytes.len()
                    }
                    Part::Last(size) => return (body, Some(taken + size)),
                };
                taken += used;
                pending.drain(..used);
            }
        }
        (body, None)
    }

    #[test]
    fn a_body_is_the_same_in_pieces_of_any_size() {
        let text = b"4;name=value\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\n";
        for size in 1..=text.len() {
            assert_eq!(decode(text, size), (b"Wikipedia".to_vec(), Some(33)), "{size}");
        }
    }

    #[test]
    fn a_line_that_is_no_size_is_invalid_as_soon_as_that_is_known() {
        let step = |text| Chunked::default().step(text, Lines::CrOrLf);
        assert_eq!(step(b"x"), Part::Invalid(0));
        assert_eq!(step(b"4"), Part::NeedMore);
        assert_eq!(step(b"fffffffff\r\n"), Part::Invalid(11));
    }
}
