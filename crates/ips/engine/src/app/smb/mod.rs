//! SMB 1 to 3 over NetBIOS sessions (MS-CIFS, MS-SMB2): tree connects, DCE/RPC in pipes, and files. The chained
//! commands of a message are parsed one by one.

pub(super) mod dcerpc;
mod fields;
mod files;
mod kerberos;
mod large;
mod log;
mod names;
mod ntlm;
mod pipes;
#[cfg(test)]
mod tests;
mod transfer;

pub use names::status_name;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::parser::{Outcome, Parser};
use super::record::{Record, SmbRecord};
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use fields::{HEADER_1, HEADER_2, narrow, slice, u16_at, u32_at, u64_at};
use files::Files;
use log::Log;
use pipes::Pipes;
use transfer::{File, LargeTransfer, Transfer, file_at, hides_calls, hides_commands};

/// Size of the header of a NetBIOS session message.
const SESSION_HEADER: usize = 4;
/// Largest size of a message that is kept. Of a larger one, the bytes of the file that it writes or reads are passed on as
/// they come, and the rest is skipped.
const MESSAGE_SIZE: usize = 256 << 10;
/// Number of first bytes of a larger message that show if other commands or calls are skipped with it.
const PREVIEW_SIZE: usize = 128;
/// Largest number of chained commands of a message of SMB 1; those that follow are lost.
const CHAINED: usize = 16;

/// The position in the chained commands of an SMB 2 message at which parsing has paused.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// Offset in the message of the next command.
    at: usize,
    /// The file of the command before it.
    related: Option<File>,
}

/// The parser of a connection.
#[derive(Debug)]
pub(super) struct Smb {
    pending: [Vec<u8>; 2],
    /// By direction: the position in the message in progress, if parsing has paused in it.
    chains: [Option<Chain>; 2],
    /// By direction: bytes of a message that is too large, which are still to be skipped.
    skip: [usize; 2],
    /// By direction: the file of that message.
    large: [Option<LargeTransfer>; 2],
    has_failed: [bool; 2],
    /// True if rules ask for the version of messages.
    notes_versions: bool,
    pipes: Pipes,
    files: Files,
    log: Log,
}

heap!(Smb {
    pending,
    pipes,
    files,
    log
});

impl Smb {
    pub(super) fn new(settings: AppSettings) -> Smb {
        Smb {
            pending: Default::default(),
            chains: [None; 2],
            skip: [0; 2],
            notes_versions: settings.asks.smb_versions,
            large: [None; 2],
            has_failed: [false; 2],
            pipes: Pipes::default(),
            files: Files::new(settings),
            log: Log::new(settings.keeps_records),
        }
    }

    /// Passes the bytes of a command on to calls and to the file: without the tree connect it is not known which they are.
    fn transfer(&mut self, transfer: &Transfer<'_>, direction: Direction, out: &mut Transactions) {
        let has_calls = self.pipes.transfer(transfer, direction, self.log.is_on, out);
        if let Some(offset) = transfer.offset
            && (!has_calls || self.files.is_open(transfer.file))
        {
            self.files
                .transfer((transfer.file, offset), transfer.data, direction, out);
            self.log_file(transfer.file, transfer.command, direction, out);
        }
    }

    /// Records the transaction of a file, if transactions become records.
    fn log_file(&self, file: File, command: &[u8], direction: Direction, out: &mut Transactions) {
        if self.log.is_on
            && let Some((id, name)) = self.files.transaction(file, direction)
        {
            self.log.file((id, name), file, command, direction, out);
        }
    }

