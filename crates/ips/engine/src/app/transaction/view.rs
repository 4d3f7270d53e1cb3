//! The progress of a transaction and its buffers, as detection sees them.

/// The progress of a transaction in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Progress {
    /// No byte was parsed.
    #[default]
    Idle,
    /// The first line or header is being parsed.
    Started,
    /// The headers are complete.
    Headers,
    /// The body is being parsed.
    Body,
    /// The direction is complete.
    Complete,
}

/// An instance of a buffer of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferView<'a> {
    /// The bytes that are available.
    pub bytes: &'a [u8],
    /// Offset of `bytes[0]` in the whole buffer, if earlier bytes are not kept.
    pub offset: u64,
    /// True if no byte follows.
    pub is_complete: bool,
    /// True for bytes around an end of a range of a file: a test holds for them only if it then holds for the file, too.
    pub(crate) is_part: bool,
    /// True if the header of DCE/RPC says that numbers are big-endian (C706, section 14.2.5).
    pub(crate) is_big_endian: bool,
}

impl<'a> BufferView<'a> {
    /// Returns a buffer that no byte follows.
    pub(crate) fn whole(bytes: &'a [u8]) -> BufferView<'a> {
        BufferView {
            bytes,
            offset: 0,
            is_complete: true,
            is_part: false,
            is_big_endian: false,
        }
    }
}
