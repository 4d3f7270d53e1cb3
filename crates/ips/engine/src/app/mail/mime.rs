//! Messages with MIME parts (RFC 5322, RFC 2045 to 2047): headers, nested parts, and attachments as files.
//!
//! ```text
//!  line ─▶ Headers ──empty line──▶ Body (decoded into a file, if the part has a name)
//!             ▲                       │
//!             └──── boundary ◀────────┘   multipart: boundaries form a stack; message/rfc822: headers again
//! ```
//!
//! A message/rfc822 with a name is a file, and its own parts with names are files, too. A message or a multipart that declares an
//! encoding is read as it is, and as declared ([`decoded`]).

mod body;
mod decoded;
mod headers;
mod part;
mod reading;
mod summary;

use millrace_ips_rules::buffers::Buffer;

use self::headers::{HEADERS_SIZE, Headers, begins, header};
use self::part::{ATTACHMENTS, Part, refuse_file};
pub(in crate::app) use self::reading::Mime;
use self::reading::{Decoded, Message, State};
pub(in crate::app) use self::summary::addresses;
use super::decode::{Decoder, Encoding};
use super::lines;
use crate::app::AppSettings;
use crate::app::parameter::{boundary_of, extended_parameter, has_words_behind, parameter};
use crate::app::record::MailStatus;
use crate::app::transaction::{AppEvent, Transaction};

/// Largest size of a line without its end (RFC 5322, section 2.1.1).
const LINE_SIZE: usize = 998;
/// Largest depth of nested parts.
const DEPTH: usize = 10;
/// Largest size of a boundary (RFC 2046, section 5.1.1, allows 70).
const BOUNDARY_SIZE: usize = 254;

/// Notes that a message is not read as declared, because too many are.
fn refuse_reading(transaction: &mut Transaction) {
    transaction.raise("smtp.mime_malformed_msg");
    transaction.exceeds_limits = true;
}

impl Mime {
    /// Looks at the body for rules that ask for its URLs or its digest.
    pub(in crate::app) fn with_body(mut self, settings: &AppSettings) -> Mime {
        self.body = settings.asks.mail_bodies.then(Box::default);
        self
    }

    /// Adds an anomaly of lines and headers.
    fn raise(&self, event: AppEvent, transaction: &mut Transaction) {
        if !self.is_guess {
            transaction.raise(event);
        }
    }

    /// Parses a line with its end; the end is empty if the line continues in the next call.
    pub(in crate::app) fn line(
        &mut self,
        text: &[u8],
        end: &[u8],
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        if !self.held.is_empty() {
            let whole = [&core::mem::take(&mut self.held), text].concat();
            return match whole.strip_suffix(b"\r") {
                Some(text) if end == b"\n" => self.line(text, b"\r\n", transaction, settings),
                _ => self.line(&whole, end, transaction, settings),
            };
        }
        if text.len() > LINE_SIZE {
            self.raise("smtp.mime_long_line", transaction);
        }
        let begins = !core::mem::replace(&mut self.is_in_line, end.is_empty());
        let is_boundary = begins && text.starts_with(b"--") && self.boundary(text, transaction);
        let is_empty = text.is_empty() && !end.is_empty();
        let is_code = begins
            && !is_empty
            && matches!(&self.state, State::Headers(headers) if headers.are_encoded(text));
        if !self.is_top
            && let Some(body) = &mut self.body
        {
            body.line(text, end, matches!(self.state, State::Text) && !is_boundary);
        }
        self.enclosing_lines(text, end, (begins, is_code), transaction, settings);
        if is_code {
            self.state = State::Text;
        }
        match &mut self.state {
            _ if is_boundary => {}
            State::Text => {}
            State::File(part) => part.line(text, end, transaction, settings),
            State::Headers(headers) => {
                if begins && is_empty {
                    let headers = core::mem::take(headers);
                    if headers.has_repeated {
                        self.raise("smtp.mime_malformed_msg", transaction);
                    }
                    self.end_headers(&headers.block, transaction, settings);
                    return;
                }
                headers.line(text, end, begins);
                let is_long = headers.size > HEADERS_SIZE;
                if begins && text.iter().take_while(|byte| **byte != b':').count() > LINE_SIZE {
                    self.raise("smtp.mime_long_header_name", transaction);
                }
                if is_long {
                    self.raise("smtp.mime_long_header_value", transaction);
                }
            }
        }
    }

