//! SMTP (RFC 5321): commands, replies, mails with their attachments, BDAT (RFC 3030), STARTTLS (RFC 3207).

use std::collections::VecDeque;

use super::lines;
use super::mime::Mime;
use crate::app::heap::{flat, heap};
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{Record, SmtpRecord};
use crate::app::transaction::{Progress, Transaction, Transactions};
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const CLIENT: Direction = Direction::ToServer;
const SERVER: Direction = Direction::ToClient;

/// Largest number of runs of commands that wait for replies. A run is one DATA or STARTTLS, or any number of other commands, so
/// that no reply is matched with a wrong command however many are pipelined (RFC 2920).
const RUNS: usize = 256;
/// Largest number of bytes behind DATA or STARTTLS that wait for the reply.
const DATA_WAIT: usize = 64 << 10;
/// Largest number of recipients that a record has.
const RECIPIENTS: usize = 256;

/// A command that waits for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Data,
    StartTls,
    Other,
}

flat!(Command);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Command,
    /// Behind DATA, until the server accepts or refuses it.
    WaitData,
    /// Behind STARTTLS.
    WaitTls,
    /// In a mail that ends with a line of one full stop.
    Data,
    /// In a chunk of BDAT with this many bytes left; true if it is the last.
    Bdat(u64, bool),
    Failed,
}

/// The parser of a connection.
#[derive(Debug)]
pub(in crate::app) struct Smtp {
    settings: AppSettings,
    state: State,
    pending: [Vec<u8>; 2],
    /// The commands that wait for replies: runs of equal commands with their lengths.
    waiting: VecDeque<(Command, u64)>,
    transaction: Option<u64>,
    mime: Option<Mime>,
    /// True if the last piece of data did not end its line.
    is_in_line: bool,
    helo: Option<Vec<u8>>,
    has_banner: bool,
    starts_tls: bool,
    server_failed: bool,
}

heap!(Smtp {
    pending,
    waiting,
    mime,
    helo
});

/// Returns the argument of a command that begins with a word, in either case.
fn argument<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let head = text.get(..word.len())?;
    let tail = &text[word.len()..];
    let is_word = head.eq_ignore_ascii_case(word) && matches!(tail.first(), None | Some(b' ' | b'\t' | b':'));
    is_word.then(|| tail.trim_ascii())
}

/// Returns an address of MAIL or RCPT: what stands in angle brackets, or the first word.
fn address(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b":").unwrap_or(text).trim_ascii();
    let end = match text.first() {
        Some(b'<') => text.iter().position(|&byte| byte == b'>').map(|end| end + 1),
        _ => text.iter().position(|&byte| byte == b' '),
    };
    text[..end.unwrap_or(text.len())].to_vec()
}

impl Smtp {
    pub(in crate::app) fn new(settings: AppSettings) -> Smtp {
        Smtp {
            settings,
            state: State::Command,
            pending: [Vec::new(), Vec::new()],
            waiting: VecDeque::new(),
            transaction: None,
            mime: None,
            is_in_line: false,
            helo: None,
            has_banner: false,
            starts_tls: false,
            server_failed: false,
        }
    }

