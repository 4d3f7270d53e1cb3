//! FTP (RFC 959): commands and replies, AUTH TLS (RFC 4217), and the data connections that they announce.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::expectation::{Expectation, extended_argument, port_argument};
use super::file::File;
use super::mail::lines;
use super::parser::{Outcome, Parser};
use super::record::{FtpRecord, Record};
use super::transaction::{Progress, Transaction, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

/// Largest number of commands that wait for their reply.
const COMMANDS: usize = 256;
/// Largest number of replies to a command that are kept.
const REPLIES: usize = 16;

/// The parser of a control connection.
#[derive(Debug)]
pub(super) struct Ftp {
    key: FlowKey,
    pending: [Vec<u8>; 2],
    has_failed: [bool; 2],
    /// True by direction in the rest of a line that is too long.
    skips_line: [bool; 2],
    waiting: VecDeque<u64>,
    /// Address and port of the next data connection, and true if the client opens it.
    data: Option<(core::net::IpAddr, u16, bool)>,
    expected: Vec<Expectation>,
    /// Code of the reply of several lines in progress.
    in_reply: Option<[u8; 3]>,
    starts_tls: bool,
}

heap!(Ftp {
    pending,
    waiting,
    expected
});

impl Ftp {
    pub(super) fn new(key: FlowKey) -> Ftp {
        Ftp {
            key,
            pending: [Vec::new(), Vec::new()],
            has_failed: [false; 2],
            skips_line: [false; 2],
            waiting: VecDeque::new(),
            data: None,
            expected: Vec::new(),
            in_reply: None,
            starts_tls: false,
        }
    }

    fn command(&mut self, text: &[u8], out: &mut Transactions) {
        let text = text.trim_ascii();
        let size = text
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(text.len());
        let (command, argument) = (text[..size].to_ascii_uppercase(), text[size..].trim_ascii());
        if command.is_empty() {
            return;
        }
        let transaction = out.start(AppProtocol::Ftp);
        transaction.advance(Direction::ToServer, Progress::Complete);
        transaction.record = Record::Ftp(Box::new(FtpRecord {
            command: command.clone(),
            argument: argument.to_vec(),
            ..FtpRecord::default()
        }));
        if self.waiting.len() >= COMMANDS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(transaction.id);
        match command.as_slice() {
            b"PORT" => self.data = port_argument(argument).map(|(address, port)| (address, port, false)),
            b"EPRT" => {
                let found = extended_argument(argument);
                self.data = found.map(|(address, port)| (address.unwrap_or(self.key.client), port, false));
            }
            b"RETR" | b"STOR" | b"STOU" | b"APPE" => self.expect(&command, argument),
            _ => {}
        }
    }

    /// Announces the data connection of a transfer.
    fn expect(&mut self, command: &[u8], name: &[u8]) {
        let Some((address, port, is_passive)) = self.data.take() else {
            return;
        };
        // In active mode the server opens the connection, so that a file to the client goes to its "server".
        let is_download = command == b"RETR";
        let direction = if is_download == is_passive {
            Direction::ToClient
        } else {
            Direction::ToServer
        };
        let client = if is_passive {
            self.key.client
        } else {
            self.key.server
        };
        self.expected.push(Expectation {
            server: address,
            port,
            client,
            protocol: AppProtocol::FtpData,
            file_name: name.to_vec(),
            direction,
        });
    }

    fn reply(&mut self, text: &[u8], out: &mut Transactions) {
        let code = text
            .first_chunk::<3>()
            .filter(|code| code.iter().all(u8::is_ascii_digit))
            .copied();
        let is_last = match (code, self.in_reply) {
            (Some(code), None) => {
                if text.get(3) == Some(&b'-') {
                    self.in_reply = Some(code);
                }
                self.in_reply.is_none()
            }
            (Some(code), Some(begun)) => code == begun && text.get(3) != Some(&b'-'),
            (None, _) => false,
        };
        let is_preliminary = code.is_some_and(|code| code[0] == b'1');
        if let Some(transaction) = self.waiting.front().and_then(|&id| out.by_id(id)) {
            let code = code.filter(|_| is_last);
            note_reply(transaction, code, text);
            if is_last && !is_preliminary {
                transaction.advance(Direction::ToClient, Progress::Complete);
            }
            let command = match &transaction.record {
                Record::Ftp(record) => record.command.clone(),
                _ => Vec::new(),
            };
            match code.as_ref().map(<[u8; 3]>::as_slice) {
                Some(b"227") => {
                    self.data = port_argument(&text[3..]).map(|(address, port)| (address, port, true));
                }
                Some(b"229") => {
                    let found = extended_argument(text);
                    self.data = found.map(|(address, port)| (address.unwrap_or(self.key.server), port, true));
                }
                Some(b"234") if command == b"AUTH" => self.starts_tls = true,
                _ => {}
            }
            if let Some((_, port, _)) = self.data
                && let Record::Ftp(record) = &mut transaction.record
            {
                record.dynamic_port = Some(port);
            }
            // A greeting answers no command.
            if is_last && !is_preliminary {
                self.waiting.pop_front();
            }
        }
        if is_last {
            self.in_reply = None;
        }
    }
}

fn note_reply(transaction: &mut Transaction, code: Option<[u8; 3]>, text: &[u8]) {
    let Record::Ftp(record) = &mut transaction.record else {
        return;
    };
    if record.replies.len() < REPLIES {
        record.completion_codes.extend(code.map(|code| code.to_vec()));
        record.replies.push(text.get(4..).unwrap_or_default().to_vec());
    }
}

impl Parser for Ftp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        self.has_failed[side] |= chunk.gap_before > 0;
        if self.has_failed[side] {
            return Outcome::Continue;
        }
        let mut data = core::mem::take(&mut self.pending[side]);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        while !self.starts_tls
            && let Some(line) = lines::next(&data[at..])
        {
            at += line.size;
            let is_rest = core::mem::replace(&mut self.skips_line[side], line.end.is_empty());
            match chunk.direction {
                _ if is_rest => {}
                Direction::ToServer => self.command(line.text, out),
                Direction::ToClient => self.reply(line.text, out),
            }
        }
        data.drain(..at);
        self.pending[side] = data;
        if self.starts_tls {
            return Outcome::Switch {
                rest: core::mem::take(&mut self.pending),
            };
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == Direction::ToClient {
            for id in self.waiting.drain(..) {
                if let Some(transaction) = out.by_id(id) {
                    transaction.advance(Direction::ToClient, Progress::Complete);
                }
            }
        }
    }

    fn expected(&mut self) -> Vec<Expectation> {
        core::mem::take(&mut self.expected)
    }
}