    /// Passes a line to the messages around the part in progress. `is_code` is true if it shows that the innermost of them is
    /// encoded as declared.
    fn enclosing_lines(
        &mut self,
        text: &[u8],
        end: &[u8],
        (begins, is_code): (bool, bool),
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        let mut enclosing = core::mem::take(&mut self.enclosing);
        let mut rest = &mut enclosing[..];
        while let Some((message, inside)) = rest.split_first_mut() {
            if let Some(file) = &mut message.file {
                file.line(text, end, transaction, settings);
            }
            if let Some(decoded) = &mut message.decoded {
                if is_code && inside.is_empty() {
                    decoded.is_only(self.direction, self.is_guess);
                }
                if let Some(bytes) = decoded.decode(text, end) {
                    if decoded.is_same() {
                        let room = decoded.cost() - 1;
                        let mut other = self.copy(message.around, inside, room, transaction, settings);
                        other.is_in_line = !begins;
                        decoded.separate(other);
                    }
                    decoded.read(&bytes, transaction);
                }
            }
            rest = inside;
        }
        self.enclosing = enclosing;
    }

    /// Returns a parser in the same state of the message that has `around` boundaries, and the messages `inside`. Its files are copies.
    /// It may have `room` readings.
    fn copy(
        &self,
        around: usize,
        inside: &[Message],
        mut room: usize,
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) -> Mime {
        let direction = self.direction;
        let mut enclosing = Vec::new();
        for message in inside {
            let file = message.file.as_ref();
            let file = file.and_then(|file| file.copy(direction, transaction, settings));
            let decoded = message.decoded.as_ref().and_then(|decoded| {
                let Some(left) = room.checked_sub(decoded.cost()) else {
                    refuse_reading(transaction);
                    return None;
                };
                room = left;
                Some(decoded.copy(transaction))
            });
            enclosing.push(Message {
                file,
                around: message.around - around,
                decoded,
            });
        }
        let state = match &self.state {
            State::Headers(headers) => {
                let mut headers = headers.clone();
                headers.may_be_encoded &= !inside.is_empty();
                State::Headers(headers)
            }
            State::Text => State::Text,
            State::File(part) => {
                let copy = part.copy(direction, transaction, settings);
                copy.map_or(State::Text, State::File)
            }
        };
        Mime {
            state,
            boundaries: self.boundaries[around..].to_vec(),
            enclosing,
            readings: room,
            is_guess: true,
            is_top: false,
            is_in_line: self.is_in_line,
            held: self.held.clone(),
            ..Mime::new(direction)
        }
    }

    /// Parses the last line, without end, of a piece of the message, and ends the piece: the rest of the message may come
    /// with another transaction.
    pub(in crate::app) fn suspend(
        &mut self,
        text: &[u8],
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        let whole = [&core::mem::take(&mut self.held), text].concat();
        let text = &whole[..];
        let tail = text.strip_prefix(b"--");
        let may_be = |boundary: &Vec<u8>| {
            tail.is_some_and(|tail| tail.starts_with(boundary) || boundary.starts_with(tail))
        };
        let may_begin = text == b"-" || self.boundaries.iter().any(may_be);
        let is_begun = may_begin || matches!(self.state, State::Headers(_));
        let (text, rest) = match is_begun && !self.is_in_line && text.len() <= lines::PIECE {
            true => (&b""[..], text),
            false => text.split_at(text.len() - usize::from(text.ends_with(b"\r"))),
        };
        if !text.is_empty() {
            self.line(text, b"", transaction, settings);
        }
        self.held.extend_from_slice(rest);
        for message in &mut self.enclosing {
            if let Some(file) = &mut message.file {
                file.suspend(transaction, settings);
            }
            if let Some(decoded) = &mut message.decoded {
                decoded.suspend(transaction);
            }
        }
        if let State::File(part) = &mut self.state {
            part.suspend(transaction, settings);
        }
    }

