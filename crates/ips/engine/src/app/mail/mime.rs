//! Messages with MIME parts (RFC 5322, RFC 2045 to 2047): headers, nested parts, and attachments as files.
//!
//! ```text
//!  line ─▶ Headers ──empty line──▶ Body (decoded into a file, if the part has a name)
//!             ▲                       │
//!             └──── boundary ◀────────┘   multipart: boundaries form a stack; message/rfc822: headers again
//! ```
//!
//! A message/rfc822 with a name is a file, and its own parts with names are files, too.

use millrace_ips_rules::buffers::Buffer;

use super::decode::{Decoder, Encoding};
use super::lines;
use crate::app::AppSettings;
use crate::app::file::File;
use crate::app::heap::{Heap, heap};
use crate::app::parameter::{extended_parameter, parameter};
use crate::app::record::MailStatus;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// Largest size of a line without its end, and of one in base64 or quoted-printable (RFC 5322, section 2.1.1; RFC 2045, sections
/// 6.7 and 6.8).
const LINE_SIZE: usize = 998;
const ENCODED_LINE_SIZE: usize = 76;
/// Largest depth of nested parts.
const DEPTH: usize = 10;
/// Size of the headers of a part, in bytes, above which they are an anomaly; also the largest size of a
/// header that is kept.
const HEADERS_SIZE: usize = 64 << 10;
/// Largest size of a boundary (RFC 2046, section 5.1.1, allows 70).
const BOUNDARY_SIZE: usize = 254;
/// Largest number of attachments of a message. Also the number of files of a transaction at which no further piece of a
/// file is added to it.
const ATTACHMENTS: usize = 256;
/// Number of bytes at the end of a piece of a file that are inspected again with the next piece: a content may begin in
/// one piece and end in the next.
const OVERLAP: usize = 1024;

/// The headers of the message itself that records need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::app) struct Summary {
    pub(in crate::app) from: Option<Vec<u8>>,
    pub(in crate::app) to: Vec<Vec<u8>>,
    pub(in crate::app) subject: Option<Vec<u8>>,
    pub(in crate::app) message_id: Option<Vec<u8>>,
    pub(in crate::app) date: Option<Vec<u8>>,
    pub(in crate::app) attachments: Vec<Vec<u8>>,
}

heap!(Summary {
    from,
    to,
    subject,
    message_id,
    date,
    attachments
});

/// A part whose bytes are a file: its decoder, buffer and file.
#[derive(Debug)]
struct Part {
    name: Vec<u8>,
    decoder: Decoder,
    buffer: usize,
    file: usize,
    /// Number of bytes of the file in earlier pieces.
    earlier: u64,
    /// Between two pieces: the last bytes of the previous piece, at most [`OVERLAP`].
    overlap: Vec<u8>,
}

heap!(Part {
    name,
    decoder,
    overlap
});

/// Notes that a transaction has no room for a file.
fn refuse_file(transaction: &mut Transaction) {
    transaction.raise("smtp.mime_too_many_attachments");
    transaction.exceeds_limits = true;
}

impl Part {
    /// Adds a line to the file; `end` is empty if the line continues in the next call.
    fn line(&mut self, text: &[u8], end: &[u8], transaction: &mut Transaction, settings: &AppSettings) {
        if self.decoder.is_encoding() && text.len() > ENCODED_LINE_SIZE {
            transaction.raise("smtp.mime_long_enc_line");
        }
        let (bytes, problem) = self.decoder.line(text, end);
        if let Some(problem) = problem {
            transaction.raise(problem);
        }
        transaction.append(self.buffer, &bytes, settings.attachment_limit);
        if let Some(file) = transaction.files.get_mut(self.file) {
            file.update(&bytes);
        }
    }

    /// Ends the file in a transaction that has only a part of the file.
    fn suspend(&mut self, transaction: &mut Transaction, settings: &AppSettings) {
        let bytes = transaction.bytes(self.buffer);
        // The end of a longer piece is not in the buffer.
        if bytes.len() < settings.attachment_limit {
            self.overlap = bytes[bytes.len().saturating_sub(OVERLAP)..].to_vec();
        }
        transaction.close(self.buffer);
        if let Some(file) = transaction.files.get_mut(self.file) {
            self.earlier = file.size;
            file.close(false);
        }
    }

    /// Begins the next piece of the file in a transaction. If the transaction has too many files, the piece is stored
    /// in no buffer.
    fn resume(&mut self, direction: Direction, transaction: &mut Transaction, settings: &AppSettings) {
        let overlap = core::mem::take(&mut self.overlap);
        if transaction.files.len() >= ATTACHMENTS {
            refuse_file(transaction);
            (self.buffer, self.file) = (usize::MAX, usize::MAX);
            return;
        }
        transaction.publish(Buffer::FileName, direction, self.name.as_slice());
        self.buffer = transaction.open(Buffer::FileData, None, direction, settings.attachment_minimum);
        transaction.append(self.buffer, &overlap, settings.attachment_limit);
        let mut file = File::new(direction, &self.name, false);
        file.gap(self.earlier);
        transaction.files.push(file);
        self.file = transaction.files.len() - 1;
    }

