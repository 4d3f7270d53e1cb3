//! SMB 1 to 3 over NetBIOS sessions (MS-CIFS, MS-SMB2): tree connects, and DCE/RPC in pipes. Chained commands of a
//! message are taken one by one.

pub(super) mod dcerpc;

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::parser::{Outcome, Parser};
use super::record::{Record, SmbRecord};
use super::transaction::{Progress, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use dcerpc::Calls;

/// Size of the header of a NetBIOS session message.
const SESSION_HEADER: usize = 4;
/// Largest size of a message that is kept; the bytes of larger ones are skipped.
const MESSAGE_SIZE: usize = 256 << 10;
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

/// Returns the bytes at an offset that a message gives.
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
    /// Bytes of a message that is too large.
    skip: [usize; 2],
    has_failed: [bool; 2],
    calls: Calls,
}

heap!(Smb { pending, calls });

impl Smb {
    /// Takes a message of SMB 1 or 2 without its session header.
    fn message(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) {
        match data.first_chunk::<4>() {
            Some(b"\xffSMB") => {
                self.smb_1(data, direction, out);
            }
            Some(b"\xfeSMB") => {
                let mut rest = data;
                // Each chained command says where the next begins.
                loop {
                    self.smb_2(rest, direction, out);
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

    fn smb_1(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) -> Option<()> {
        let command = *data.get(4)?;
        let words = HEADER_1 + 1;
        let is_unicode = u16_at(data, 10)? & 0x8000 != 0;
        let pipe_data = match (command, direction) {
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
                None
            }
            (0x25, Direction::ToServer) => slice(data, u16_at(data, words + 24)?, u16_at(data, words + 22)?),
            (0x25, Direction::ToClient) => slice(data, u16_at(data, words + 14)?, u16_at(data, words + 12)?),
            (0x2f, Direction::ToServer) => slice(data, u16_at(data, words + 22)?, u16_at(data, words + 20)?),
            (0x2e, Direction::ToClient) => slice(data, u16_at(data, words + 12)?, u16_at(data, words + 10)?),
            _ => None,
        };
        self.pipe(pipe_data?, direction, out);
        Some(())
    }

    fn smb_2(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) -> Option<()> {
        let body = HEADER_2;
        let pipe_data = match (u16_at(data, 12)?, direction) {
            (3, Direction::ToServer) => {
                let path = slice(data, u16_at(data, body + 4)?, u16_at(data, body + 6)?)?;
                tree_connect(&narrow(path), b"SMB2_COMMAND_TREE_CONNECT", direction, out);
                None
            }
            (9, Direction::ToServer) => slice(data, u16_at(data, body + 2)?, u32_at(data, body + 4)?),
            (8, Direction::ToClient) => {
                slice(data, usize::from(*data.get(body + 2)?), u32_at(data, body + 4)?)
            }
            (11, Direction::ToServer) => slice(data, u32_at(data, body + 24)?, u32_at(data, body + 28)?),
            (11, Direction::ToClient) => slice(data, u32_at(data, body + 32)?, u32_at(data, body + 36)?),
            _ => None,
        };
        self.pipe(pipe_data?, direction, out);
        Some(())
    }

    /// Takes the bytes that are written to or read from a file, which may be a pipe of DCE/RPC. Each write to a pipe begins
    /// a PDU, so an incomplete or invalid PDU, or a file that looks like one, does not affect the next write.
    fn pipe(&mut self, data: &[u8], direction: Direction, out: &mut Transactions) {
        if data.first() == Some(&5) && data.get(1).is_some_and(|minor| *minor <= 1) {
            self.calls.restart(direction);
            self.calls.data(data, direction, AppProtocol::Smb, out);
        }
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
            // Nothing is copied while a message is incomplete: its bytes may come one by one.
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
        let size = u32::try_from(data.len()).unwrap().to_le_bytes();
        let mut out = vec![49, 0, 112, 0];
        out.extend_from_slice(&size);
        out.resize(48, 0);
        out.extend_from_slice(data);
        out
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
        assert_eq!(
            out.list[0].buffer(Buffer::SmbShare, Direction::ToServer),
            Some(&b"\\\\HOST\\C$"[..])
        );
    }
}