    /// Parses a message of SMB 1 or 2 without its session header. Returns false if the transactions of its chained commands must
    /// be inspected before the others are parsed.
    fn message(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) -> bool {
        // The flags SMB_FLAGS_REPLY and SMB2_FLAGS_SERVER_TO_REDIR.
        let is_reply = match data.first_chunk::<4>() {
            Some(b"\xffSMB") => data.get(9).map(|flags| flags & 0x80 != 0),
            Some(b"\xfeSMB") => data.get(16).map(|flags| flags & 1 != 0),
            _ => None,
        };
        match (is_reply, direction) {
            (Some(true), Direction::ToServer) => out.raise("smb.response_to_server"),
            (Some(false), Direction::ToClient) => out.raise("smb.request_to_client"),
            _ => {}
        }
        let begun = out.begun();
        let is_whole = self.commands(data, direction, out);
        self.log.calls(begun, direction, out);
        if self.notes_versions {
            let version: u8 = if data.starts_with(b"\xffSMB") { 1 } else { 2 };
            for id in begun..out.begun() {
                if let Some(transaction) = out.by_id(id) {
                    transaction.number(NumberField::SmbVersion, direction, version);
                }
            }
        }
        is_whole
    }

    /// Parses the commands of a message. Returns false if parsing has paused.
    fn commands(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) -> bool {
        match data.first_chunk::<4>() {
            Some(b"\xffSMB") => {
                self.smb_1(data, direction, out);
            }
            Some(b"\xfeSMB") => {
                let mut chain = self.chains[direction.index()].take().unwrap_or_default();
                // Each chained command holds the offset of the next.
                loop {
                    let rest = data.get(chain.at..).unwrap_or_default();
                    let begun = out.begun();
                    self.log.note(rest, direction);
                    self.smb_2(rest, direction, &mut chain.related, out);
                    if self.log.is_on {
                        self.log_2(rest, direction, begun, out);
                    }
                    match u32_at(rest, 20) {
                        Some(next) if next >= HEADER_2 && rest.len() > next => chain.at += next,
                        _ => return true,
                    }
                    if out.is_full() {
                        self.chains[direction.index()] = Some(chain);
                        return false;
                    }
                }
            }
            // Encrypted and compressed messages.
            Some(b"\xfdSMB" | b"\xfcSMB") => {}
            _ => out.raise("smb.malformed_data"),
        }
        true
    }

    /// Records a command of SMB 2, which may answer a negotiation of SMB 1.
    fn log_2(&mut self, data: &[u8], direction: Direction, begun: u64, out: &mut Transactions) {
        let is_answer = direction == Direction::ToClient && u16_at(data, 12) == Some(0);
        if !is_answer || self.log.negotiated_2(data, out).is_none() {
            self.log.command_2(data, direction, begun, out);
        }
    }

    /// Parses the commands of a message of SMB 1. Each command holds the offset of the next (MS-CIFS, section
    /// 2.2.3.4).
    fn smb_1(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) -> Option<()> {
        let (mut command, mut at) = (*data.get(4)?, HEADER_1);
        for number in 0.. {
            if number == CHAINED {
                out.raise("smb.record_overflow");
                out.has_lost = true;
                break;
            }
            let begun = out.begun();
            self.log.note(data, direction);
            self.command_1(command, data, at + 1, direction, out);
            if self.log.is_on {
                self.log.command_1((command, at + 1), data, direction, begun, out);
            }
            let has_next = matches!(command, 0x24 | 0x2d..=0x2f | 0x73..=0x75 | 0xa2);
            let (next, offset) = (*data.get(at + 1)?, u16_at(data, at + 3)?);
            if !has_next || data[at] < 2 || next == 0xff || offset <= at {
                break;
            }
            (command, at) = (next, offset);
        }
        Some(())
    }

