//! POP3 (RFC 1939): commands and replies, the mails that RETR and TOP deliver, STLS (RFC 2595).
//!
//! ```text
//!  command ─▶ waiting ─▶ reply line ──+OK of RETR, TOP──▶ mail, up to a line of one full stop
//!                            │──+OK of LIST, UIDL, CAPA──▶ lines, up to the same
//!                            └──+OK of STLS──▶ TLS
//! ```
//!
//! A command and its reply are a transaction; the greeting is one without a command.

use std::collections::VecDeque;

use super::lines;
use super::retrieval::{Delivery, word};
use crate::app::framed::{self, fields};
use crate::app::heap::{Heap, flat, heap};
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{FIELD_LIST, FIELD_SIZE, Record, Value};
use crate::app::transaction::{Progress, Transaction, Transactions};
use crate::app::{AppEvent, AppProtocol, AppSettings};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const CLIENT: Direction = Direction::ToServer;
const SERVER: Direction = Direction::ToClient;

/// Largest number of commands that wait for a reply, each with a transaction; RFC 2449 allows pipelines.
const COMMANDS: usize = 256;
/// Number of commands without a reply at which parsing ends with the next command.
const PIPELINE: usize = 16_384;

/// The kinds of commands whose replies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    /// The reply is one line.
    Line,
    /// The reply continues with lines.
    Lines,
    /// The reply continues with a mail.
    Mail,
    /// The reply is one line, after which TLS begins.
    StartTls,
    /// The client sends lines until the server has decided (RFC 5034).
    Authenticate,
}

flat!(Command);

/// The state of the server's bytes.
#[derive(Debug)]
enum Reply {
    /// In the first line of a reply.
    Line,
    /// In further lines.
    Lines,
    /// In a mail.
    Mail(Box<Delivery>),
}

impl Heap for Reply {
    fn heap(&self) -> usize {
        match self {
            Reply::Line | Reply::Lines => 0,
            Reply::Mail(delivery) => delivery.heap(),
        }
    }
}

/// The parser of a connection.
#[derive(Debug)]
pub(in crate::app) struct Pop3 {
    settings: AppSettings,
    pending: [Vec<u8>; 2],
    /// Commands without a reply; those after the first [`COMMANDS`] get their transactions with the reply.
    waiting: VecDeque<(Command, Option<u64>)>,
    reply: Reply,
    /// The transaction of the reply in progress.
    current: Option<u64>,
    has_greeting: bool,
    starts_tls: bool,
    /// True if a direction lost bytes or sent lines that are too long.
    has_failed: [bool; 2],
}

heap!(Pop3 {
    pending,
    waiting,
    reply
});

impl Pop3 {
    pub(in crate::app) fn new(settings: AppSettings) -> Pop3 {
        Pop3 {
            settings,
            pending: Default::default(),
            waiting: VecDeque::new(),
            reply: Reply::Line,
            current: None,
            has_greeting: false,
            starts_tls: false,
            has_failed: [false; 2],
        }
    }

    /// Handles a command line.
    fn command(&mut self, text: &[u8], out: &mut Transactions) {
        if self.has_failed[CLIENT.index()] {
            return;
        }
        if self
            .waiting
            .back()
            .is_some_and(|(command, _)| *command == Command::Authenticate)
        {
            // A response to a challenge.
            return;
        }
        let (verb, argument) = word(text);
        let verb = verb.to_ascii_uppercase();
        let event = anomaly(&verb, argument);
        let command = match verb.as_slice() {
            b"RETR" | b"TOP" => Command::Mail,
            b"LIST" | b"UIDL" if argument.is_empty() => Command::Lines,
            b"CAPA" => Command::Lines,
            b"AUTH" if argument.is_empty() => Command::Lines,
            b"AUTH" => Command::Authenticate,
            b"STLS" => Command::StartTls,
            _ => Command::Line,
        };
        match self.waiting.len() {
            ..COMMANDS => {
                let id = Pop3::transaction(out);
                self.waiting.push_back((command, Some(id)));
                if let Some(transaction) = out.by_id(id) {
                    event.into_iter().for_each(|event| transaction.raise(event));
                    fields(transaction, |out| {
                        out.object("request", |out| {
                            out.text("command", &verb).texts("args", arguments(argument));
                        });
                    });
                }
                return;
            }
            COMMANDS => out.raise("pop3.too_many_commands"),
            PIPELINE.. => {
                // Replies cannot be assigned to commands any more. Mails would pass uninspected, so this counts as a failure of
                // the parser.
                out.has_lost = true;
                self.has_failed = [true; 2];
                self.end(Direction::ToClient, out);
                return;
            }
            _ => {}
        }
        self.waiting.push_back((command, None));
    }

