//! SMTP (RFC 5321): commands, replies, mails with their attachments, BDAT (RFC 3030), STARTTLS (RFC 3207).
//!
//! ```text
//!            DATA                     354                     CRLF . CRLF
//!  Command ───────▶ WaitData ───────────────────▶ Data ─────────────────────▶ Command
//!     │                  ╰─ other reply ─▶ Command  │
//!     ├─ BDAT n ─▶ Bdat ─ n bytes ─▶ Command        ╰─ . with a bare line feed: stays, until a reply says that it was the end
//!     ╰─ STARTTLS ─▶ WaitTls ─ 220 ─▶ TLS
//! ```
//!
//! In inline mode, bytes after DATA are parsed as a mail before the reply, and bytes after STARTTLS as
//! commands, because they are forwarded before the reply. The bytes are kept until the reply. If the reply
//! contradicts this, they are parsed again. Bytes after DATA are a mail or commands, as the server decides, so RFC 2920,
//! section 3.1 has the client wait for the reply: one that does not sends a mail with several readings.

mod ending;
mod pipeline;
mod record;
mod replies;

use millrace_ips_rules::buffers::Buffer;

use super::lines;
use super::mime::Mime;

use crate::app::heap::heap;
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{Record, SmtpRecord};
use crate::app::transaction::{Progress, SLICE, Transaction, Transactions};
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use pipeline::{Command, Pipeline};
use record::{CLIENT, update};

const SERVER: Direction = Direction::ToClient;

/// Largest number of bytes after DATA or STARTTLS that wait for the reply.
const DATA_WAIT: usize = 64 << 10;
/// Largest number of the client's bytes that one call parses behind a reply: those of an incomplete line and of a slice. More
/// are passed again slice by slice, because they may be thousands of messages.
const AT_ONCE: usize = lines::PIECE + SLICE;
/// Largest number of recipients of a mail that are inspected. The buffers of its attachments need room, too.
const RECIPIENTS: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Command,
    /// After DATA, until the server accepts or refuses it.
    WaitData,
    /// After STARTTLS.
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
    /// Number of the client's pending bytes that are parsed and kept until a reply decides about them.
    parsed: usize,
    /// Offset in the stream of the client's pending bytes.
    base: u64,
    waiting: Pipeline,
    transaction: Option<u64>,
    mime: Option<Mime>,
    /// The mail that begins with another DATA or BDAT after a full stop with a bare line feed. It is used if the
    /// server takes that full stop as the end of the first mail.
    smuggled: Option<Mime>,
    /// True after a full stop with a bare line feed.
    may_have_ended: bool,
    /// True if the last line of the mail ended with CRLF.
    follows_crlf: bool,
    /// The end of a chunk in the middle of a line, which the next chunk continues.
    partial: Vec<u8>,
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
    smuggled,
    partial,
    helo
});

/// Returns true for a byte that servers take as white space around commands.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\x0b' | b'\x0c' | b'\r')
}

/// Removes white space around a text.
fn trim(text: &[u8]) -> &[u8] {
    let start = text
        .iter()
        .position(|&byte| !is_space(byte))
        .unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|&byte| !is_space(byte))
        .map_or(start, |last| last + 1);
    &text[start..end]
}

/// Returns the argument of a command that begins with a word, in either case.
fn argument<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let text = trim(text);
    let head = text.get(..word.len())?;
    let tail = &text[word.len()..];
    let is_end = tail.first().is_none_or(|&byte| byte == b':' || is_space(byte));
    (is_end && head.eq_ignore_ascii_case(word)).then(|| trim(tail))
}