    /// Parses a command of SMB 1 whose parameters are at `words`.
    fn command_1(
        &mut self,
        command: u8,
        data: &[u8],
        words: usize,
        direction: Direction,
        out: &mut Transactions,
    ) -> Option<()> {
        let is_unicode = u16_at(data, 10)? & 0x8000 != 0;
        let message = u16_at(data, 30)? as u64;
        let tree = u16_at(data, 24)? as u32;
        let is_done = u32_at(data, 5)? == 0;
        let file_at = |at: usize| Some(File(u16_at(data, words + at)? as u128));
        let part = |offset: usize, size: usize| {
            slice(data, u16_at(data, words + offset)?, u16_at(data, words + size)?)
        };
        // The high half of an offset is there if the command has two more words (MS-CIFS, sections 2.2.4.42 and 2.2.4.43).
        let offset_at = |low: usize, high: usize, words_len: u8| {
            let high = match *data.get(words - 1)? >= words_len {
                true => u32_at(data, words + high)? as u64,
                false => 0,
            };
            Some(high << 32 | u32_at(data, words + low)? as u64)
        };
        let (file, offset, data, command) = match (command, direction) {
            // SESSION_SETUP_ANDX with extended security has 12 words (MS-SMB, section 2.2.4.6.1).
            (0x73, Direction::ToServer) if *data.get(words - 1)? == 12 => {
                let blob = slice(data, words + 24 + 2, u16_at(data, words + 14)?)?;
                return ntlm::session_setup(blob, b"SMB1_COMMAND_SESSION_SETUP_ANDX", direction, out);
            }
            (0x75, Direction::ToServer) => {
                let password = u16_at(data, words + 6)?;
                let mut at = words + 8 + 2 + password;
                let path = if is_unicode {
                    at += at & 1;
                    narrow(data.get(at..)?)
                } else {
                    data.get(at..)?.split(|&byte| byte == 0).next()?.to_vec()
                };
                let is_pipe = tree_connect(&path, b"SMB1_COMMAND_TREE_CONNECT_ANDX", direction, out);
                self.files.connects(message, is_pipe);
                return None;
            }
            (0x75, Direction::ToClient) => {
                self.files.connected(message, tree, is_done);
                return None;
            }
            // OPEN_ANDX and NT_CREATE_ANDX: the name follows the parameters and their byte count.
            (0x2d | 0xa2, Direction::ToServer) => {
                let mut at = words + 2 * usize::from(*data.get(words - 1)?) + 2;
                let name = if is_unicode {
                    at += at & 1;
                    narrow(data.get(at..)?)
                } else {
                    data.get(at..)?.split(|&byte| byte == 0).next()?.to_vec()
                };
                self.files.creates(message, tree, &name);
                return None;
            }
            (0x2d | 0xa2, Direction::ToClient) => {
                let file = file_at(if command == 0xa2 { 5 } else { 4 });
                self.files.created(message, file.filter(|_| is_done), out);
                return None;
            }
            (0x04, Direction::ToServer) => {
                self.pipes.closes(message, file_at(0)?);
                self.files.closes(message, file_at(0)?);
                return None;
            }
            (0x04, Direction::ToClient) => {
                self.pipes.answered(message, is_done);
                self.files.closed(message, is_done, out);
                return None;
            }
            (0x25, Direction::ToServer) => {
                // The second word of the setup is the pipe (MS-CIFS, section 2.2.5.6).
                let file = file_at(30).filter(|_| data.get(words + 26).is_some_and(|len| *len >= 2));
                let file = file.unwrap_or(File::UNKNOWN);
                self.pipes.reads(message, file);
                (file, None, part(24, 22)?, &b"SMB1_COMMAND_TRANS"[..])
            }
            (0x25, Direction::ToClient) => (
                self.pipes.read(message),
                None,
                part(14, 12)?,
                &b"SMB1_COMMAND_TRANS"[..],
            ),
            (0x2f, Direction::ToServer) => (
                file_at(4)?,
                offset_at(6, 24, 14),
                part(22, 20)?,
                &b"SMB1_COMMAND_WRITE_ANDX"[..],
            ),
            (0x2e, Direction::ToServer) => {
                self.pipes.reads(message, file_at(4)?);
                self.files
                    .reads(message, tree, file_at(4)?, offset_at(6, 20, 12)?);
                return None;
            }
            (0x2e, Direction::ToClient) => {
                let read = self.files.read(message);
                let pipe = self.pipes.read(message);
                let file = read.map_or(pipe, |(file, _)| file);
                let offset = read.map(|(_, offset)| offset);
                (file, offset, part(12, 10)?, &b"SMB1_COMMAND_READ_ANDX"[..])
            }
            _ => return None,
        };
        let offset = offset.filter(|_| direction == Direction::ToClient || !self.files.is_pipe_tree(tree));
        self.transfer(
            &Transfer {
                file,
                data,
                command,
                offset,
            },
            direction,
            out,
        );
        Some(())
    }