    /// Continues the message with another piece, whose files belong to `transaction`.
    pub(in crate::app) fn resume(&mut self, transaction: &mut Transaction, settings: &AppSettings) {
        let direction = self.direction;
        for message in &mut self.enclosing {
            if let Some(file) = &mut message.file {
                file.resume(direction, transaction, settings);
            }
            if let Some(decoded) = &mut message.decoded {
                decoded.resume(transaction);
            }
        }
        if let State::File(part) = &mut self.state {
            part.resume(direction, transaction, settings);
        }
    }

    /// Returns the part of the message that was seen, before [`Mime::end`]. `is_complete` is true for a message whose end was
    /// seen.
    pub(in crate::app) fn status(&self, is_complete: bool) -> MailStatus {
        match &self.state {
            _ if is_complete => MailStatus::Complete,
            State::Headers(_) if self.is_top => MailStatus::InHeaders,
            State::Headers(_) | State::Text | State::File(_) => MailStatus::InBody,
        }
    }

    /// Ends the message.
    pub(in crate::app) fn end(&mut self, transaction: &mut Transaction, is_complete: bool) {
        if let State::Headers(headers) = &mut self.state
            && self.is_top
        {
            let headers = core::mem::take(headers);
            self.summarise(&headers.block);
        }
        self.close(0, transaction, is_complete);
        self.state = State::Text;
    }

    /// Ends the part in progress, and the messages around it that have at least `boundaries` boundaries around them.
    fn close(&mut self, boundaries: usize, transaction: &mut Transaction, is_complete: bool) {
        if let State::File(part) = &mut self.state {
            part.close(transaction, is_complete);
        }
        while let Some(message) = self.enclosing.pop_if(|message| message.around >= boundaries) {
            if let Some(decoded) = message.decoded {
                let (readings, attachments) = decoded.end(transaction, is_complete);
                self.readings += readings;
                let room = ATTACHMENTS.saturating_sub(self.summary.attachments.len());
                self.summary
                    .attachments
                    .extend(attachments.into_iter().take(room));
            }
            if let Some(mut file) = message.file {
                file.close(transaction, is_complete);
            }
        }
    }

    /// Handles a line that may be a boundary; returns true if it is one.
    fn boundary(&mut self, text: &[u8], transaction: &mut Transaction) -> bool {
        let tail = text[2..].trim_ascii_end();
        let is_end = |boundary: &Vec<u8>| {
            tail.strip_suffix(b"--")
                .is_some_and(|tail| tail == boundary.as_slice())
        };
        let found = self
            .boundaries
            .iter()
            .rposition(|boundary| tail == boundary.as_slice() || is_end(boundary));
        let Some(index) = found else { return false };
        self.close(index + 1, transaction, true);
        let is_last = tail != self.boundaries[index].as_slice();
        self.boundaries.truncate(if is_last { index } else { index + 1 });
        self.state = if is_last {
            State::Text
        } else {
            State::Headers(Headers::default())
        };
        true
    }

    fn summarise(&mut self, block: &[u8]) {
        self.is_top = false;
        self.summary.read(block);
    }

