//! FTP (RFC 959): commands and replies, AUTH TLS (RFC 4217), and the data connections that they announce.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use crate::app::AppProtocol;
use crate::app::expectation::{Expectation, extended_argument, port_argument};
use crate::app::file::NAME_SIZE;
use crate::app::heap::{Heap, heap};
use crate::app::mail::lines;
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{FtpRecord, Record};
use crate::app::transaction::{Progress, Transaction, Transactions};
use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

/// Largest number of commands without a reply; one more raises `ftp.too_many_commands`.
const COMMANDS: usize = 256;
/// Number of commands without a reply at which parsing ends with the next command.
const PIPELINE: usize = 4_096;
/// The values of `ftp.mode`.
const PASSIVE: u8 = 0;
const ACTIVE: u8 = 1;
/// Largest number of replies to a command that are kept.
const REPLIES: usize = 16;

/// The part of a command in the announcement of a data connection.
#[derive(Debug)]
enum Step {
    /// PASV, EPSV: the reply has the port.
    Passive,
    /// PORT, EPRT: the command has the port.
    Active,
    /// A transfer command that the client sent before the server's reply with the port.
    Transfer { is_download: bool, name: Vec<u8> },
}

impl Heap for Step {
    fn heap(&self) -> usize {
        match self {
            Step::Transfer { name, .. } => name.heap(),
            Step::Passive | Step::Active => 0,
        }
    }
}

/// A command that concerns a data connection, and waits for its reply.
#[derive(Debug)]
struct DataCommand {
    /// The number of the command, counted from the first command of the connection.
    number: u64,
    step: Step,
}

heap!(DataCommand { step });

/// The end that opens a data connection, and the port to which it is opened. The addresses are taken from the
/// control connection: addresses in commands and replies can be forged, or belong to another side of a NAT.
#[derive(Debug, Clone, Copy)]
struct DataPort {
    port: u16,
    is_passive: bool,
}

/// The parser of a control connection.
#[derive(Debug)]
pub(super) struct Ftp {
    key: FlowKey,
    pending: [Vec<u8>; 2],
    has_failed: [bool; 2],
    /// By direction: true while the rest of an overlong line is skipped.
    skips_line: [bool; 2],
    /// The numbers of the transactions of the commands that wait for a reply.
    waiting: VecDeque<u64>,
    /// The number of the first waiting command.
    answered: u64,
    /// The waiting commands that concern a data connection. They are not in `waiting`, so that a reply with a port costs the
    /// same however many commands wait.
    data_commands: VecDeque<DataCommand>,
    /// The next data connection.
    data: Option<DataPort>,
    expected: Vec<Expectation>,
    /// True once the server has greeted, or answered a command without greeting.
    has_greeting: bool,
    /// Code of the multi-line reply in progress.
    in_reply: Option<[u8; 3]>,
    starts_tls: bool,
}

