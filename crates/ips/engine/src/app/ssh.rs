//! SSH (RFC 4253): the version lines, and the packets up to the change of keys.

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::parser::{Outcome, Parser};
use super::record::Record;
use super::transaction::{Progress, Transaction, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest size of a version line (RFC 4253, section 4.2, allows 255).
const BANNER_SIZE: usize = 512;
/// Largest size of a packet (RFC 4253, section 6.1, asks for at least 35,000).
const PACKET_SIZE: usize = 256 << 10;
/// Number of the message that changes the keys.
const NEW_KEYS: u8 = 21;
/// Number of the message with the algorithms (RFC 4253, section 7.1), and its largest size that is read.
const KEX_INIT: u8 = 20;
const KEX_INIT_SIZE: usize = 32 << 10;

/// Largest size of the text of HASSH in records, in bytes.
const HASSH_SIZE: usize = 2048;

/// The kinds of lines before the first packet (RFC 4253, section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// The line with the versions of protocol and software, which packets follow.
    Version,
    /// A line that a server sends before.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before the version line; a server may send other lines first.
    #[default]
    Banner,
    /// In the rest of a line that is too long.
    LongLine(LineKind),
    /// In plain packets.
    Packets,
    /// In the rest of a packet.
    Skip(usize),
    /// After the change of keys.
    Encrypted,
    Failed,
}

impl LineKind {
    /// Returns the state behind a line.
    fn next(self) -> State {
        match self {
            LineKind::Version => State::Packets,
            LineKind::Other => State::Banner,
        }
    }
}

#[derive(Debug, Default)]
struct Side {
    state: State,
    pending: Vec<u8>,
    /// True if the packet in progress changes the keys.
    changes_keys: bool,
    /// True once the algorithms were read.
    has_algorithms: bool,
    /// Offset in the stream of the first byte behind the change of keys.
    encrypted_from: Option<u64>,
}

heap!(Side { pending });

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Ssh {
    sides: [Side; 2],
    transaction: Option<u64>,
}

heap!(Ssh { sides });