/// Returns an address of MAIL or RCPT: the text in angle brackets, or the first word.
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
            parsed: 0,
            base: 0,
            waiting: Pipeline::default(),
            transaction: None,
            mime: None,
            smuggled: None,
            may_have_ended: false,
            follows_crlf: false,
            partial: Vec::new(),
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
            if let Some(helo) = &self.helo {
                transaction.publish(Buffer::SmtpHelo, CLIENT, helo.as_slice());
            }
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

    /// Adds a command that waits for its reply. Without room for it, later replies decide about the wrong commands, so bytes
    /// may escape inspection. Of a connection whose replies are not seen, none decides.
    fn wait(&mut self, command: Command, out: &mut Transactions) {
        if !self.waiting.push(command) && (!self.settings.is_asymmetric || self.has_banner) {
            out.raise("smtp.too_many_commands");
            out.has_lost = true;
        }
    }

    /// Begins a mail that a full stop ends.
    fn begin_data(&mut self) {
        self.state = State::Data;
        self.is_in_line = false;
        self.follows_crlf = true;
        self.may_have_ended = false;
    }

    /// Ends the mail in progress.
    fn finish(&mut self, out: &mut Transactions, is_complete: bool) {
        let partial = core::mem::take(&mut self.partial);
        if !partial.is_empty() {
            self.write(&partial, b"\r\n", out);
        }
        (self.is_in_line, self.may_have_ended) = (false, false);
        let (mime, smuggled) = (self.mime.take(), self.smuggled.take());
        let Some(transaction) = self.transaction.take().and_then(|id| out.by_id(id)) else {
            return;
        };
        if let Some(mut mime) = mime {
            ending::publish(&mut mime, transaction, is_complete);
        }
        if let Some(mut mime) = smuggled {
            mime.end(transaction, is_complete);
            update(transaction, |record| {
                record.attachments.append(&mut mime.summary.attachments);
            });
        }
        transaction.advance(CLIENT, Progress::Complete);
        transaction.advance(SERVER, Progress::Complete);
    }

    /// Ends the mail in progress; bytes of the client are not parsed any more.
    fn fail(&mut self, out: &mut Transactions) {
        self.finish(out, false);
        self.state = State::Failed;
        // No later reply decides about earlier bytes.
        (self.parsed, self.base) = (0, u64::MAX);
    }

    /// Consumes pending bytes of the client from the front and returns their number. The number is also 0 if
    /// only the state changed.
    fn client(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        match self.state {
            State::Failed => 0,
            State::WaitTls if self.settings.is_inline && !data.is_empty() && !begins_tls(data) => {
                self.state = State::Command;
                0
            }
            State::WaitData | State::WaitTls if data.len() <= DATA_WAIT => 0,
            // If the client does not wait for the reply, the server is assumed to accept DATA, and to refuse STARTTLS.
            State::WaitData => {
                self.begin_data();
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
                        self.chunk_line(line.text, line.end, out);
                        line.size
                    }
                    None if room as u64 == left => {
                        let end: &[u8] = if is_last { b"\r\n" } else { b"" };
                        self.chunk_line(&data[..room], end, out);
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

    /// Passes a line of a chunk to the mail parser, or keeps the beginning of a line.
    fn chunk_line(&mut self, text: &[u8], end: &[u8], out: &mut Transactions) {
        if self.partial.is_empty() && !end.is_empty() {
            self.write(text, end, out);
            return;
        }
        self.partial.extend_from_slice(text);
        if !end.is_empty() || self.partial.len() >= lines::PIECE {
            let line = core::mem::take(&mut self.partial);
            self.write(&line, end, out);
        }
    }

    /// Passes a line of the mail to the mail parser.
    fn write(&mut self, text: &[u8], end: &[u8], out: &mut Transactions) {
        let settings = self.settings;
        if self.transaction(out).is_none() {
            return;
        }
        let mime = self
            .mime
            .get_or_insert_with(|| Mime::new(CLIENT).with_body(&self.settings));
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(CLIENT, Progress::Body);
            mime.line(text, end, transaction, &settings);
            if let Some(mime) = &mut self.smuggled {
                mime.line(text, end, transaction, &settings);
            }
        }
    }

    fn data_line(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        let Some(line) = lines::next(data) else { return 0 };
        let is_heard = self.has_banner || !self.settings.is_asymmetric;
        if is_heard && self.waiting.has_undecided_mail() {
            self.raise(out, "smtp.invalid_pipelined_sequence");
            if let Some(transaction) = self.transaction(out) {
                transaction.is_ambiguous = true;
            }
        }
        let begins = !core::mem::replace(&mut self.is_in_line, line.end.is_empty());
        let ends_crlf = line.end == b"\r\n";
        let is_crlf = core::mem::replace(&mut self.follows_crlf, ends_crlf) && ends_crlf;
        if begins && line.text == b"." && !line.end.is_empty() {
            if is_crlf || self.server_failed {
                self.state = State::Command;
                self.finish(out, true);
                self.wait(Command::Other, out);
            } else {
                self.bare_stop(line.end, out);
            }
            return line.size;
        }
        let text = if begins {
            line.text.strip_prefix(b".").unwrap_or(line.text)
        } else {
            line.text
        };
        self.write(text, line.end, out);
        if begins
            && self.may_have_ended
            && self.smuggled.is_none()
            && [&b"DATA"[..], b"BDAT"]
                .iter()
                .any(|word| argument(text, word).is_some())
        {
            self.smuggled = Some(Mime::new(CLIENT));
        }
        line.size
    }

    /// Handles a full stop next to a bare line feed. Some servers end the mail there; RFC 5321, section
    /// 4.1.1.4 does not. The mail continues until a reply shows that it has ended. Another DATA or BDAT meanwhile
    /// begins a second mail, which is inspected, too.
    fn bare_stop(&mut self, end: &[u8], out: &mut Transactions) {
        self.raise(out, "smtp.bare_line_feed_at_end_of_mail");
        self.may_have_ended = true;
        self.write(b".", end, out);
        if let Some(mut mime) = self.smuggled.take()
            && let Some(transaction) = self.transaction.and_then(|id| out.by_id(id))
        {
            mime.end(transaction, true);
        }
    }

    fn command(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        let Some(line) = lines::next(data) else { return 0 };
        if line.end.is_empty() {
            // The rest of a line that is too long is not a command.
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
        let behind = self.base + (self.parsed + line.size) as u64;
        let behind = self.settings.is_inline.then_some(behind);
        let mut command = Command::Other;
        if let Some(name) = argument(text, b"EHLO").or_else(|| argument(text, b"HELO")) {
            self.helo = Some(name.to_vec());
            let name = name.to_vec();
            if let Some(transaction) = self.transaction(out) {
                transaction.replace(Buffer::SmtpHelo, CLIENT, name.as_slice());
                update(transaction, |record| record.helo = Some(name));
            }
        } else if let Some(from) = argument(text, b"MAIL FROM") {
            let from = address(from);
            if let Some(transaction) = self.transaction(out) {
                transaction.replace(Buffer::SmtpMailFrom, CLIENT, from.as_slice());
                update(transaction, |record| record.mail_from = Some(from));
            }
        } else if let Some(to) = argument(text, b"RCPT TO") {
            let to = address(to);
            if let Some(transaction) = self.transaction(out) {
                let is_full =
                    matches!(&transaction.record, Record::Smtp(record) if record.rcpt_to.len() >= RECIPIENTS);
                if is_full {
                    transaction.raise("smtp.too_many_recipients");
                    transaction.exceeds_limits = true;
                } else {
                    transaction.publish(Buffer::SmtpRcptTo, CLIENT, to.as_slice());
                    update(transaction, |record| record.rcpt_to.push(to));
                }
            }
        } else if argument(text, b"DATA").is_some() {
            command = Command::Data(behind);
            match self.settings.is_inline {
                true => self.begin_data(),
                false => self.state = State::WaitData,
            }
        } else if let Some(size) = argument(text, b"BDAT") {
            command = Command::Bdat;
            self.bdat(size, out);
        } else if argument(text, b"STARTTLS").is_some() {
            command = Command::StartTls(behind);
            self.state = State::WaitTls;
        } else if argument(text, b"RSET").is_some() {
            self.finish(out, false);
        } else {
            self.transaction(out);
        }
        self.wait(command, out);
        line.size
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

    /// Parses the pending bytes of both directions. Returns those that must be passed again, in this order, if a reply lets more
    /// of the client's bytes be parsed than one call may parse.
    fn run(&mut self, out: &mut Transactions) -> Option<[Vec<u8>; 2]> {
        let [client, server] = [CLIENT, SERVER].map(|side| core::mem::take(&mut self.pending[side.index()]));
        let mut replied = 0;
        loop {
            loop {
                let before = self.state;
                let size = self.client(&client[self.parsed..], out);
                self.parsed += size;
                if size == 0 && self.state == before {
                    break;
                }
            }
            // A reply may decide how the bytes after its command are parsed, and the commands in those bytes
            // decide about the next reply.
            let Some(line) = lines::next(&server[replied..]) else {
                break;
            };
            replied += line.size;
            let before = (self.state, self.parsed);
            if line.end.is_empty() {
                self.raise(out, "smtp.max_reply_line_len_exceeded");
            } else {
                self.reply(line.text, &client, out);
            }
            if self.starts_tls {
                break;
            }
            if before != (self.state, self.parsed) && client.len() - self.parsed > AT_ONCE {
                self.put_back(client, server, replied);
                let rest = self.pending[CLIENT.index()].split_off(self.parsed);
                return Some([rest, core::mem::take(&mut self.pending[SERVER.index()])]);
            }
        }
        self.put_back(client, server, replied);
        None
    }

    /// Keeps the bytes that wait for more, or for a reply.
    fn put_back(&mut self, mut client: Vec<u8>, mut server: Vec<u8>, replied: usize) {
        server.drain(..replied);
        let undecided = self.waiting.first_undecided(self.base);
        let kept = undecided.and_then(|at| self.offset_of(at)).unwrap_or(self.parsed);
        let done = match self.parsed.saturating_sub(kept) {
            ..=DATA_WAIT if !self.starts_tls => kept.min(self.parsed),
            _ => self.parsed,
        };
        client.drain(..done);
        self.base += done as u64;
        self.parsed -= done;
        self.pending[CLIENT.index()] = client;
        self.pending[SERVER.index()] = server;
    }
}

/// Returns true if bytes may begin a TLS record.
fn begins_tls(data: &[u8]) -> bool {
    data.first() == Some(&0x16)
}

impl Parser for Smtp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        if chunk.gap_before > 0 {
            match chunk.direction {
                Direction::ToServer => self.fail(out),
                Direction::ToClient => {
                    self.server_failed = true;
                    self.waiting.clear();
                }
            }
            self.pending[side] = Vec::new();
        }
        if (chunk.direction == CLIENT && self.state == State::Failed)
            || (chunk.direction == SERVER && self.server_failed)
        {
            return Outcome::Continue;
        }
        self.pending[side].extend_from_slice(chunk.bytes);
        if let Some([client, server]) = self.run(out) {
            return Outcome::Paused {
                rest: [(CLIENT, client), (SERVER, server)],
            };
        }
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
                self.begin_data();
            }
            while let Some([client, server]) = self.run(out) {
                self.pending[CLIENT.index()].extend(client);
                self.pending[SERVER.index()].extend(server);
            }
            let rest = core::mem::take(&mut self.pending[CLIENT.index()]);
            let rest = &rest[core::mem::take(&mut self.parsed)..];
            if !rest.is_empty() {
                match self.state {
                    State::Data => self.write(rest, b"\r\n", out),
                    State::Bdat(..) => self.chunk_line(rest, b"\r\n", out),
                    _ => {}
                }
            }
            self.fail(out);
        }
    }
}