heap!(Ftp {
    pending,
    waiting,
    data_commands,
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
            answered: 0,
            data_commands: VecDeque::new(),
            data: None,
            expected: Vec::new(),
            has_greeting: false,
            in_reply: None,
            starts_tls: false,
        }
    }

    fn command(&mut self, text: &[u8], is_cut: bool, out: &mut Transactions) {
        let text = text.trim_ascii();
        let size = text
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(text.len());
        let (command, argument) = (text[..size].to_ascii_uppercase(), text[size..].trim_ascii());
        if command.is_empty() {
            return;
        }
        match self.waiting.len() {
            COMMANDS => out.raise("ftp.too_many_commands"),
            PIPELINE.. => {
                // Replies cannot be assigned to commands any more. Data connections would pass uninspected, so this counts as a
                // failure of the parser.
                out.has_lost = true;
                self.has_failed = [true; 2];
                self.end(Direction::ToClient, out);
                return;
            }
            _ => {}
        }
        let active_port = match command.as_slice() {
            b"PORT" => port_argument(argument),
            b"EPRT" => extended_argument(argument),
            _ => None,
        };
        let transaction = out.start(AppProtocol::Ftp);
        transaction.advance(Direction::ToServer, Progress::Complete);
        transaction.publish(Buffer::FtpCommand, Direction::ToServer, command.as_slice());
        if !argument.is_empty() {
            transaction.publish(Buffer::FtpCommandData, Direction::ToServer, argument);
        }
        if let Some(port) = active_port {
            transaction.number(NumberField::FtpDynamicPort, Direction::ToServer, port);
            transaction.number(NumberField::FtpMode, Direction::ToServer, ACTIVE);
        }
        transaction.record = Record::Ftp(Box::new(FtpRecord {
            command: command.clone(),
            argument: argument.to_vec(),
            dynamic_port: active_port,
            is_command_cut: is_cut,
            ..FtpRecord::default()
        }));
        let id = transaction.id;
        let step = match command.as_slice() {
            b"PORT" | b"EPRT" => {
                self.data = active_port.map(|port| DataPort {
                    port,
                    is_passive: false,
                });
                Some(Step::Active)
            }
            b"PASV" | b"EPSV" => {
                self.data = None;
                Some(Step::Passive)
            }
            b"RETR" | b"STOR" | b"STOU" | b"APPE" => {
                let is_download = command == b"RETR";
                let name = &argument[..argument.len().min(NAME_SIZE)];
                match self.data.take() {
                    Some(data) => {
                        self.expect(data, is_download, name);
                        None
                    }
                    None => Some(Step::Transfer {
                        is_download,
                        name: name.to_vec(),
                    }),
                }
            }
            _ => None,
        };
        let number = self.answered + self.waiting.len() as u64;
        self.data_commands
            .extend(step.map(|step| DataCommand { number, step }));
        self.waiting.push_back(id);
    }

    /// Announces the data connection of a transfer.
    fn expect(&mut self, data: DataPort, is_download: bool, name: &[u8]) {
        let DataPort { port, is_passive } = data;
        // In active mode the FTP server opens the connection, so a file to the FTP client flows to the
        // "server" of the connection.
        let direction = if is_download == is_passive {
            Direction::ToClient
        } else {
            Direction::ToServer
        };
        let (client, server) = if is_passive {
            (self.key.client, self.key.server)
        } else {
            (self.key.server, self.key.client)
        };
        self.expected.push(Expectation {
            key: FlowKey {
                client,
                server,
                client_port: 0,
                server_port: port,
                ..self.key
            },
            protocol: AppProtocol::FtpData,
            file_name: name.to_vec(),
            direction,
            is_download,
        });
    }

    /// Records the port that the server opens for the oldest command. The first later command that concerns a
    /// data connection decides about the port: a transfer uses it, another announcement makes it void.
    /// Without such a command the port is kept.
    fn open_passive(&mut self, port: u16) {
        let data = DataPort {
            port,
            is_passive: true,
        };
        // At most the first element is the oldest command itself.
        let is_later = |command: &DataCommand| command.number > self.answered;
        let Some(at) = self.data_commands.iter().position(is_later) else {
            self.data = Some(data);
            return;
        };
        if matches!(self.data_commands[at].step, Step::Transfer { .. })
            && let Some(DataCommand { step, .. }) = self.data_commands.remove(at)
            && let Step::Transfer { is_download, name } = step
        {
            self.expect(data, is_download, &name);
        }
    }

    /// Removes the oldest waiting command, if there is one.
    fn pop_command(&mut self) {
        if self.waiting.pop_front().is_none() {
            return;
        }
        let first = self.data_commands.front();
        if first.is_some_and(|command| command.number == self.answered) {
            self.data_commands.pop_front();
        }
        self.answered += 1;
    }

    fn reply(&mut self, text: &[u8], is_cut: bool, out: &mut Transactions) {
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
        if !self.has_greeting
            && let Some(begun) = self.in_reply.or(code)
        {
            // A greeting answers no command, even if the client sent one before it.
            let is_greeting = matches!(&begun, b"120" | b"220" | b"421");
            self.has_greeting = !is_greeting || is_last && !is_preliminary;
            if is_greeting {
                if is_last {
                    self.in_reply = None;
                }
                return;
            }
        }
        let front = self.waiting.front().copied();
        let code = code.filter(|_| is_last);
        let passive = match code.as_ref().map(<[u8; 3]>::as_slice) {
            Some(b"227") => port_argument(&text[3..]),
            Some(b"229") => extended_argument(text),
            _ => None,
        };
        if let Some(transaction) = front.and_then(|id| out.by_id(id)) {
            note_reply(transaction, code, text, is_cut);
            if let Some(port) = passive {
                transaction.number(NumberField::FtpDynamicPort, Direction::ToClient, port);
                transaction.number(NumberField::FtpMode, Direction::ToClient, PASSIVE);
            }
            if is_last && !is_preliminary {
                transaction.number(NumberField::FtpReplyReceived, Direction::ToClient, 1u8);
                transaction.advance(Direction::ToClient, Progress::Complete);
            }
            let announced = passive.or(self.data.map(|data| data.port));
            if let Record::Ftp(record) = &mut transaction.record {
                self.starts_tls |= code == Some(*b"234") && record.command == b"AUTH";
                record.dynamic_port = announced.or(record.dynamic_port);
            }
        }
        if let Some(port) = passive.filter(|_| front.is_some()) {
            self.open_passive(port);
        }
        // The reply completes its command even if the transaction is no longer stored.
        if is_last && !is_preliminary {
            self.pop_command();
        }
        if is_last {
            self.in_reply = None;
        }
    }
}

fn note_reply(transaction: &mut Transaction, code: Option<[u8; 3]>, text: &[u8], is_cut: bool) {
    let reply = text.get(4..).unwrap_or_default();
    match &mut transaction.record {
        Record::Ftp(record) if record.replies.len() < REPLIES => {
            record.completion_codes.extend(code.map(|code| code.to_vec()));
            if !reply.is_empty() {
                record.replies.push(reply.to_vec());
            }
            record.is_reply_cut |= is_cut;
        }
        _ => return,
    }
    if !reply.is_empty() {
        transaction.publish(Buffer::FtpReply, Direction::ToClient, reply);
    }
    if let Some(code) = code {
        transaction.publish(Buffer::FtpCompletionCode, Direction::ToClient, &code[..]);
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
            if line.end.is_empty() && !is_rest {
                out.raise(match chunk.direction {
                    Direction::ToServer => "ftp.request_command_too_long",
                    Direction::ToClient => "ftp.response_command_too_long",
                });
            }
            match chunk.direction {
                _ if is_rest || self.has_failed[side] => {}
                Direction::ToServer => self.command(line.text, line.end.is_empty(), out),
                Direction::ToClient => self.reply(line.text, line.end.is_empty(), out),
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
            self.data_commands = VecDeque::new();
            for id in core::mem::take(&mut self.waiting) {
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