impl Ssh {
    fn transaction<'a>(&mut self, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        if self.transaction.is_none() {
            let transaction = out.start(AppProtocol::Ssh);
            transaction.record = Record::Ssh(Box::default());
            self.transaction = Some(transaction.id);
        }
        self.transaction.and_then(|id| out.by_id(id))
    }

    /// Consumes bytes from the front of the pending ones and returns their number; 0 if the message is incomplete or the side has
    /// failed.
    fn step(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) -> usize {
        let side = &mut self.sides[direction.index()];
        match side.state {
            State::Failed => 0,
            State::Encrypted => data.len(),
            State::Skip(left) => {
                let size = left.min(data.len());
                side.state = if size < left {
                    State::Skip(left - size)
                } else if side.changes_keys {
                    State::Encrypted
                } else {
                    State::Packets
                };
                if side.state == State::Encrypted
                    && let Some(transaction) = self.transaction(out)
                {
                    transaction.advance(direction, Progress::Complete);
                }
                size
            }
            State::Banner => {
                let line = &data[..data.len().min(BANNER_SIZE + 1)];
                let end = line.iter().position(|&byte| byte == b'\n');
                let is_long = end.is_none();
                if is_long && data.len() <= BANNER_SIZE {
                    return 0;
                }
                let line = &data[..end.unwrap_or(BANNER_SIZE)];
                let text = line.strip_suffix(b"\r").unwrap_or(line);
                let kind = match text.starts_with(b"SSH-") {
                    true => LineKind::Version,
                    false => LineKind::Other,
                };
                side.state = match is_long {
                    true => State::LongLine(kind),
                    false => kind.next(),
                };
                if kind == LineKind::Version {
                    self.banner(direction, text, out);
                }
                if is_long && let Some(transaction) = self.transaction(out) {
                    transaction.raise("ssh.long_banner");
                }
                line.len() + usize::from(!is_long)
            }
            State::LongLine(kind) => match data.iter().position(|&byte| byte == b'\n') {
                Some(end) => {
                    side.state = kind.next();
                    end + 1
                }
                None => data.len(),
            },
            State::Packets => {
                let Some((header, _)) = data.split_first_chunk::<6>() else {
                    return 0;
                };
                let size = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
                if !(2..=PACKET_SIZE).contains(&size) {
                    self.fail(direction, out, "ssh.invalid_record");
                    return 0;
                }
                if header[5] == KEX_INIT && !side.has_algorithms && size <= KEX_INIT_SIZE {
                    let padding = usize::from(header[4]);
                    let Some(packet) = data.get(6..4 + size) else {
                        return 0;
                    };
                    side.has_algorithms = true;
                    let lists = &packet[..packet.len().saturating_sub(padding)];
                    self.algorithms(direction, lists, out);
                    return 4 + size;
                }
                side.changes_keys = header[5] == NEW_KEYS;
                side.state = State::Skip(size - 2);
                if header[5] == KEX_INIT
                    && size > KEX_INIT_SIZE
                    && let Some(transaction) = self.transaction(out)
                {
                    transaction.raise("ssh.long_kex_record");
                }
                header.len()
            }
        }
    }

    /// Publishes the fingerprint of the algorithms, as HASSH defines it: those for key exchange, and those for encryption,
    /// authentication and compression in the direction of the sender.
    fn algorithms(&mut self, direction: Direction, lists: &[u8], out: &mut Transactions) {
        /// Size of the cookie before the lists.
        const COOKIE: usize = 16;
        let mut rest = lists.get(COOKIE..).unwrap_or_default();
        let mut names: Vec<&[u8]> = Vec::new();
        while names.len() < 8 {
            let Some((size, tail)) = rest.split_first_chunk::<4>() else {
                return;
            };
            let Some((list, tail)) = tail.split_at_checked(u32::from_be_bytes(*size) as usize) else {
                return;
            };
            names.push(list);
            rest = tail;
        }
        let side = match direction {
            Direction::ToServer => [0, 2, 4, 6],
            Direction::ToClient => [0, 3, 5, 7],
        };
        let text = side.map(|at| names[at]).join(&b';');
        let hash = super::tls::md5_text(&text);
        let (hash_buffer, text_buffer) = match direction {
            Direction::ToServer => (Buffer::SshHassh, Buffer::SshHasshString),
            Direction::ToClient => (Buffer::SshHasshServer, Buffer::SshHasshServerString),
        };
        if let Some(transaction) = self.transaction(out) {
            if let Record::Ssh(record) = &mut transaction.record {
                let shown = text[..text.len().min(HASSH_SIZE)].to_vec();
                record.hassh[direction.index()] = Some((hash.as_bytes().to_vec(), shown));
            }
            transaction.publish(hash_buffer, direction, hash.as_bytes());
            transaction.publish(text_buffer, direction, text);
        }
    }

    fn fail(&mut self, direction: Direction, out: &mut Transactions, event: &'static str) {
        if let Some(transaction) = self.transaction(out) {
            transaction.raise(event);
        }
        self.sides[direction.index()] = Side {
            state: State::Failed,
            ..Side::default()
        };
    }

    /// Publishes "SSH-protocol-software comments".
    fn banner(&mut self, direction: Direction, text: &[u8], out: &mut Transactions) {
        let body = &text[4..];
        let Some(transaction) = self.transaction(out) else {
            return;
        };
        let Some(dash) = body.iter().position(|&byte| byte == b'-') else {
            transaction.raise("ssh.invalid_banner");
            return;
        };
        let protocol = &body[..dash];
        let software = body[dash + 1..]
            .split(|&byte| byte == b' ')
            .next()
            .unwrap_or_default();
        transaction.publish(Buffer::SshProto, direction, protocol);
        if !software.is_empty() {
            transaction.publish(Buffer::SshSoftware, direction, software);
        }
        transaction.advance(direction, Progress::Headers);
        if let Record::Ssh(record) = &mut transaction.record {
            let versions = Some((protocol.to_vec(), software.to_vec()));
            match direction {
                Direction::ToServer => record.client = versions,
                Direction::ToClient => record.server = versions,
            }
        }
    }
}