    /// Ends the file.
    fn close(&mut self, transaction: &mut Transaction, is_complete: bool) {
        let rest = self.decoder.finish();
        transaction.append(self.buffer, &rest, usize::MAX);
        transaction.close(self.buffer);
        if let Some(file) = transaction.files.get_mut(self.file) {
            file.update(&rest);
            file.close(is_complete);
        }
    }
}

/// The headers that are kept, in lower case: the first ones decide how the part is parsed, the others are for records.
const NAMES: [&[u8]; 8] = [
    b"content-type",
    b"content-disposition",
    b"content-transfer-encoding",
    b"from",
    b"to",
    b"subject",
    b"message-id",
    b"date",
];
/// Number of the names that decide how the part is parsed.
const STRUCTURAL: usize = 3;

/// The headers of a message or part in progress.
#[derive(Debug, Default)]
struct Headers {
    /// The lines of the first header of each of [`NAMES`].
    block: Vec<u8>,
    /// Bytes of all headers.
    size: usize,
    /// Bytes of the kept header in progress, and of all that are kept for records only.
    current_size: usize,
    record_size: usize,
    /// The kept header to which the line in progress belongs, as an index of [`NAMES`].
    current: Option<usize>,
    has: [bool; NAMES.len()],
    /// True if these lines may be encoded, so that only a first line that is a header begins headers.
    may_be_encoded: bool,
}

heap!(Headers { block });

impl Headers {
    /// Returns the headers of a message whose encoding is declared as base64 or quoted-printable, which RFC 2046, section
    /// 5.2.1, does not allow: programs read it as declared, or as it is.
    fn of_encoded_message() -> Headers {
        Headers {
            may_be_encoded: true,
            ..Headers::default()
        }
    }

    /// Returns true if a first line shows that there are no headers, but an encoded message.
    fn are_encoded(&self, text: &[u8]) -> bool {
        let is_name = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
        let name = text.iter().take_while(|byte| is_name(byte)).count();
        let after = text[name..].trim_ascii_start();
        let is_header = name > 0 && after.first() == Some(&b':');
        self.may_be_encoded && self.size == 0 && !is_header
    }

    /// Adds a line that is not empty, or the rest of such a line; `begins` is true at the beginning of a
    /// line. Headers that decide how the part is parsed are kept, no matter how long the other headers are.
    fn line(&mut self, text: &[u8], end: &[u8], begins: bool) {
        let size = text.len() + end.len();
        self.size += size;
        if begins && !matches!(text.first(), Some(b' ' | b'\t')) {
            let name = text
                .split(|&byte| byte == b':')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            let known = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
            self.current = known.filter(|&index| !core::mem::replace(&mut self.has[index], true));
            self.current_size = 0;
            if self.current.is_some() && !self.block.is_empty() && !self.block.ends_with(b"\n") {
                self.block.push(b'\n');
            }
        }
        let Some(index) = self.current else { return };
        let known = if index < STRUCTURAL {
            &mut self.current_size
        } else {
            &mut self.record_size
        };
        if *known + size > HEADERS_SIZE {
            self.current = None;
            return;
        }
        *known += size;
        self.block.extend_from_slice(text);
        self.block.extend_from_slice(end);
    }
}

#[derive(Debug)]
enum State {
    /// The headers of the message or of a part.
    Headers(Headers),
    /// Bytes that belong to no file.
    Text,
    /// Bytes of a file.
    File(Part),
}

impl Heap for State {
    fn heap(&self) -> usize {
        match self {
            State::Headers(headers) => headers.heap(),
            State::Text => 0,
            State::File(part) => part.heap(),
        }
    }
}

/// A message in progress.
#[derive(Debug)]
pub(in crate::app) struct Mime {
    direction: Direction,
    state: State,
    boundaries: Vec<Vec<u8>>,
    /// The files around the part in progress, outermost first, each with the number of boundaries around it.
    enclosing: Vec<(Part, usize)>,
    is_top: bool,
    /// True if the last piece did not end its line.
    is_in_line: bool,
    /// The end of the last piece that is not parsed yet: an incomplete header line, or bytes that may begin a boundary
    /// or a line end.
    held: Vec<u8>,
    pub(in crate::app) summary: Summary,
}

heap!(Mime {
    state,
    boundaries,
    enclosing,
    held,
    summary
});

/// Returns the value of a header in a block of headers, with folded lines joined.
fn header(block: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut found: Option<Vec<u8>> = None;
    for line in block.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_folded = matches!(line.first(), Some(b' ' | b'\t'));
        match &mut found {
            Some(value) if is_folded => {
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
            }
            Some(_) => break,
            None => {
                let Some(colon) = line.iter().position(|&byte| byte == b':') else {
                    continue;
                };
                if line[..colon].trim_ascii().eq_ignore_ascii_case(name) {
                    found = Some(line[colon + 1..].trim_ascii().to_vec());
                }
            }
        }
    }
    found
}

