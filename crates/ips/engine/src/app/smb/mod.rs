//! SMB 1 to 3 over NetBIOS sessions (MS-CIFS, MS-SMB2): tree connects, and DCE/RPC in pipes. The chained
//! commands of a message are parsed one by one.

pub(super) mod dcerpc;
mod pipes;

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::parser::{Outcome, Parser};
use super::record::{Record, SmbRecord};
use super::transaction::{Progress, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use pipes::{File, Pipes};

/// Size of the header of a NetBIOS session message.
const SESSION_HEADER: usize = 4;
/// Largest size of a message that is kept; the bytes of larger ones are skipped.
const MESSAGE_SIZE: usize = 256 << 10;
/// Number of first bytes of a larger message that show if other commands or calls are skipped with it.
const PREVIEW_SIZE: usize = 128;
/// Largest number of chained commands of a message of SMB 1.
const CHAINED: usize = 16;
/// Size of the header of SMB 1.
const HEADER_1: usize = 32;
/// Size of the header of SMB 2.
const HEADER_2: usize = 64;

/// Returns the little-endian number of two bytes at an offset.
fn u16_at(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..at + 2)?;
    Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

/// Returns the little-endian number of four bytes at an offset.
fn u32_at(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..at + 4)?;
    usize::try_from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).ok()
}

/// Returns the little-endian number of eight bytes at an offset.
fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// Returns the SMB 2 file identifier at an offset.
fn file_at(data: &[u8], at: usize) -> Option<File> {
    Some(File(u128::from_le_bytes(*data.get(at..)?.first_chunk()?)))
}

/// Returns the `size` bytes at `offset`, as a message gives both numbers; `None` if they exceed the data.
fn slice(data: &[u8], offset: usize, size: usize) -> Option<&[u8]> {
    data.get(offset..offset.checked_add(size)?)
}

/// Returns UTF-16 text as bytes; characters beyond ASCII become question marks.
fn narrow(text: &[u8]) -> Vec<u8> {
    let units = text
        .chunks_exact(2)
        .map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let narrowed = units
        .take_while(|&unit| unit != 0)
        .map(|unit| u8::try_from(unit).unwrap_or(b'?'));
    narrowed.collect()
}

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Smb {
    pending: [Vec<u8>; 2],
    /// By direction: bytes of a message that is too large, which are still to be skipped.
    skip: [usize; 2],
    has_failed: [bool; 2],
    pipes: Pipes,
}

heap!(Smb { pending, pipes });

/// The bytes that a command writes to a file or reads from it.
struct Transfer<'a> {
    file: File,
    data: &'a [u8],
    command: &'static [u8],
}

impl Smb {
    /// Parses a message of SMB 1 or 2 without its session header.
    fn message(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) {
        match data.first_chunk::<4>() {
            Some(b"\xffSMB") => {
                self.smb_1(data, direction, out);
            }
            Some(b"\xfeSMB") => {
                let mut rest = data;
                let mut related = None;
                // Each chained command holds the offset of the next.
                loop {
                    self.smb_2(rest, direction, &mut related, out);
                    match u32_at(rest, 20) {
                        Some(next) if next >= HEADER_2 && rest.len() > next => rest = &rest[next..],
                        _ => return,
                    }
                }
            }
            // Encrypted and compressed messages.
            Some(b"\xfdSMB" | b"\xfcSMB") => {}
            _ => out.raise("smb.malformed_data"),
        }
    }

