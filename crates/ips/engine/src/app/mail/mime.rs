//! Messages with MIME parts (RFC 5322, RFC 2045 to 2047): headers, nested parts, and attachments as files.
//!
//! ```text
//!  line ─▶ Headers ──empty line──▶ Body (decoded into a file, if the part has a name)
//!             ▲                       │
//!             └──── boundary ◀────────┘   multipart: boundaries form a stack; message/rfc822: headers again
//! ```

use millrace_ips_rules::buffers::Buffer;

use super::decode::{Decoder, Encoding};
use crate::app::AppSettings;
use crate::app::file::File;
use crate::app::heap::{Heap, heap};
use crate::app::http::multipart::parameter;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// Largest depth of nested parts.
const DEPTH: usize = 10;
/// Largest size of the headers of a part.
const HEADERS_SIZE: usize = 64 << 10;
/// Largest size of a boundary (RFC 2046, section 5.1.1, allows 70).
const BOUNDARY_SIZE: usize = 254;
/// Largest number of attachments of a message.
const ATTACHMENTS: usize = 256;

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
    decoder: Decoder,
    buffer: usize,
    file: usize,
}

heap!(Part { decoder });

#[derive(Debug)]
enum State {
    /// The headers of the message or of a part.
    Headers(Vec<u8>),
    /// Bytes that belong to no file.
    Text,
    /// Bytes of a file.
    File(Part),
}

impl Heap for State {
    fn heap(&self) -> usize {
        match self {
            State::Headers(block) => block.heap(),
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
    is_top: bool,
    pub(in crate::app) summary: Summary,
}

heap!(Mime {
    state,
    boundaries,
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
            state: State::Headers(Vec::new()),
            boundaries: Vec::new(),
            is_top: true,
            summary: Summary::default(),
        }
    }

    /// Takes a line with its end; the end is empty if the line goes on in the next call.
    pub(in crate::app) fn line(
        &mut self,
        text: &[u8],
        end: &[u8],
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        if text.starts_with(b"--") && self.boundary(text, transaction) {
            return;
        }
        match &mut self.state {
            State::Text => {}
            State::File(part) => {
                let (bytes, problem) = part.decoder.line(text, end);
                if let Some(problem) = problem {
                    transaction.raise(problem);
                }
                transaction.append(part.buffer, &bytes, settings.attachment_limit);
                if let Some(file) = transaction.files.get_mut(part.file) {
                    file.update(&bytes);
                }
            }
            State::Headers(block) => {
                if text.is_empty() {
                    let block = core::mem::take(block);
                    self.end_headers(&block, transaction, settings);
                    return;
                }
                if block.len() + text.len() + end.len() > HEADERS_SIZE {
                    transaction.raise("smtp.mime_long_header_value");
                    self.state = State::Text;
                    return;
                }
                block.extend_from_slice(text);
                block.extend_from_slice(end);
            }
        }
    }

    /// Ends the message.
    pub(in crate::app) fn end(&mut self, transaction: &mut Transaction, is_complete: bool) {
        if let State::Headers(block) = &mut self.state
            && self.is_top
        {
            let block = core::mem::take(block);
            self.summarise(&block);
        }
        self.close(transaction, is_complete);
        self.state = State::Text;
    }

    /// Ends the part in progress.
    fn close(&mut self, transaction: &mut Transaction, is_complete: bool) {
        if let State::File(part) = &mut self.state {
            let rest = part.decoder.finish();
            transaction.append(part.buffer, &rest, usize::MAX);
            transaction.close(part.buffer);
            if let Some(file) = transaction.files.get_mut(part.file) {
                file.update(&rest);
                file.close(is_complete);
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
        self.close(transaction, true);
        let is_last = tail != self.boundaries[index].as_slice();
        self.boundaries.truncate(if is_last { index } else { index + 1 });
        self.state = if is_last {
            State::Text
        } else {
            State::Headers(Vec::new())
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
        let name = parameter(&disposition, b"filename").or_else(|| parameter(&content_type, b"name"));
        if begins(&content_type, b"message/rfc822") && name.is_none() && self.boundaries.len() < DEPTH {
            self.state = State::Headers(Vec::new());
            return;
        }
        let name = match name {
            Some(name) if self.summary.attachments.len() < ATTACHMENTS => name,
            _ => {
                self.state = State::Text;
                return;
            }
        };
        let encoding = header(block, b"content-transfer-encoding").unwrap_or_default();
        let encoding = if begins(&encoding, b"base64") {
            Encoding::Base64
        } else if begins(&encoding, b"quoted-printable") {
            Encoding::QuotedPrintable
        } else {
            Encoding::Identity
        };
        transaction.publish(Buffer::FileName, self.direction, name.as_slice());
        let buffer = transaction.open(
            Buffer::FileData,
            None,
            self.direction,
            settings.attachment_minimum,
        );
        transaction
            .files
            .push(File::new(self.direction, &name, settings.hashes_files));
        self.summary.attachments.push(name);
        let file = transaction.files.len() - 1;
        self.state = State::File(Part {
            decoder: Decoder::new(encoding),
            buffer,
            file,
        });
    }
}