    fn end_headers(&mut self, block: &[u8], transaction: &mut Transaction, settings: &AppSettings) {
        if self.is_top {
            self.summarise(block);
        }
        let content_type = header(block, b"content-type").unwrap_or_default();
        let encoding = header(block, b"content-transfer-encoding").unwrap_or_default();
        let encoding = encoding.strip_prefix(b"\"").unwrap_or(&encoding);
        let encoding = if begins(encoding, b"base64") {
            Encoding::Base64
        } else if begins(encoding, b"quoted-printable") {
            Encoding::QuotedPrintable
        } else {
            Encoding::Identity
        };
        if begins(&content_type, b"multipart/") {
            self.state = State::Text;
            if has_words_behind(&content_type, b"boundary") {
                self.raise("smtp.mime_malformed_msg", transaction);
            }
            match boundary_of(&content_type).filter(|boundary| !boundary.is_empty()) {
                Some(boundary) if boundary.len() > BOUNDARY_SIZE => {
                    self.raise("smtp.mime_bound_too_long", transaction);
                }
                Some(boundary) if self.boundaries.len() < DEPTH => {
                    let boundary = boundary.trim_ascii_end().to_vec();
                    let start = Mime {
                        state: State::Text,
                        boundaries: vec![boundary.clone()],
                        is_top: false,
                        ..Mime::new(self.direction)
                    };
                    let decoded = self.reading(encoding, start, transaction, settings);
                    self.enclose(None, decoded);
                    self.boundaries.push(boundary);
                }
                _ => self.raise("smtp.mime_malformed_msg", transaction),
            }
            return;
        }
        let disposition = header(block, b"content-disposition").unwrap_or_default();
        let of = |find: fn(&[u8], &[u8]) -> Option<Vec<u8>>| {
            find(&disposition, b"filename").or_else(|| find(&content_type, b"name"))
        };
        // Recipients prefer the extended form (RFC 6266, section 4.3), if they support it.
        let (extended, plain) = (of(extended_parameter), of(parameter));
        let other = extended
            .as_ref()
            .and(plain.as_ref())
            .filter(|plain| Some(*plain) != extended.as_ref());
        let other = other.cloned();
        let name = extended.or(plain);
        let kind = content_type.split(|&byte| byte == b';').next();
        let kind = kind.unwrap_or_default().trim_ascii();
        // Messages of RFC 2046, RFC 6532 and RFC 1036.
        let is_message = begins(kind, b"message/rfc822")
            || kind.eq_ignore_ascii_case(b"message/global")
            || kind.eq_ignore_ascii_case(b"message/news");
        if is_message && self.boundaries.len() >= DEPTH {
            self.raise("smtp.mime_malformed_msg", transaction);
        }
        let is_message = is_message && self.boundaries.len() < DEPTH;
        if is_message && (name.is_none() || self.enclosing.len() >= DEPTH) {
            self.begin_message(None, encoding, transaction, settings);
            return;
        }
        let Some(name) = name else {
            self.state = State::Text;
            return;
        };
        if self.summary.attachments.len() >= ATTACHMENTS {
            refuse_file(transaction);
            self.state = State::Text;
            return;
        }
        transaction.publish(Buffer::FileName, self.direction, name.as_slice());
        if let Some(other) = other {
            transaction.publish(Buffer::FileName, self.direction, other);
        }
        let buffer = transaction.open(
            Buffer::FileData,
            None,
            self.direction,
            settings.attachment_minimum,
        );
        if buffer == usize::MAX {
            refuse_file(transaction);
            self.state = State::Text;
            return;
        }
        transaction.files.push(settings.file(self.direction, &name));
        self.summary.attachments.push(name.clone());
        let part = Part {
            name,
            decoder: Decoder::new(encoding),
            buffer,
            file: transaction.files.len() - 1,
            earlier: 0,
            overlap: Vec::new(),
            is_quiet: self.is_guess,
        };
        if !is_message {
            self.state = State::File(part);
            return;
        }
        // The file has the bytes as declared.
        self.begin_message(Some(part), encoding, transaction, settings);
    }

    /// Begins a message inside of this one.
    fn begin_message(
        &mut self,
        file: Option<Part>,
        encoding: Encoding,
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        let decoded = self.reading(encoding, Mime::new(self.direction), transaction, settings);
        self.state = State::Headers(match decoded {
            Some(_) => Headers::of_encoded_message(),
            None => Headers::default(),
        });
        self.enclose(file, decoded);
    }

    /// Returns the reading as declared of what begins, with the parser that reads it if it is the same nowhere; `None` if it
    /// declares no encoding.
    fn reading(
        &mut self,
        encoding: Encoding,
        start: Mime,
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) -> Option<Decoded> {
        if encoding == Encoding::Identity {
            return None;
        }
        if self.readings == 0 || self.enclosing.len() >= DEPTH {
            refuse_reading(transaction);
            return None;
        }
        let inside = (self.readings - 1) / 2;
        self.readings -= 1 + inside;
        Some(Decoded::new(encoding, inside, start, *settings))
    }

    /// Adds what begins to that around its parts, if it is a file or is read as declared.
    fn enclose(&mut self, file: Option<Part>, decoded: Option<Decoded>) {
        if file.is_some() || decoded.is_some() {
            let around = self.boundaries.len();
            self.enclosing.push(Message {
                file,
                around,
                decoded,
            });
        }
    }
}

#[cfg(test)]
mod tests;
