//! Limits of the lines of a message, and the result of a parsing step.

/// Largest size of a line in bytes, as Suricata's `meta-field-limit`.
pub(super) const LINE_SIZE: usize = 18_432;

/// Largest size of all header lines of a message.
pub(super) const HEADERS_SIZE: usize = 256 << 10;

/// Most bytes of a chunk for which memory is allocated when the headers of a message begin: usual headers need no more.
pub(super) const BLOCK_ROOM: usize = 1024;

/// The result of a parsing step: the number of consumed bytes, or that more bytes are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Consumed(usize),
    NeedMore,
}