impl Parser for Ssh {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = &mut self.sides[chunk.direction.index()];
        if chunk.gap_before > 0 && side.state != State::Encrypted {
            *side = Side {
                state: State::Failed,
                ..Side::default()
            };
        }
        if side.state == State::Failed {
            return Outcome::Continue;
        }
        let mut data = core::mem::take(&mut side.pending);
        let begin = chunk.offset.saturating_sub(data.len() as u64);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        loop {
            let before = self.sides[chunk.direction.index()].state;
            let size = self.step(chunk.direction, &data[at..], out);
            at += size;
            let side = &mut self.sides[chunk.direction.index()];
            let after = side.state;
            if after == State::Encrypted {
                side.encrypted_from.get_or_insert(begin + at as u64);
            }
            if size == 0 && before == after || after == State::Failed {
                break;
            }
        }
        data.drain(..at.min(data.len()));
        self.sides[chunk.direction.index()].pending = data;
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(direction, Progress::Complete);
        }
    }

    fn encrypted_from(&self) -> [Option<u64>; 2] {
        [0, 1].map(|side: usize| self.sides[side].encrypted_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8) -> Vec<u8> {
        vec![0, 0, 0, 12, 4, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn versions_are_found_and_encryption_begins_behind_the_new_keys() {
        for step in [1, 5, 1000] {
            let mut ssh = Ssh::default();
            let mut out = Transactions::default();
            for (direction, banner) in [
                (
                    Direction::ToClient,
                    &b"welcome\r\nSSH-2.0-OpenSSH_9.2 Debian\r\n"[..],
                ),
                (Direction::ToServer, b"SSH-1.99-PuTTY\n"),
            ] {
                let bytes = [banner, &packet(20), &packet(21), &[0xff; 50]].concat();
                for (number, bytes) in bytes.chunks(step).enumerate() {
                    let chunk = StreamChunk {
                        offset: (number * step) as u64,
                        ..StreamChunk::of(direction, bytes)
                    };
                    ssh.data(chunk, &mut out);
                }
            }
            let transaction = &out.list[0];
            assert_eq!(
                transaction.buffer(Buffer::SshSoftware, Direction::ToClient),
                Some(&b"OpenSSH_9.2"[..])
            );
            assert_eq!(
                transaction.buffer(Buffer::SshProto, Direction::ToServer),
                Some(&b"1.99"[..])
            );
            assert_eq!(ssh.encrypted_from(), [15 + 32, 37 + 32].map(Some));
            assert!(transaction.is_complete() && transaction.events.is_empty());
        }
    }

    #[test]
    fn a_version_line_that_is_too_long_is_cut_in_any_segmentation() {
        let line = [&b"SSH-2.0-attack "[..], &[b'x'; 1000], b"\r\n"].concat();
        let bytes = [&line, &packet(20)[..], &packet(21), &[0xff; 50]].concat();
        for step in [1, 500, 513, 600, 2000] {
            let (mut ssh, mut out) = (Ssh::default(), Transactions::default());
            for direction in Direction::BOTH {
                for bytes in bytes.chunks(step) {
                    ssh.data(StreamChunk::of(direction, bytes), &mut out);
                }
            }
            let transaction = &out.list[0];
            for direction in Direction::BOTH {
                assert_eq!(
                    transaction.buffer(Buffer::SshSoftware, direction),
                    Some(&b"attack"[..]),
                    "{step}"
                );
            }
            assert_eq!(transaction.events, ["ssh.long_banner"]);
            assert!(ssh.encrypted_from().iter().all(Option::is_some), "{step}");
        }
    }
}
