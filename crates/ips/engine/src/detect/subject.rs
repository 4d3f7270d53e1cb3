//! The bytes that operations are applied to, and the variables of a rule.

use super::program::VARIABLES;

/// The variables of a rule.
pub type Variables = [u64; VARIABLES];

/// The bytes that operations are applied to.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub bytes: &'a [u8],
    /// Offset of the first byte in the stream or the buffer.
    pub offset: u64,
    /// True if no byte follows.
    pub is_complete: bool,
    /// True if the header of DCE/RPC says that numbers are big-endian.
    pub is_dce_big_endian: bool,
}

impl<'a> Subject<'a> {
    /// Returns a subject that no further bytes follow.
    pub fn whole(bytes: &'a [u8]) -> Subject<'a> {
        Subject {
            bytes,
            offset: 0,
            is_complete: true,
            is_dce_big_endian: false,
        }
    }
}