    /// Parses the commands of a message of SMB 1. Each command holds the offset of the next (MS-CIFS, section
    /// 2.2.3.4).
    fn smb_1(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) -> Option<()> {
        let (mut command, mut at) = (*data.get(4)?, HEADER_1);
        for _ in 0..CHAINED {
            self.command_1(command, data, at + 1, direction, out);
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
        let file_at = |at: usize| Some(File(u16_at(data, words + at)? as u128));
        let part = |offset: usize, size: usize| {
            slice(data, u16_at(data, words + offset)?, u16_at(data, words + size)?)
        };
        let (file, data, command) = match (command, direction) {
            (0x75, Direction::ToServer) => {
                let password = u16_at(data, words + 6)?;
                let mut at = words + 8 + 2 + password;
                let path = if is_unicode {
                    at += at & 1;
                    narrow(data.get(at..)?)
                } else {
                    data.get(at..)?.split(|&byte| byte == 0).next()?.to_vec()
                };
                tree_connect(&path, b"SMB1_COMMAND_TREE_CONNECT_ANDX", direction, out);
                return None;
            }
            (0x04, Direction::ToServer) => {
                self.pipes.closes(message, file_at(0)?);
                return None;
            }
            (0x04, Direction::ToClient) => {
                self.pipes.answered(message, u32_at(data, 5)? == 0);
                return None;
            }
            (0x25, Direction::ToServer) => {
                // The second word of the setup is the pipe (MS-CIFS, section 2.2.5.6).
                let file = file_at(30).filter(|_| data.get(words + 26).is_some_and(|len| *len >= 2));
                let file = file.unwrap_or(File::UNKNOWN);
                self.pipes.reads(message, file);
                (file, part(24, 22)?, &b"SMB1_COMMAND_TRANS"[..])
            }
            (0x25, Direction::ToClient) => (
                self.pipes.read(message),
                part(14, 12)?,
                &b"SMB1_COMMAND_TRANS"[..],
            ),
            (0x2f, Direction::ToServer) => (file_at(4)?, part(22, 20)?, &b"SMB1_COMMAND_WRITE_ANDX"[..]),
            (0x2e, Direction::ToServer) => {
                self.pipes.reads(message, file_at(4)?);
                return None;
            }
            (0x2e, Direction::ToClient) => (
                self.pipes.read(message),
                part(12, 10)?,
                &b"SMB1_COMMAND_READ_ANDX"[..],
            ),
            _ => return None,
        };
        self.pipes
            .transfer(&Transfer { file, data, command }, direction, out);
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
        let (file, data, command) = match (u16_at(data, 12)?, direction) {
            (3, Direction::ToServer) => {
                let path = slice(data, u16_at(data, body + 4)?, u16_at(data, body + 6)?)?;
                tree_connect(&narrow(path), b"SMB2_COMMAND_TREE_CONNECT", direction, out);
                return None;
            }
            (6, Direction::ToServer) => {
                self.pipes.closes(message, file_at(8)?);
                return None;
            }
            (6, Direction::ToClient) => {
                self.pipes.answered(message, u32_at(data, 8)? == 0);
                return None;
            }
            (8, Direction::ToServer) => {
                self.pipes.reads(message, file_at(16)?);
                return None;
            }
            (8, Direction::ToClient) if !is_pending => (
                self.pipes.read(message),
                slice(data, usize::from(*data.get(body + 2)?), u32_at(data, body + 4)?)?,
                &b"SMB2_COMMAND_READ"[..],
            ),
            (9, Direction::ToServer) => (
                file_at(16)?,
                slice(data, u16_at(data, body + 2)?, u32_at(data, body + 4)?)?,
                &b"SMB2_COMMAND_WRITE"[..],
            ),
            (11, Direction::ToServer) => (
                file_at(8)?,
                slice(data, u32_at(data, body + 24)?, u32_at(data, body + 28)?)?,
                &b"SMB2_COMMAND_IOCTL"[..],
            ),
            (11, Direction::ToClient) => (
                file_at(8)?,
                slice(data, u32_at(data, body + 32)?, u32_at(data, body + 36)?)?,
                &b"SMB2_COMMAND_IOCTL"[..],
            ),
            _ => return None,
        };
        self.pipes
            .transfer(&Transfer { file, data, command }, direction, out);
        Some(())
    }
}

/// Returns true if the first bytes of a large message show that other commands or calls are skipped with it.
fn hides_commands(data: &[u8]) -> bool {
    let is_call = |at: Option<usize>| {
        let data = at.and_then(|at| data.get(at..)).unwrap_or_default();
        matches!(data, [5, 0 | 1, ..])
    };
    match data.first_chunk::<4>() {
        Some(b"\xfeSMB") => {
            let is_write = u16_at(data, 12) == Some(9);
            u32_at(data, 20) != Some(0) || is_write && is_call(u16_at(data, HEADER_2 + 2))
        }
        Some(b"\xffSMB") => {
            let is_write = data.get(4) == Some(&0x2f);
            let is_last = data.get(HEADER_1 + 1) == Some(&0xff);
            !is_write || !is_last || is_call(u16_at(data, HEADER_1 + 1 + 22))
        }
        _ => false,
    }
}

/// Adds the transaction of a tree connect. IPC$ is the share of the named pipes.
fn tree_connect(path: &[u8], command: &[u8], direction: Direction, out: &mut Transactions) {
    let transaction = out.start(AppProtocol::Smb);
    let is_pipe = path.len() >= 4 && path[path.len() - 4..].eq_ignore_ascii_case(b"IPC$");
    let buffer = if is_pipe {
        Buffer::SmbNamedPipe
    } else {
        Buffer::SmbShare
    };
    transaction.publish(buffer, direction, path);
    let record = SmbRecord {
        command: command.to_vec(),
        share: Some(path.to_vec()),
        ..SmbRecord::default()
    };
    transaction.record = Record::Smb(Box::new(record));
    transaction.advance(direction, Progress::Complete);
    transaction.advance(direction.reverse(), Progress::Complete);
}

impl Parser for Smb {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        let lost = usize::try_from(chunk.gap_before).unwrap_or(usize::MAX);
        if lost > 0 {
            self.has_failed[side] |= lost > self.skip[side];
            self.skip[side] = self.skip[side].saturating_sub(lost);
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
                if hides_commands(start) {
                    out.raise("smb.record_overflow");
                }
                self.skip[side] = size;
                at += SESSION_HEADER;
                continue;
            }
            let Some(body) = data.get(at + SESSION_HEADER..at + SESSION_HEADER + size) else {
                break;
            };
            if kind == 0 {
                self.message(body, chunk.direction, out);
            }
            at += SESSION_HEADER + size;
        }
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

