//! Bytes of a file that follow in a message.

use super::handles::{Handle, Name};
use crate::app::heap::heap;
use crate::app::record::Fields;

/// Bytes of a file that follow behind the part of a message that was read.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) handle: Handle,
    pub(super) name: Name,
    /// Offset of the next byte in the file.
    pub(super) offset: u64,
    /// Number of bytes of the file, and then of padding, that follow.
    pub(super) left: usize,
    pub(super) padding: usize,
    /// The size of the file, if the server has told it.
    pub(super) size: Option<u64>,
    /// The version and the number of the procedure or operation, and the record of its call.
    pub(super) procedure: (u64, u64),
    pub(super) rpc: Fields,
}

heap!(Bytes { name, rpc });

impl Bytes {
    /// Skips bytes of the file, which were passed on or are lost.
    pub(super) fn skip(&mut self, size: usize) {
        self.left -= size.min(self.left);
        self.offset = self.offset.saturating_add(size as u64);
    }
}