/// The parser of a data connection: one file.
#[derive(Debug)]
pub(super) struct FtpData {
    settings: AppSettings,
    name: Vec<u8>,
    direction: Direction,
    transaction: Option<(u64, usize)>,
}

heap!(FtpData { name });

impl FtpData {
    pub(super) fn new(name: Vec<u8>, direction: Direction, settings: AppSettings) -> FtpData {
        FtpData {
            settings,
            name,
            direction,
            transaction: None,
        }
    }
}

impl Parser for FtpData {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if chunk.direction != self.direction {
            return Outcome::Continue;
        }
        if self.transaction.is_none() {
            let transaction = out.start(AppProtocol::FtpData);
            transaction.advance(self.direction.reverse(), Progress::Complete);
            transaction.publish(Buffer::FileName, self.direction, self.name.as_slice());
            let buffer = transaction.open(Buffer::FileData, None, self.direction, 0);
            transaction
                .files
                .push(File::new(self.direction, &self.name, self.settings.hashes_files));
            self.transaction = Some((transaction.id, buffer));
        }
        let Some((id, buffer)) = self.transaction else {
            return Outcome::Continue;
        };
        let Some(transaction) = out.by_id(id) else {
            return Outcome::Failed;
        };
        transaction.advance(self.direction, Progress::Body);
        transaction.append(buffer, chunk.bytes, self.settings.attachment_limit);
        if let Some(file) = transaction.files.first_mut() {
            if chunk.gap_before > 0 {
                file.gap(chunk.gap_before);
            }
            file.update(chunk.bytes);
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        let Some((id, buffer)) = self.transaction.filter(|_| direction == self.direction) else {
            return;
        };
        if let Some(transaction) = out.by_id(id) {
            transaction.close(buffer);
            if let Some(file) = transaction.files.first_mut() {
                file.close(true);
            }
            transaction.advance(direction, Progress::Complete);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn key() -> FlowKey {
        FlowKey {
            client: CLIENT,
            server: SERVER,
            client_port: 40_000,
            server_port: 21,
            protocol: 6,
            vlans: [0; 3],
            tunnel_depth: 0,
        }
    }

    fn run(messages: &[(Direction, &[u8])], step: usize) -> (Transactions, Vec<Expectation>, Outcome) {
        let mut ftp = Ftp::new(key());
        let mut out = Transactions::default();
        let mut outcome = Outcome::Continue;
        for (direction, bytes) in messages {
            for bytes in bytes.chunks(step) {
                let chunk = StreamChunk::of(*direction, bytes);
                outcome = ftp.data(chunk, &mut out);
            }
        }
        let expected = ftp.expected();
        (out, expected, outcome)
    }

    #[test]
    fn a_passive_transfer_announces_its_connection() {
        for step in [1, 8, 1000] {
            let (out, expected, _) = run(
                &[
                    (Direction::ToClient, b"220-hello\r\n220 ready\r\n"),
                    (Direction::ToServer, b"PASV\r\n"),
                    (
                        Direction::ToClient,
                        b"227 Entering Passive Mode (192,0,2,2,4,1)\r\n",
                    ),
                    (Direction::ToServer, b"RETR dir/a.bin\r\n"),
                    (Direction::ToClient, b"150 opening\r\n226 done\r\n"),
                ],
                step,
            );
            assert_eq!(expected.len(), 1);
            assert_eq!(
                (expected[0].server, expected[0].port, expected[0].client),
                (SERVER, 0x0401, CLIENT)
            );
            assert_eq!(
                (expected[0].direction, expected[0].file_name.as_slice()),
                (Direction::ToClient, &b"dir/a.bin"[..])
            );
            let Record::Ftp(record) = &out.list[1].record else {
                panic!("an FTP record")
            };
            assert_eq!(record.completion_codes, [b"150", b"226"]);
            assert!(out.list[1].is_complete());
        }
    }

    #[test]
    fn an_active_upload_goes_to_the_opener() {
        let (_, expected, _) = run(
            &[
                (Direction::ToServer, b"PORT 192,0,2,1,4,2\r\n"),
                (Direction::ToServer, b"STOR x\r\n"),
            ],
            1000,
        );
        assert_eq!((expected[0].server, expected[0].client), (CLIENT, SERVER));
        assert_eq!(expected[0].direction, Direction::ToClient);
    }

    #[test]
    fn auth_tls_changes_the_protocol() {
        let (_, _, outcome) = run(
            &[
                (Direction::ToServer, b"AUTH TLS\r\n"),
                (Direction::ToClient, b"234 ok\r\n"),
            ],
            1000,
        );
        assert_eq!(
            outcome,
            Outcome::Switch {
                rest: [Vec::new(), Vec::new()]
            }
        );
    }

    #[test]
    fn a_data_connection_is_a_file() {
        let mut parser = FtpData::new(b"x".to_vec(), Direction::ToClient, AppSettings::default());
        let mut out = Transactions::default();
        for bytes in [&b"%PDF"[..], b"-1.4"] {
            let chunk = StreamChunk::of(Direction::ToClient, bytes);
            parser.data(chunk, &mut out);
        }
        parser.end(Direction::ToClient, &mut out);
        assert_eq!(
            out.list[0].buffer(Buffer::FileData, Direction::ToClient),
            Some(&b"%PDF-1.4"[..])
        );
        assert_eq!(out.list[0].files[0].magic, Some("PDF document"));
    }
}