    fn end(&mut self, direction: Direction, _out: &mut Transactions) {
        self.pending[direction.index()] = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::transaction::Transaction;

    fn session(body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0], &size[1..], body].concat()
    }

    /// Returns a command of SMB 2, padded to eight bytes if another follows.
    fn command(number: u16, body: &[u8], is_followed: bool) -> Vec<u8> {
        let mut out = vec![0; HEADER_2];
        out[..4].copy_from_slice(b"\xfeSMB");
        out[12..14].copy_from_slice(&number.to_le_bytes());
        out.extend_from_slice(body);
        if is_followed {
            out.resize(out.len().next_multiple_of(8), 0);
            let next = u32::try_from(out.len()).unwrap().to_le_bytes();
            out[20..24].copy_from_slice(&next);
        }
        out
    }

    fn tree(path: &str) -> Vec<u8> {
        let path: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let size = u16::try_from(path.len()).unwrap().to_le_bytes();
        [&[9, 0, 0, 0, 72, 0][..], &size, &path].concat()
    }

    fn write(data: &[u8]) -> Vec<u8> {
        write_to(0, data)
    }

    fn write_to(file: u8, data: &[u8]) -> Vec<u8> {
        let size = u32::try_from(data.len()).unwrap().to_le_bytes();
        let mut out = vec![49, 0, 112, 0];
        out.extend_from_slice(&size);
        out.resize(48, 0);
        out[16] = file;
        out.extend_from_slice(data);
        out
    }

    /// Returns the stub data of the calls in messages of the client, each with a command of SMB 2.
    fn stubs(writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (mut smb, mut out) = (Smb::default(), Transactions::default());
        for write in writes {
            let bytes = session(&command(9, write, false));
            smb.data(StreamChunk::of(Direction::ToServer, &bytes), &mut out);
        }
        let stub = |transaction: &Transaction| {
            let stub = transaction.buffer(Buffer::DceStubData, Direction::ToServer);
            stub.unwrap_or_default().to_vec()
        };
        out.list.iter().map(stub).collect()
    }

    #[test]
    fn a_call_that_is_cut_anywhere_into_two_writes_is_whole() {
        // The stub data look like another call.
        let inner = dcerpc::tests::message(0, 3, b"inner");
        let call = dcerpc::tests::message(0, 3, &[&b"stub "[..], &inner].concat());
        for at in 1..call.len() {
            let found = stubs(&[write(&call[..at]), write(&call[at..])]);
            assert!(found.contains(&call[24..].to_vec()), "{at}");
        }
    }

    #[test]
    fn calls_of_pipes_between_each_other_do_not_mix() {
        let call = |flags, stub: &[u8]| dcerpc::tests::message(0, flags, stub);
        let (first, second) = (call(1, b"one "), call(1, b"two "));
        let found = stubs(&[
            write_to(1, &first[..20]),
            write_to(2, &second),
            write_to(1, &first[20..]),
            write_to(2, &call(2, b"end")),
            write_to(1, &call(2, b"END")),
        ]);
        assert_eq!(found, [b"two end".to_vec(), b"one END".to_vec()]);
    }

    #[test]
    fn the_answers_of_pipes_are_those_of_their_calls() {
        let numbered = |number: u16, body: &[u8], message: u8| {
            let mut out = command(number, body, false);
            out[24] = message;
            session(&out)
        };
        let read = |file: u8| {
            let mut out = vec![0; 48];
            out[16] = file;
            out
        };
        let answer = |data: &[u8]| [&[17, 0, 80, 0, data.len() as u8, 0, 0, 0][..], &[0; 8], data].concat();
        let (request, response) = (
            dcerpc::tests::message(0, 3, b"call"),
            dcerpc::tests::message(2, 3, b"answer"),
        );
        let (up, down) = (Direction::ToServer, Direction::ToClient);
        let (mut smb, mut out) = (Smb::default(), Transactions::default());
        for (direction, bytes) in [
            (up, numbered(9, &write_to(1, &request), 1)),
            (up, numbered(9, &write_to(2, &request), 2)),
            (up, numbered(8, &read(1), 3)),
            (up, numbered(8, &read(2), 4)),
            (down, numbered(8, &answer(&response[..9]), 3)),
            (up, numbered(8, &read(1), 5)),
            (down, numbered(8, &answer(&response), 4)),
            (down, numbered(8, &answer(&response[9..]), 5)),
        ] {
            smb.data(StreamChunk::of(direction, &bytes), &mut out);
        }
        assert_eq!(out.list.len(), 2);
        for transaction in &out.list {
            assert_eq!(
                transaction.buffer(Buffer::DceStubData, down),
                Some(&b"answer"[..])
            );
        }
    }

    #[test]
    fn a_large_message_that_hides_commands_or_calls_is_an_event() {
        let large = |data: &[u8], next: u8| {
            let mut body = command(9, &write(data), false);
            body.resize(MESSAGE_SIZE + 1000, b'x');
            body[20] = next;
            let mut smb = Smb::default();
            let mut out = Transactions::default();
            for bytes in session(&body).chunks(100) {
                smb.data(StreamChunk::of(Direction::ToServer, bytes), &mut out);
            }
            out.events
        };
        assert_eq!(large(b"file", 0), [""; 0]);
        assert_eq!(large(b"file", 200), ["smb.record_overflow"]);
        assert_eq!(large(b"\x05\x00\x00\x03", 0), ["smb.record_overflow"]);
    }

    #[test]
    fn chained_and_split_commands_give_shares_pipes_and_stub_data() {
        let call = dcerpc::tests::message(0, 3, b"stub data");
        let bytes = [
            session(
                &[
                    command(3, &tree("\\\\host\\data"), true),
                    command(3, &tree("\\\\host\\IPC$"), false),
                ]
                .concat(),
            ),
            session(&command(9, &write(&call), false)),
        ]
        .concat();
        for step in [1, 5, 4096] {
            let mut smb = Smb::default();
            let mut out = Transactions::default();
            for bytes in bytes.chunks(step) {
                let chunk = StreamChunk::of(Direction::ToServer, bytes);
                smb.data(chunk, &mut out);
            }
            let first = |index: usize, buffer| out.list[index].buffer(buffer, Direction::ToServer);
            assert_eq!(
                first(0, Buffer::SmbShare),
                Some(&b"\\\\host\\data"[..]),
                "in steps of {step}"
            );
            assert_eq!(first(1, Buffer::SmbNamedPipe), Some(&b"\\\\host\\IPC$"[..]));
            assert_eq!(first(2, Buffer::DceStubData), Some(&b"stub data"[..]));
        }
    }

    #[test]
    fn a_file_with_bytes_like_a_call_does_not_hide_the_calls_behind_it() {
        let call = dcerpc::tests::message(0, 3, b"stub data");
        let mut too_short = call.clone();
        too_short[8] = 4;
        let cut = &dcerpc::tests::message(0, 3, &[0; 1000])[..40];
        for bait in [&too_short[..], cut] {
            let mut smb = Smb::default();
            let mut out = Transactions::default();
            for data in [bait, &call] {
                let bytes = session(&command(9, &write(data), false));
                let chunk = StreamChunk::of(Direction::ToServer, &bytes);
                smb.data(chunk, &mut out);
            }
            assert_eq!(out.list.len(), 1);
            assert_eq!(
                out.list[0].buffer(Buffer::DceStubData, Direction::ToServer),
                Some(&b"stub data"[..])
            );
        }
    }

    #[test]
    fn a_tree_connect_of_smb_1_gives_its_share() {
        let mut data = vec![0; HEADER_1];
        data[..5].copy_from_slice(b"\xffSMB\x75");
        data.extend_from_slice(&[4, 0xff, 0, 0, 0, 0, 0, 1, 0, 20, 0, 0]);
        data.extend_from_slice(b"\\\\HOST\\C$\0?????\0");
        let mut out = Transactions::default();
        Smb::default().message(&data, Direction::ToServer, &mut out);
        // The same after a session setup in one message.
        let connect = data.split_off(HEADER_1);
        data[4] = 0x73;
        data.extend_from_slice(&[13, 0x75, 0, HEADER_1 as u8 + 29, 0]);
        data.resize(HEADER_1 + 29, 0);
        data.extend_from_slice(&connect);
        Smb::default().message(&data, Direction::ToServer, &mut out);
        assert_eq!(
            out.list[1].buffer(Buffer::SmbShare, Direction::ToServer),
            Some(&b"\\\\HOST\\C$"[..])
        );
        assert_eq!(
            out.list[0].buffer(Buffer::SmbShare, Direction::ToServer),
            Some(&b"\\\\HOST\\C$"[..])
        );
    }
}