    /// Begins the transaction of a command; returns its number.
    fn transaction(out: &mut Transactions) -> u64 {
        let transaction = out.start(AppProtocol::Pop3);
        transaction.advance(CLIENT, Progress::Complete);
        transaction.id
    }

    /// Handles the first line of a reply.
    fn reply(&mut self, text: &[u8], out: &mut Transactions) {
        let is_ok = text.len() >= 3 && text[..3].eq_ignore_ascii_case(b"+OK");
        if !core::mem::replace(&mut self.has_greeting, true) && self.waiting.is_empty() {
            let greeting = framed::message(AppProtocol::Pop3, SERVER, out);
            note_reply(greeting, is_ok, text);
            return;
        }
        if self
            .waiting
            .front()
            .is_some_and(|(command, _)| *command == Command::Authenticate)
            && text.starts_with(b"+")
            && !is_ok
        {
            // A challenge.
            return;
        }
        let Some((command, id)) = self.waiting.pop_front() else {
            out.raise("pop3.reply_without_command");
            return;
        };
        let id = id.unwrap_or_else(|| Pop3::transaction(out));
        self.current = Some(id);
        if let Some(transaction) = out.by_id(id) {
            transaction.advance(SERVER, Progress::Started);
            note_reply(transaction, is_ok, text);
        }
        match command {
            Command::Mail if is_ok => self.reply = Reply::Mail(Box::new(Delivery::new())),
            Command::Lines if is_ok => self.reply = Reply::Lines,
            Command::StartTls if is_ok => {
                self.complete(out);
                self.starts_tls = true;
            }
            _ => self.complete(out),
        }
    }

    /// Ends the reply in progress.
    fn complete(&mut self, out: &mut Transactions) {
        if let Some(transaction) = self.current.take().and_then(|id| out.by_id(id)) {
            transaction.advance(SERVER, Progress::Complete);
        }
        self.reply = Reply::Line;
    }

    /// Parses a line of the server, or a piece of a long line.
    fn server_line(&mut self, line: lines::Line<'_>, out: &mut Transactions) {
        let is_end = line.text == b"." && !line.end.is_empty();
        match &mut self.reply {
            Reply::Line => self.reply(line.text, out),
            Reply::Lines if is_end => self.complete(out),
            Reply::Lines => {
                if let Some(transaction) = self.current.and_then(|id| out.by_id(id)) {
                    add_line(transaction, line.text);
                }
            }
            Reply::Mail(delivery) => {
                let begins_line = !delivery.is_in_line();
                let transaction = self.current.and_then(|id| out.by_id(id));
                if is_end && begins_line {
                    if let (Some(transaction), Reply::Mail(delivery)) =
                        (transaction, core::mem::replace(&mut self.reply, Reply::Line))
                    {
                        delivery.end(transaction, true);
                    }
                    self.complete(out);
                    return;
                }
                let Some(transaction) = transaction else {
                    delivery.skip(line.end);
                    return;
                };
                // A full stop at the beginning is doubled (RFC 1939, section 3).
                let text = match line.text {
                    [b'.', rest @ ..] if begins_line => rest,
                    text => text,
                };
                transaction.advance(SERVER, Progress::Body);
                delivery.line(text, line.end, transaction, &self.settings);
            }
        }
    }

    fn step(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) -> usize {
        if self.starts_tls || self.has_failed[direction.index()] {
            return 0;
        }
        let Some(line) = lines::next(data) else {
            return 0;
        };
        match direction {
            CLIENT => self.command(line.text, out),
            SERVER => self.server_line(line, out),
        }
        line.size
    }

    /// Ends the reply in progress; a mail in it is incomplete.
    fn abandon(&mut self, out: &mut Transactions) {
        if let Reply::Mail(delivery) = core::mem::replace(&mut self.reply, Reply::Line)
            && let Some(transaction) = self.current.and_then(|id| out.by_id(id))
        {
            delivery.end(transaction, false);
        }
        self.complete(out);
    }
}

