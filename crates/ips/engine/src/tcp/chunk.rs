//! Bytes of a stream, as parsers and raw inspection get them.

use crate::flow::Direction;

/// In-order bytes of one direction. Each byte is delivered once, when it becomes inspectable.
#[derive(Debug, Clone, Copy)]
pub struct StreamChunk<'a> {
    /// The direction of the bytes.
    pub direction: Direction,
    /// Offset of the first byte in the stream of this direction, gaps included.
    pub offset: u64,
    /// The bytes; empty if only a gap or the end is reported.
    pub bytes: &'a [u8],
    /// Number of bytes directly before `bytes` that are lost.
    pub gap_before: u64,
    /// True if no byte follows: the direction ended, or its depth is reached.
    pub is_end: bool,
}

#[cfg(test)]
impl<'a> StreamChunk<'a> {
    /// Returns bytes without a gap before them, at offset 0.
    pub(crate) fn of(direction: Direction, bytes: &'a [u8]) -> StreamChunk<'a> {
        StreamChunk {
            direction,
            offset: 0,
            bytes,
            gap_before: 0,
            is_end: false,
        }
    }
}

/// The bytes of one direction that raw inspection sees: bytes that were inspected before, and new bytes.
#[derive(Debug, Clone, Copy)]
pub struct StreamWindow<'a> {
    /// Offset of `bytes[0]` in the stream.
    pub offset: u64,
    /// Look-back bytes and new bytes, without a gap.
    pub bytes: &'a [u8],
    /// Index in `bytes` of the first byte that was not inspected before.
    pub new_from: usize,
    /// True if no byte follows.
    pub is_end: bool,
    /// True if the new bytes are a chunk, as in mode `ids`: `depth` and `offset` count from its first byte.
    pub is_chunk: bool,
}

impl StreamWindow<'_> {
    /// Returns the window without the bytes from an offset in the stream on; `None` if no new byte is left.
    pub(crate) fn before(self, end: u64) -> Option<Self> {
        let size = usize::try_from(end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if size >= self.bytes.len() {
            return Some(self);
        }
        (size > self.new_from).then(|| StreamWindow {
            bytes: &self.bytes[..size],
            is_end: false,
            ..self
        })
    }
}
