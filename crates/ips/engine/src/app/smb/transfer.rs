//! The files of a connection by their identifiers, and the bytes that commands write to them or read from them.

use super::fields::{HEADER_1, HEADER_2, u16_at, u32_at};
use crate::app::open_files::FileKey;

/// A file, by the identifier that the server assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File(pub(super) u128);

impl File {
    /// The identifier that means the file of the previous command.
    pub(super) const RELATED: File = File(u128::MAX);
    /// The file of an answer to a command that was not seen.
    pub(super) const UNKNOWN: File = File(u128::MAX - 1);

    /// Returns a temporary identifier for the file that a command of the same message creates.
    pub(super) fn created_by(message: u64) -> File {
        File(u128::MAX << 64 | u128::from(message))
    }

    /// Returns the key of the file.
    pub(super) fn key(self) -> FileKey {
        FileKey(self.0)
    }

    /// Returns true for an identifier that no server assigned.
    pub(super) fn is_temporary(self) -> bool {
        self.0 >> 64 == u128::from(u64::MAX)
    }
}

/// Returns the SMB 2 file identifier at an offset.
#[inline]
pub(super) fn file_at(data: &[u8], at: usize) -> Option<File> {
    Some(File(u128::from_le_bytes(*data.get(at..)?.first_chunk()?)))
}

/// The bytes that a command writes to a file or reads from it.
pub(super) struct Transfer<'a> {
    pub(super) file: File,
    pub(super) data: &'a [u8],
    pub(super) command: &'static [u8],
    /// The offset in the file; `None` if the bytes are known to belong to a pipe.
    pub(super) offset: Option<u64>,
}

/// The bytes of a file in a message that is too large to be kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct LargeTransfer {
    /// Number of bytes of the message before those of the file.
    pub(super) before: usize,
    /// Number of bytes of the file that are still to come.
    pub(super) left: usize,
    pub(super) file: File,
    /// Offset of the next byte in the file.
    pub(super) offset: u64,
    pub(super) command: &'static [u8],
}

/// Returns true if the first bytes of a large message show that other commands are skipped with it.
pub(super) fn hides_commands(data: &[u8]) -> bool {
    match data.first_chunk::<4>() {
        Some(b"\xfeSMB") => u32_at(data, 20) != Some(0),
        Some(b"\xffSMB") => {
            let is_transfer = matches!(data.get(4), Some(0x2e | 0x2f));
            !is_transfer || data.get(HEADER_1 + 1) != Some(&0xff)
        }
        _ => false,
    }
}

/// Returns true if the first bytes that a large message writes look like a call.
pub(super) fn hides_calls(data: &[u8]) -> bool {
    let at = match data.first_chunk::<4>() {
        Some(b"\xfeSMB") if u16_at(data, 12) == Some(9) => u16_at(data, HEADER_2 + 2),
        Some(b"\xffSMB") if data.get(4) == Some(&0x2f) => u16_at(data, HEADER_1 + 1 + 22),
        _ => None,
    };
    let written = at.and_then(|at| data.get(at..)).unwrap_or_default();
    matches!(written, [5, 0 | 1, ..])
}
