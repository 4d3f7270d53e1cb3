//! TCP: states, normalisation and reassembly.

use crate::flow::Direction;

/// In-order bytes of one direction: each byte once, as it becomes inspectable. A UDP datagram is one chunk with `offset`
/// 0 and `is_end` false.
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
    /// True if no byte follows.
    pub is_end: bool,
}

/// The bytes of one direction of a stream that raw inspection sees: what was seen before, and new bytes.
#[derive(Debug, Clone, Copy)]
pub struct StreamWindow<'a> {
    /// Offset of `bytes[0]` in the stream.
    pub offset: u64,
    /// Look-back and new bytes, without gap.
    pub bytes: &'a [u8],
    /// Index in `bytes` of the first byte that was not inspected before.
    pub new_from: usize,
    /// True if no byte follows.
    pub is_end: bool,
}

/// The state of a TCP connection.
#[derive(Debug, Default)]
pub struct Session {}
