//! Messages that are too large to be kept: the bytes of the file that they write or read are passed on as they come.

use super::Smb;
use super::fields::{HEADER_1, HEADER_2, u16_at, u32_at, u64_at};
use super::transfer::{File, LargeTransfer, file_at};
use crate::app::transaction::Transactions;
use crate::flow::Direction;

impl Smb {
    /// Returns the file whose bytes a large message of `size` bytes carries, from the first bytes of the message.
    pub(super) fn large_transfer(
        &mut self,
        start: &[u8],
        size: usize,
        direction: Direction,
    ) -> Option<LargeTransfer> {
        let is_smb_2 = start.starts_with(b"\xfeSMB");
        let command = match is_smb_2 {
            true => u16_at(start, 12)?,
            false => usize::from(*start.get(4)?),
        };
        let words = HEADER_1 + 1;
        self.log.note(start, direction);
        let (read, before, left) = match (is_smb_2, command, direction) {
            (true, 9, Direction::ToServer) => {
                let at = (file_at(start, HEADER_2 + 16)?, u64_at(start, HEADER_2 + 8)?);
                (at, u16_at(start, HEADER_2 + 2)?, u32_at(start, HEADER_2 + 4)?)
            }
            (true, 8, Direction::ToClient) => {
                let at = self.files.read(u64_at(start, 24)?)?;
                (
                    at,
                    usize::from(*start.get(HEADER_2 + 2)?),
                    u32_at(start, HEADER_2 + 4)?,
                )
            }
            (false, 0x2f, Direction::ToServer) => {
                let at = (
                    File(u16_at(start, words + 4)? as u128),
                    u32_at(start, words + 6)? as u64,
                );
                let left = u16_at(start, words + 18)? << 16 | u16_at(start, words + 20)?;
                (at, u16_at(start, words + 22)?, left)
            }
            (false, 0x2e, Direction::ToClient) => {
                let at = self.files.read(u16_at(start, 30)? as u64)?;
                let left = u16_at(start, words + 14)? << 16 | u16_at(start, words + 10)?;
                (at, u16_at(start, words + 12)?, left)
            }
            _ => return None,
        };
        Some(LargeTransfer {
            before,
            left: left.min(size.checked_sub(before)?),
            file: read.0,
            offset: read.1,
            command: match (is_smb_2, direction) {
                (true, Direction::ToServer) => b"SMB2_COMMAND_WRITE",
                (true, Direction::ToClient) => b"SMB2_COMMAND_READ",
                (false, Direction::ToServer) => b"SMB1_COMMAND_WRITE_ANDX",
                (false, Direction::ToClient) => b"SMB1_COMMAND_READ_ANDX",
            },
        })
    }

    /// Passes the bytes of a file in a large message on.
    pub(super) fn skipped(&mut self, mut bytes: &[u8], direction: Direction, out: &mut Transactions) {
        let Some(large) = &mut self.large[direction.index()] else {
            return;
        };
        let before = large.before.min(bytes.len());
        large.before -= before;
        bytes = &bytes[before..];
        bytes = &bytes[..bytes.len().min(large.left)];
        large.left -= bytes.len();
        let (at, command) = ((large.file, large.offset), large.command);
        large.offset += bytes.len() as u64;
        self.files.transfer(at, bytes, direction, out);
        self.log_file(at.0, command, direction, out);
    }
}