/// Returns true if a header value begins with a text in either case.
fn begins(value: &[u8], text: &[u8]) -> bool {
    value.len() >= text.len() && value[..text.len()].eq_ignore_ascii_case(text)
}

impl Mime {
    pub(in crate::app) fn new(direction: Direction) -> Mime {
        Mime {
            direction,
            state: State::Headers(Headers::default()),
            boundaries: Vec::new(),
            enclosing: Vec::new(),
            is_top: true,
            is_in_line: false,
            held: Vec::new(),
            summary: Summary::default(),
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
            transaction.raise("smtp.mime_long_line");
        }
        let begins = !core::mem::replace(&mut self.is_in_line, end.is_empty());
        let is_boundary = begins && text.starts_with(b"--") && self.boundary(text, transaction);
        for (part, _) in &mut self.enclosing {
            part.line(text, end, transaction, settings);
        }
        match &mut self.state {
            _ if is_boundary => {}
            State::Text => {}
            State::File(part) => part.line(text, end, transaction, settings),
            State::Headers(headers) => {
                if begins && text.is_empty() && !end.is_empty() {
                    let headers = core::mem::take(headers);
                    self.end_headers(&headers.block, transaction, settings);
                    return;
                }
                if begins && headers.are_encoded(text) {
                    self.state = State::Text;
                    return;
                }
                if begins && text.iter().take_while(|byte| **byte != b':').count() > LINE_SIZE {
                    transaction.raise("smtp.mime_long_header_name");
                }
                headers.line(text, end, begins);
                if headers.size > HEADERS_SIZE {
                    transaction.raise("smtp.mime_long_header_value");
                }
            }
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
        for part in self.parts() {
            part.suspend(transaction, settings);
        }
    }

    /// Continues the message with another piece, whose files belong to `transaction`.
    pub(in crate::app) fn resume(&mut self, transaction: &mut Transaction, settings: &AppSettings) {
        let direction = self.direction;
        for part in self.parts() {
            part.resume(direction, transaction, settings);
        }
    }

    /// Returns the files in progress.
    fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        let inner = match &mut self.state {
            State::File(part) => Some(part),
            State::Headers(_) | State::Text => None,
        };
        self.enclosing.iter_mut().map(|(part, _)| part).chain(inner)
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

    /// Ends the part in progress, and the files around it that have at least `boundaries` boundaries around them.
    fn close(&mut self, boundaries: usize, transaction: &mut Transaction, is_complete: bool) {
        if let State::File(part) = &mut self.state {
            part.close(transaction, is_complete);
        }
        while let Some((mut part, _)) = self.enclosing.pop_if(|(_, around)| *around >= boundaries) {
            part.close(transaction, is_complete);
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
        self.summary.from = header(block, b"from");
        self.summary.subject = header(block, b"subject");
        self.summary.message_id = header(block, b"message-id");
        self.summary.date = header(block, b"date");
        let to = header(block, b"to").unwrap_or_default();
        self.summary.to = to
            .split(|&byte| byte == b',')
            .map(|address| address.trim_ascii().to_vec())
            .filter(|address| !address.is_empty())
            .collect();
    }

    fn end_headers(&mut self, block: &[u8], transaction: &mut Transaction, settings: &AppSettings) {
        if self.is_top {
            self.summarise(block);
        }
        let content_type = header(block, b"content-type").unwrap_or_default();
        if begins(&content_type, b"multipart/") {
            self.state = State::Text;
            match parameter(&content_type, b"boundary").filter(|boundary| !boundary.is_empty()) {
                Some(boundary) if boundary.len() > BOUNDARY_SIZE => {
                    transaction.raise("smtp.mime_bound_too_long");
                }
                Some(boundary) if self.boundaries.len() < DEPTH => {
                    self.boundaries.push(boundary.trim_ascii_end().to_vec());
                }
                _ => transaction.raise("smtp.mime_malformed_msg"),
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
        let is_message = begins(&content_type, b"message/rfc822") && self.boundaries.len() < DEPTH;
        if is_message && (name.is_none() || self.enclosing.len() >= DEPTH) {
            self.state = State::Headers(Headers::default());
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
        let encoding = header(block, b"content-transfer-encoding").unwrap_or_default();
        let encoding = if begins(&encoding, b"base64") {
            Encoding::Base64
        } else if begins(&encoding, b"quoted-printable") {
            Encoding::QuotedPrintable
        } else {
            Encoding::Identity
        };
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
        };
        if !is_message {
            self.state = State::File(part);
            return;
        }
        // The file has the bytes as declared. Attachments of the message are found if it is not encoded.
        self.enclosing.push((part, self.boundaries.len()));
        self.state = State::Headers(match encoding {
            Encoding::Identity => Headers::default(),
            Encoding::Base64 | Encoding::QuotedPrintable => Headers::of_encoded_message(),
        });
    }
}

#[cfg(test)]
mod tests;