    /// Parses a command of SMB 2. `related` is the file of the previous command in the message.
    fn smb_2(
        &mut self,
        data: &[u8],
        direction: Direction,
        related: &mut Option<File>,
        out: &mut Transactions,
    ) -> Option<()> {
        const PENDING: usize = 0x103;
        let body = HEADER_2;
        let message = u64_at(data, 24)?;
        let is_pending = direction == Direction::ToClient && u32_at(data, 8)? == PENDING;
        let tree = u32_at(data, 36)? as u32;
        let is_done = u32_at(data, 8)? == 0;
        if is_pending {
            return None;
        }
        let mut file_at = |at: usize| {
            let file = file_at(data, body + at)?;
            // A related command uses the file of the previous command (MS-SMB2, section 3.3.5.2.7.2).
            let file = match file == File::RELATED {
                true => related.unwrap_or(File::created_by(message)),
                false => file,
            };
            *related = Some(file);
            Some(file)
        };
        let (file, offset, data, command) = match (u16_at(data, 12)?, direction) {
            (1, Direction::ToServer) => {
                let blob = slice(data, u16_at(data, body + 12)?, u16_at(data, body + 14)?)?;
                return ntlm::session_setup(blob, b"SMB2_COMMAND_SESSION_SETUP", direction, out);
            }
            (3, Direction::ToServer) => {
                let path = slice(data, u16_at(data, body + 4)?, u16_at(data, body + 6)?)?;
                let is_pipe = tree_connect(&narrow(path), b"SMB2_COMMAND_TREE_CONNECT", direction, out);
                self.files.connects(message, is_pipe);
                return None;
            }
            (3, Direction::ToClient) => {
                self.files.connected(message, tree, is_done);
                return None;
            }
            (5, Direction::ToServer) => {
                let name = slice(data, u16_at(data, body + 44)?, u16_at(data, body + 46)?)?;
                self.files.creates(message, tree, &narrow(name));
                *related = Some(File::created_by(message));
                return None;
            }
            (5, Direction::ToClient) => {
                let file = file_at(64).filter(|_| is_done);
                self.files.created(message, file, out);
                self.pipes.created(message, file);
                return None;
            }
            (6, Direction::ToServer) => {
                let file = file_at(8)?;
                self.pipes.closes(message, file);
                self.files.closes(message, file);
                return None;
            }
            (6, Direction::ToClient) => {
                self.pipes.answered(message, is_done);
                self.files.closed(message, is_done, out);
                return None;
            }
            (8, Direction::ToServer) => {
                let file = file_at(16)?;
                self.pipes.reads(message, file);
                self.files.reads(message, tree, file, u64_at(data, body + 8)?);
                return None;
            }
            (8, Direction::ToClient) => {
                let read = self.files.read(message);
                let pipe = self.pipes.read(message);
                (
                    read.map_or(pipe, |(file, _)| file),
                    read.map(|(_, offset)| offset),
                    slice(data, usize::from(*data.get(body + 2)?), u32_at(data, body + 4)?)?,
                    &b"SMB2_COMMAND_READ"[..],
                )
            }
            (9, Direction::ToServer) => (
                file_at(16)?,
                Some(u64_at(data, body + 8)?).filter(|_| !self.files.is_pipe_tree(tree)),
                slice(data, u16_at(data, body + 2)?, u32_at(data, body + 4)?)?,
                &b"SMB2_COMMAND_WRITE"[..],
            ),
            (11, Direction::ToServer) => (
                file_at(8)?,
                None,
                slice(data, u32_at(data, body + 24)?, u32_at(data, body + 28)?)?,
                &b"SMB2_COMMAND_IOCTL"[..],
            ),
            (11, Direction::ToClient) => (
                file_at(8)?,
                None,
                slice(data, u32_at(data, body + 32)?, u32_at(data, body + 36)?)?,
                &b"SMB2_COMMAND_IOCTL"[..],
            ),
            _ => return None,
        };
        self.transfer(
            &Transfer {
                file,
                data,
                command,
                offset,
            },
            direction,
            out,
        );
        Some(())
    }