/// Returns the arguments of a command.
fn arguments(argument: &[u8]) -> impl Iterator<Item = &[u8]> {
    argument
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// The commands and their numbers of arguments (RFC 1939, section 11; RFC 2449, section 5; RFC 2595, section 4; RFC 5034, section 4).
const ARGUMENTS: &[(&[u8], core::ops::RangeInclusive<usize>)] = &[
    (b"APOP", 2..=2),
    (b"AUTH", 0..=2),
    (b"CAPA", 0..=0),
    (b"DELE", 1..=1),
    (b"LIST", 0..=1),
    (b"NOOP", 0..=0),
    // A password may contain blanks.
    (b"PASS", 1..=usize::MAX),
    (b"QUIT", 0..=0),
    (b"RETR", 1..=1),
    (b"RSET", 0..=0),
    (b"STAT", 0..=0),
    (b"STLS", 0..=0),
    (b"TOP", 2..=2),
    (b"UIDL", 0..=1),
    (b"USER", 1..=1),
    (b"UTF8", 0..=0),
];

/// Returns the anomaly of a command.
fn anomaly(verb: &[u8], argument: &[u8]) -> Option<AppEvent> {
    match ARGUMENTS.iter().find(|(known, _)| *known == verb) {
        None => Some("pop3.unknown_command"),
        Some((_, range)) if !range.contains(&arguments(argument).count()) => {
            Some("pop3.incorrect_argument_count")
        }
        Some(_) => None,
    }
}

/// Writes the first line of a reply into the record of its transaction.
fn note_reply(transaction: &mut Transaction, is_ok: bool, text: &[u8]) {
    let (status, header) = word(text);
    let status = status
        .strip_prefix(b"+")
        .or(status.strip_prefix(b"-"))
        .unwrap_or(status);
    fields(transaction, |out| {
        out.object("response", |out| {
            out.flag("success", is_ok).text("status", status);
            if !header.is_empty() {
                out.text("header", header);
            }
        });
    });
}

/// Adds a line to the reply in the record of a transaction.
fn add_line(transaction: &mut Transaction, line: &[u8]) {
    let Record::Fields(record) = &mut transaction.record else {
        return;
    };
    let Some(Value::Object(response)) = record.value("response") else {
        return;
    };
    let line = line[..line.len().min(FIELD_SIZE)].to_vec();
    match response.value("data") {
        Some(Value::Texts(lines)) if lines.len() < FIELD_LIST => lines.push(line),
        Some(_) => {}
        None => {
            response.texts("data", [&line[..]]);
        }
    }
}

impl Parser for Pop3 {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        if chunk.gap_before > 0 {
            self.has_failed[side] = true;
            self.pending[side].clear();
            if chunk.direction == SERVER {
                self.abandon(out);
            }
        }
        if self.has_failed[side] {
            return Outcome::Continue;
        }
        let mut data = core::mem::take(&mut self.pending[side]);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        loop {
            let size = self.step(chunk.direction, &data[at..], out);
            if size == 0 {
                break;
            }
            at += size;
        }
        data.drain(..at);
        // `lines::next` divides long lines into pieces, so no more than a piece waits.
        self.pending[side] = data;
        if self.starts_tls {
            return Outcome::Switch {
                rest: core::mem::take(&mut self.pending),
            };
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == SERVER {
            let rest = core::mem::take(&mut self.pending[SERVER.index()]);
            if let (Reply::Mail(delivery), Some(transaction)) =
                (&mut self.reply, self.current.and_then(|id| out.by_id(id)))
            {
                delivery.bytes(&rest, true, transaction, &self.settings);
            }
            self.abandon(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_ips_rules::buffers::Buffer;

    use super::*;
    use crate::app::mail::tests::MAIL;

    /// Returns the transactions of a conversation, whose messages come in pieces of `step` bytes.
    fn run(messages: &[(Direction, &[u8])], step: usize) -> (Transactions, Vec<Outcome>) {
        let (mut pop3, mut out) = (Pop3::new(AppSettings::default()), Transactions::default());
        let mut outcomes = Vec::new();
        for (direction, bytes) in messages {
            for bytes in bytes.chunks(step) {
                let chunk = StreamChunk::of(*direction, bytes);
                outcomes.push(pop3.data(chunk, &mut out));
            }
        }
        pop3.end(CLIENT, &mut out);
        pop3.end(SERVER, &mut out);
        (out, outcomes)
    }

    #[test]
    fn the_attachments_of_a_retrieved_mail_are_files() {
        let reply = [b"+OK 400 octets\r\n", MAIL, b".\r\n+OK\r\n"].concat();
        let messages: &[(Direction, &[u8])] = &[
            (SERVER, b"+OK ready\r\n"),
            (CLIENT, b"LIST\r\n"),
            (SERVER, b"+OK\r\n1 400\r\n.\r\n"),
            (CLIENT, b"RETR 1\r\nQUIT\r\n"),
            (SERVER, &reply),
        ];
        for step in [1, 7, 1000] {
            let (out, _) = run(messages, step);
            assert_eq!(out.list.len(), 4, "greeting, LIST, RETR, QUIT");
            assert!(out.list.iter().all(Transaction::is_complete));
            let Record::Fields(greeting) = &out.list[0].record else {
                panic!("no record");
            };
            let names: Vec<&str> = greeting.list.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, ["response"]);
            let mail = &out.list[2];
            let data: Vec<&[u8]> = mail
                .buffers(Buffer::FileData, SERVER)
                .map(|view| view.bytes)
                .collect();
            assert_eq!(data, [&b"MZABCDEFG"[..], b"a=bc\r\n."], "{step}");
            assert!(out.events.is_empty());
        }
    }

    #[test]
    fn a_mail_behind_many_commands_without_reply_is_a_file() {
        let commands = [b"NOOP\r\n".repeat(300), b"RETR 1\r\n".to_vec()].concat();
        let replies = [&b"+OK\r\n".repeat(301)[..], b"+OK 400 octets\r\n", MAIL, b".\r\n"].concat();
        let (out, _) = run(&[(CLIENT, &commands), (SERVER, &replies)], 1000);
        assert_eq!(out.events, ["pop3.too_many_commands"]);
        assert_eq!(out.list.len(), 301);
        assert!(out.list.iter().all(Transaction::is_complete));
        assert_eq!(out.list[300].buffers(Buffer::FileData, SERVER).count(), 2);
        for (commands, has_lost) in [(PIPELINE, false), (PIPELINE + 10, true)] {
            let (out, _) = run(&[(CLIENT, &b"NOOP\r\n".repeat(commands))], 60_000);
            assert_eq!((out.list.len(), out.has_lost), (COMMANDS, has_lost));
        }
    }

    #[test]
    fn a_mail_whose_transaction_is_not_kept_any_more_ends_at_its_full_stop() {
        let (mut pop3, mut out) = (Pop3::new(AppSettings::default()), Transactions::default());
        let mut feed = |direction, bytes: &[u8], out: &mut Transactions| {
            pop3.data(StreamChunk::of(direction, bytes), out);
        };
        feed(SERVER, b"+OK ready\r\n", &mut out);
        feed(CLIENT, b"RETR 1\r\nRETR 2\r\n", &mut out);
        feed(SERVER, b"+OK\r\nSubject: a\r\n", &mut out);
        // The greeting and the first mail.
        out.list.drain(..2);
        let long = [&[b'x'; 2 * lines::PIECE][..], b"\r\n.\r\n"].concat();
        feed(
            SERVER,
            &[&long[..], b"+OK\r\n", MAIL, b".\r\n"].concat(),
            &mut out,
        );
        assert_eq!(out.list[0].buffers(Buffer::FileData, SERVER).count(), 2);
        assert!(out.list[0].is_complete());
    }

    #[test]
    fn tls_begins_behind_the_reply_to_stls() {
        let messages: &[(Direction, &[u8])] = &[
            (SERVER, b"+OK ready\r\n"),
            (CLIENT, b"STLS\r\n"),
            (SERVER, b"+OK\r\n\x16\x03"),
        ];
        let (_, outcomes) = run(messages, 1000);
        let rest = [Vec::new(), b"\x16\x03".to_vec()];
        assert_eq!(outcomes.last(), Some(&Outcome::Switch { rest }));
        let (_, outcomes) = run(&[(CLIENT, b"STLS\r\n"), (SERVER, b"-ERR no\r\n")], 1000);
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Continue));
    }

    #[test]
    fn a_mail_that_is_cut_off_is_a_truncated_file() {
        let start = MAIL.windows(4).position(|window| window == b"TVpB").unwrap();
        let reply = [b"+OK\r\n", &MAIL[..start + 4]].concat();
        let (out, _) = run(&[(CLIENT, b"RETR 1\r\n"), (SERVER, &reply)], 5);
        let states: Vec<_> = out.list[0].files.iter().map(|file| file.state).collect();
        assert_eq!(states.last(), Some(&crate::app::file::FileState::Truncated));
    }
}