    /// Returns the transaction of the mail in progress.
    fn transaction<'a>(&mut self, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        if self.transaction.is_none() {
            let transaction = out.start(AppProtocol::Smtp);
            transaction.record = Record::Smtp(Box::new(SmtpRecord {
                helo: self.helo.clone(),
                ..SmtpRecord::default()
            }));
            transaction.advance(CLIENT, Progress::Started);
            self.transaction = Some(transaction.id);
        }
        self.transaction.and_then(|id| out.by_id(id))
    }

    /// Returns the number of bytes that wait for more.
    #[cfg(test)]
    pub(super) fn pending_size(&self) -> usize {
        self.pending.iter().map(Vec::len).sum()
    }

    fn raise(&mut self, out: &mut Transactions, event: &'static str) {
        if let Some(transaction) = self.transaction(out) {
            transaction.raise(event);
        }
    }

    /// Ends the mail in progress.
    fn finish(&mut self, out: &mut Transactions, is_complete: bool) {
        let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) else {
            return;
        };
        if let Some(mut mime) = self.mime.take() {
            mime.end(transaction, is_complete);
            update(transaction, |record| {
                record.from = mime.summary.from;
                record.to = mime.summary.to;
                record.subject = mime.summary.subject;
                record.message_id = mime.summary.message_id;
                record.date = mime.summary.date;
                record.attachments = mime.summary.attachments;
            });
        }
        transaction.advance(CLIENT, Progress::Complete);
        transaction.advance(SERVER, Progress::Complete);
        self.transaction = None;
        self.is_in_line = false;
    }

    /// Consumes bytes of the client from the front of the pending ones; returns how many, 0 also if only the state changed.
    fn client(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        match self.state {
            State::Failed => 0,
            State::WaitData | State::WaitTls if data.len() <= DATA_WAIT => 0,
            // If the client does not wait for the reply, the server is assumed to accept DATA, and to refuse STARTTLS.
            State::WaitData => {
                self.state = State::Data;
                0
            }
            State::WaitTls => {
                self.state = State::Command;
                0
            }
            State::Command => self.command(data, out),
            State::Data => self.data_line(data, out),
            State::Bdat(left, is_last) => {
                // A chunk ends anywhere in a line; its last line may lack an end.
                let room = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                let size = match lines::next(&data[..room]) {
                    Some(line) => {
                        self.write(line.text, line.end, out);
                        line.size
                    }
                    None if room as u64 == left => {
                        self.write(&data[..room], if is_last { b"\r\n" } else { b"" }, out);
                        room
                    }
                    None => return 0,
                };
                let left = left - size as u64;
                self.state = State::Bdat(left, is_last);
                if left == 0 {
                    self.state = State::Command;
                    if is_last {
                        self.finish(out, true);
                    }
                }
                size
            }
        }
    }

    /// Hands a line of the mail on.
    fn write(&mut self, text: &[u8], end: &[u8], out: &mut Transactions) {
        let settings = self.settings;
        if self.transaction(out).is_none() {
            return;
        }
        let mime = self.mime.get_or_insert_with(|| Mime::new(CLIENT));
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(CLIENT, Progress::Body);
            mime.line(text, end, transaction, &settings);
        }
    }

    fn data_line(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        let Some(line) = lines::next(data) else { return 0 };
        let begins = !core::mem::replace(&mut self.is_in_line, line.end.is_empty());
        if begins && line.text == b"." && !line.end.is_empty() {
            self.state = State::Command;
            self.finish(out, true);
            return line.size;
        }
        let text = if begins {
            line.text.strip_prefix(b".").unwrap_or(line.text)
        } else {
            line.text
        };
        self.write(text, line.end, out);
        line.size
    }

    fn command(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        let Some(line) = lines::next(data) else { return 0 };
        if line.end.is_empty() {
            // The rest of a line that is too long is no command.
            self.raise(out, "smtp.max_command_line_len_exceeded");
            self.is_in_line = true;
            return line.size;
        }
        if core::mem::take(&mut self.is_in_line) {
            return line.size;
        }
        let text = line.text;
        if !self.has_banner && !self.server_failed && self.waiting.is_empty() && self.helo.is_none() {
            self.raise(out, "smtp.no_server_welcome_message");
        }
        let mut command = Command::Other;
        if let Some(name) = argument(text, b"EHLO").or_else(|| argument(text, b"HELO")) {
            self.helo = Some(name.to_vec());
            let name = name.to_vec();
            if let Some(transaction) = self.transaction(out) {
                update(transaction, |record| record.helo = Some(name));
            }
        } else if let Some(from) = argument(text, b"MAIL FROM") {
            let from = address(from);
            if let Some(transaction) = self.transaction(out) {
                update(transaction, |record| record.mail_from = Some(from));
            }
        } else if let Some(to) = argument(text, b"RCPT TO") {
            let to = address(to);
            if let Some(transaction) = self.transaction(out) {
                update(transaction, |record| {
                    if record.rcpt_to.len() < RECIPIENTS {
                        record.rcpt_to.push(to);
                    }
                });
            }
        } else if argument(text, b"DATA").is_some() {
            command = Command::Data;
            self.state = State::WaitData;
        } else if let Some(size) = argument(text, b"BDAT") {
            self.bdat(size, out);
        } else if argument(text, b"STARTTLS").is_some() {
            command = Command::StartTls;
            self.state = State::WaitTls;
        } else if argument(text, b"RSET").is_some() {
            self.finish(out, false);
        } else {
            self.transaction(out);
        }
        self.wait(command);
        line.size
    }

    /// Notes that a command waits for its reply.
    fn wait(&mut self, command: Command) {
        if let Some((_, len)) = self.waiting.back_mut().filter(|(last, _)| *last == command) {
            *len += 1;
        } else if self.waiting.len() < RUNS {
            self.waiting.push_back((command, 1));
        }
    }

    /// Removes and returns the oldest command that waits for its reply.
    fn answered(&mut self) -> Option<Command> {
        let (command, len) = self.waiting.front_mut()?;
        let command = *command;
        *len -= 1;
        if *len == 0 {
            self.waiting.pop_front();
        }
        Some(command)
    }

    fn bdat(&mut self, argument: &[u8], out: &mut Transactions) {
        let mut words = argument
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let size = words
            .next()
            .and_then(|word| core::str::from_utf8(word).ok()?.parse::<u64>().ok());
        let is_last = words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case(b"LAST"));
        match size {
            Some(0) if is_last => self.finish(out, true),
            Some(size) if size > 0 => self.state = State::Bdat(size, is_last),
            Some(_) => {}
            None => self.raise(out, "smtp.bdat_chunk_len_exceeded"),
        }
    }

    fn reply(&mut self, text: &[u8], out: &mut Transactions) {
        let Some(code) = text
            .get(..3)
            .and_then(|code| core::str::from_utf8(code).ok()?.parse::<u16>().ok())
        else {
            self.raise(out, "smtp.invalid_reply");
            return;
        };
        if text.get(3) == Some(&b'-') {
            return;
        }
        if !core::mem::replace(&mut self.has_banner, true) && code == 220 {
            return;
        }
        let Some(command) = self.answered() else {
            self.raise(out, "smtp.unable_to_match_reply_with_request");
            return;
        };
        match command {
            Command::Data if self.state == State::WaitData => {
                if code == 354 {
                    self.state = State::Data;
                } else {
                    self.state = State::Command;
                    self.raise(out, "smtp.data_command_rejected");
                }
            }
            Command::StartTls if self.state == State::WaitTls => {
                if code == 220 {
                    if !self.pending[CLIENT.index()].is_empty() && !begins_tls(&self.pending[CLIENT.index()])
                    {
                        self.raise(out, "smtp.invalid_pipelined_sequence");
                    }
                    self.starts_tls = true;
                } else {
                    self.state = State::Command;
                    self.raise(out, "smtp.tls_rejected");
                }
            }
            _ => {}
        }
    }

    /// Goes on with what is pending in both directions.
    fn run(&mut self, out: &mut Transactions) {
        loop {
            let mut server = core::mem::take(&mut self.pending[SERVER.index()]);
            let mut at = 0;
            while !self.starts_tls
                && let Some(line) = lines::next(&server[at..])
            {
                at += line.size;
                if line.end.is_empty() {
                    self.raise(out, "smtp.max_reply_line_len_exceeded");
                } else {
                    self.reply(line.text, out);
                }
            }
            server.drain(..at);
            self.pending[SERVER.index()] = server;
            if self.starts_tls {
                return;
            }
            let mut client = core::mem::take(&mut self.pending[CLIENT.index()]);
            let mut at = 0;
            loop {
                let before = self.state;
                let size = self.client(&client[at..], out);
                at += size;
                if size == 0 && self.state == before {
                    break;
                }
            }
            client.drain(..at);
            self.pending[CLIENT.index()] = client;
            // A reply that came before its command was complete is matched now.
            if at == 0 || self.pending[SERVER.index()].is_empty() {
                return;
            }
            if lines::next(&self.pending[SERVER.index()]).is_none() {
                return;
            }
        }
    }
}