    /// Notes that bytes belong to a file or a command that is no longer known. Of a connection whose answers are not seen, the
    /// end of none is known.
    fn note_lost(&mut self, out: &mut Transactions) {
        let has_lost = self.files.take_lost() | self.pipes.take_lost();
        out.has_lost |= has_lost && !self.files.is_asymmetric();
    }
}

/// Adds the transaction of a tree connect. IPC$ is the share of the named pipes; returns true for it.
fn tree_connect(path: &[u8], command: &[u8], direction: Direction, out: &mut Transactions) -> bool {
    let transaction = out.start(AppProtocol::Smb);
    let is_pipe = path.len() >= 4 && path[path.len() - 4..].eq_ignore_ascii_case(b"IPC$");
    let buffer = if is_pipe {
        Buffer::SmbNamedPipe
    } else {
        Buffer::SmbShare
    };
    transaction.publish(buffer, direction, path);
    let mut record = SmbRecord {
        command: command.to_vec(),
        ..SmbRecord::default()
    };
    match is_pipe {
        true => {
            record.more.text("named_pipe", path);
        }
        false => record.share = Some(path.to_vec()),
    }
    transaction.record = Record::Smb(Box::new(record));
    transaction.advance(direction, Progress::Complete);
    transaction.advance(direction.reverse(), Progress::Complete);
    is_pipe
}

impl Parser for Smb {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        let lost = usize::try_from(chunk.gap_before).unwrap_or(usize::MAX);
        if lost > 0 {
            self.has_failed[side] |= lost > self.skip[side];
            self.skip[side] = self.skip[side].saturating_sub(lost);
            if let Some(large) = &mut self.large[side] {
                let before = large.before.min(lost);
                large.before -= before;
                let lost = large.left.min(lost - before);
                large.left -= lost;
                large.offset += lost as u64;
            }
        }
        if self.has_failed[side] {
            return if self.has_failed == [true; 2] {
                Outcome::Failed
            } else {
                Outcome::Continue
            };
        }
        let mut data = core::mem::take(&mut self.pending[side]);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        loop {
            let skipped = self.skip[side].min(data.len() - at);
            self.skip[side] -= skipped;
            self.skipped(&data[at..at + skipped], chunk.direction, out);
            at += skipped;
            let Some(&[kind, high, middle, low]) = data[at..].first_chunk::<SESSION_HEADER>() else {
                break;
            };
            let size = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if !matches!(kind, 0 | 0x81..=0x85) {
                self.has_failed[side] = true;
                out.raise("smb.malformed_data");
                break;
            }
            if size > MESSAGE_SIZE {
                // Larger messages usually write to a file; several commands in one are unusual.
                let Some(start) = data[at + SESSION_HEADER..].first_chunk::<PREVIEW_SIZE>() else {
                    break;
                };
                let start = *start;
                self.large[side] = self.large_transfer(&start, size, chunk.direction);
                let is_file = self.large[side].is_some_and(|large| self.files.is_open(large.file));
                let (has_commands, has_calls) = (hides_commands(&start), hides_calls(&start));
                if has_commands || has_calls {
                    out.raise("smb.record_overflow");
                    out.has_lost |= has_commands || !is_file;
                }
                self.skip[side] = size;
                at += SESSION_HEADER;
                continue;
            }
            let Some(body) = data.get(at + SESSION_HEADER..at + SESSION_HEADER + size) else {
                break;
            };
            if kind == 0 && !self.message(body, chunk.direction, out) {
                data.drain(..at);
                self.note_lost(out);
                return Outcome::Paused {
                    rest: [(chunk.direction, data), (chunk.direction, Vec::new())],
                };
            }
            at += SESSION_HEADER + size;
        }
        self.note_lost(out);
        self.pending[side] = if self.has_failed[side] {
            Vec::new()
        } else {
            // The bytes of an incomplete message stay where they are: a copy for each chunk would be slow if
            // they come one by one.
            data.drain(..at);
            data
        };
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        self.pending[direction.index()] = Vec::new();
        self.files.end_all(out);
    }
}
