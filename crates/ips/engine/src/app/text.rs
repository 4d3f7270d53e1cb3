//! Pieces of a text: short byte strings, one after the other in one allocation.
//!
//! A message of HTTP has dozens of headers and buffers, most of them shorter than a cache line. A separate
//! allocation for each would cost more than parsing.

use super::heap::{Heap, flat};

/// The largest size in bytes of a piece that is copied into a text; larger pieces have separate memory.
const COPIED: usize = 1024;

/// A range of bytes in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

flat!(Span);

impl Span {
    /// Appends bytes to a text and returns their range.
    pub(super) fn append(text: &mut Vec<u8>, bytes: &[u8]) -> Span {
        let start = text.len();
        text.extend_from_slice(bytes);
        Span::behind(text, start)
    }

    /// Returns the range from `start` to the end of a text.
    pub(super) fn behind(text: &[u8], start: usize) -> Span {
        Span {
            start: start as u32,
            end: text.len() as u32,
        }
    }

    /// Returns the bytes.
    pub(super) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.range()]
    }

    /// Returns the offsets of the bytes.
    pub(super) fn range(self) -> core::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the offset after the last byte.
    pub(super) fn end(self) -> usize {
        self.end as usize
    }
}

/// Bytes in a text, or in separate memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    In(Span),
    Own(Vec<u8>),
}

impl Heap for Piece {
    fn heap(&self) -> usize {
        match self {
            Piece::In(_) => 0,
            Piece::Own(bytes) => bytes.heap(),
        }
    }
}

impl Piece {
    /// Returns a piece with bytes, which are copied to the end of the text if they are few.
    pub(super) fn new(text: &mut Vec<u8>, bytes: impl Into<Vec<u8>> + AsRef<[u8]>) -> Piece {
        match bytes.as_ref() {
            few if few.len() <= COPIED => Piece::In(Span::append(text, few)),
            _ => Piece::Own(bytes.into()),
        }
    }

    /// Returns the bytes.
    pub(super) fn of<'a>(&'a self, text: &'a [u8]) -> &'a [u8] {
        match self {
            Piece::In(span) => span.of(text),
            Piece::Own(bytes) => bytes,
        }
    }

    /// Returns the bytes as a vector to which others can be appended. From then on the piece has separate
    /// memory.
    pub(super) fn to_mut(&mut self, text: &[u8]) -> &mut Vec<u8> {
        if let Piece::In(span) = self {
            *self = Piece::Own(span.of(text).to_vec());
        }
        match self {
            Piece::Own(bytes) => bytes,
            Piece::In(_) => unreachable!("the piece has memory of its own"),
        }
    }

    /// Returns the offset after the last byte in the text; 0 for a piece with separate memory.
    pub(super) fn end(&self) -> usize {
        match self {
            Piece::In(span) => span.end(),
            Piece::Own(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_share_a_text_and_long_or_growing_ones_have_their_own_memory() {
        let mut text = Vec::new();
        let mut first = Piece::new(&mut text, b"one".as_slice());
        let second = Piece::new(&mut text, b"two".as_slice());
        let long = Piece::new(&mut text, vec![b'x'; COPIED + 1]);
        assert_eq!(text, b"onetwo");
        first.to_mut(&text).extend_from_slice(b" more");
        assert_eq!(
            (first.of(&text), second.of(&text)),
            (&b"one more"[..], &b"two"[..])
        );
        assert_eq!((first.end(), second.end(), long.end()), (0, 6, 0));
        assert_eq!((long.of(&text).len(), second.heap()), (COPIED + 1, 0));
    }
}