/// Returns true if bytes may begin a TLS record.
fn begins_tls(data: &[u8]) -> bool {
    data.first() == Some(&0x16)
}

/// Changes the record of a transaction.
fn update(transaction: &mut Transaction, change: impl FnOnce(&mut SmtpRecord)) {
    if let Record::Smtp(record) = &mut transaction.record {
        change(record);
    }
}

impl Parser for Smtp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        if chunk.gap_before > 0 {
            match chunk.direction {
                Direction::ToServer => {
                    self.finish(out, false);
                    self.state = State::Failed;
                }
                Direction::ToClient => self.server_failed = true,
            }
            self.pending[side] = Vec::new();
        }
        if (chunk.direction == CLIENT && self.state == State::Failed)
            || (chunk.direction == SERVER && self.server_failed)
        {
            return Outcome::Continue;
        }
        self.pending[side].extend_from_slice(chunk.bytes);
        self.run(out);
        if self.starts_tls {
            self.finish(out, false);
            return Outcome::Switch {
                rest: core::mem::take(&mut self.pending),
            };
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == CLIENT {
            if self.state == State::WaitData {
                self.state = State::Data;
            }
            self.run(out);
            if matches!(self.state, State::Data | State::Bdat(..)) {
                let rest = core::mem::take(&mut self.pending[CLIENT.index()]);
                if !rest.is_empty() {
                    self.write(&rest, b"\r\n", out);
                }
            }
            self.finish(out, false);
            self.state = State::Failed;
        }
    }
}
