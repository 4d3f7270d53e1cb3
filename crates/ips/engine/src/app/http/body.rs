//! The body of a message: content codings undone, kept up to a limit, and followed as a file.

use millrace_ips_rules::buffers::Buffer;

use super::byte_ranges::ByteRanges;
use super::decompress::{Coding, DecodeError, Decoder};
use super::framing;
use super::headers::Headers;
use super::multipart::Multipart;
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::ranges::{RangePart, RangeParts};
use crate::app::transaction::{AppEvent, Transaction};
use crate::flow::Direction;

/// Largest output of a decoder for one piece of input, in bytes (4 MiB); a body with more output is a
/// decompression bomb.
const STEP_OUTPUT: usize = 4 << 20;

/// A body in progress.
#[derive(Debug)]
pub(super) struct Body {
    direction: Direction,
    index: usize,
    file: Option<usize>,
    decoder: Option<Decoder>,
    multipart: Option<Box<Multipart>>,
    /// The ranges of a file in several parts.
    parts: Option<Box<ByteRanges>>,
    limit: usize,
    /// True if no header declares the coding.
    is_guess: bool,
    /// True if the body is a range of a file that is joined to others.
    is_range: bool,
    /// Bytes after decoding.
    pub(super) length: u64,
}

heap!(Body {
    decoder,
    multipart,
    parts
});

/// The content codings of a body that are undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undoing {
    /// None: the bytes are kept as they are.
    Nothing,
    /// Those that the headers declare.
    Declared,
    /// Those that the headers declare, or gzip if the body begins as gzip.
    Any,
}

/// Returns the codings of a Content-Encoding value in the order in which they were applied, at most `limit`.
fn codings(value: &[u8], limit: usize, events: &mut Vec<AppEvent>) -> Vec<Coding> {
    let is_tolerated = |name: &[u8]| {
        matches!(
            name,
            b"gzip" | b"x-gzip" | b"deflate" | b"x-deflate" | b"inflate" | b"pack200-gzip"
        )
    };
    let mut found = Vec::new();
    let names = value
        .split(|byte| b", ".contains(byte))
        .filter(|name| !name.is_empty());
    for (layer, name) in names.enumerate() {
        if layer >= limit {
            events.push("http.too_many_encoding_layers");
            events.push(framing::CONTENT_ENCODING);
            break;
        }
        let name = name.to_ascii_lowercase();
        let has = |text: &[u8]| name.windows(text.len()).any(|window| window == text);
        let coding = if has(b"gzip") {
            Some(Coding::Gzip)
        } else if has(b"deflate") {
            Some(Coding::Deflate)
        } else {
            None
        };
        let is_usual = matches!(
            name.as_slice(),
            b"gzip" | b"x-gzip" | b"deflate" | b"x-deflate" | b"br" | b"identity" | b"none" | b"inflate"
        );
        if !is_usual {
            events.push("http.abnormal_ce_header");
        }
        if coding.is_some() && !is_tolerated(&name) {
            events.push(framing::CONTENT_ENCODING);
        }
        found.extend(coding);
    }
    let letters: Vec<u8> = framing::letters(value).collect();
    let has = |word: &[u8]| letters.windows(word.len()).any(|part| part == word);
    if found.is_empty() && (has(b"gzip") || has(b"deflate")) {
        events.push(framing::CONTENT_ENCODING);
    }
    found
}

impl Body {
    /// Opens the body buffer of a message, and a file for a body that is not a multipart form. `undoing` tells the
    /// content codings that are undone.
    pub(super) fn open(
        transaction: &mut Transaction,
        direction: Direction,
        headers: &Headers,
        file_name: &[u8],
        (settings, undoing): (&AppSettings, Undoing),
    ) -> Body {
        let mut events = Vec::new();
        let value = headers
            .framing(b"content-encoding")
            .filter(|_| undoing != Undoing::Nothing);
        let mut codings = value
            .map(|value| codings(&value, settings.content_codings, &mut events))
            .unwrap_or_default();
        let is_doubtful = undoing == Undoing::Any || events.contains(&framing::CONTENT_ENCODING);
        let is_guess = is_doubtful && codings.is_empty();
        if is_guess {
            codings.push(Coding::Gzip);
        }
        for event in events {
            transaction.is_ambiguous |= event == framing::CONTENT_ENCODING;
            transaction.raise(event);
        }
        let multipart = match direction {
            Direction::ToServer => headers
                .value(b"content-type")
                .and_then(Multipart::for_content_type),
            Direction::ToClient => None,
        };
        let (buffer, limit, minimum) = match direction {
            Direction::ToServer => {
                let settings = (settings.request_body_limit, settings.request_body_minimum);
                (Buffer::HttpRequestBody, settings.0, settings.1)
            }
            Direction::ToClient => {
                let settings = (settings.response_body_limit, settings.response_body_minimum);
                (Buffer::HttpResponseBody, settings.0, settings.1)
            }
        };
        let alias = multipart.is_none().then_some(Buffer::FileData);
        let index = transaction.open(buffer, alias, direction, minimum);
        let mut file = None;
        if multipart.is_none() {
            if !file_name.is_empty() {
                transaction.publish(Buffer::FileName, direction, file_name);
            }
            // A file without a name of its own has the path of the URI, as in Suricata's records. Rules also find its last
            // segment.
            let last = file_name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if !last.is_empty() && last.len() < file_name.len() {
                transaction.publish(Buffer::FileName, direction, last);
            }
            transaction.files.push(settings.file(direction, file_name));
            file = Some(transaction.files.len() - 1);
        }
        // The codings of a body are those of its file as a whole, so a range by itself has none that can be undone.
        let may_join = settings.asks.ranges && direction == Direction::ToClient;
        let joins = may_join && codings.is_empty() && !transaction.is_reading;
        let value = |name| headers.value(name).filter(|_| joins);
        let parts = value(b"content-type").and_then(|value| ByteRanges::for_content_type(value, file_name));
        let range = value(b"content-range").filter(|_| parts.is_none());
        let range = range.and_then(|value| RangePart::new(value, file_name, settings));
        let is_range = range.is_some();
        if is_range || parts.is_some() {
            transaction.range = Some(Box::new(RangeParts::new(range)));
        }
        Body {
            direction,
            index,
            file,
            decoder: (!codings.is_empty()).then(|| Decoder::new(&codings)),
            multipart: multipart.map(Box::new),
            parts: parts.map(Box::new),
            limit,
            is_guess,
            is_range,
            length: 0,
        }
    }

    /// Adds bytes as they were sent, without transfer coding.
    pub(super) fn write(&mut self, transaction: &mut Transaction, bytes: &[u8], settings: &AppSettings) {
        let decoded;
        let bytes = match &mut self.decoder {
            None => bytes,
            Some(decoder) => {
                let (out, problem) = decoder.decode(bytes, STEP_OUTPUT);
                match problem {
                    Some(DecodeError::Bomb) => transaction.raise("http.compression_bomb"),
                    Some(DecodeError::Invalid) if self.is_guess => {}
                    Some(DecodeError::Invalid) => {
                        transaction.raise("http.gzip_decompression_failed");
                        transaction.is_ambiguous = true;
                    }
                    None => {}
                }
                if decoder.has_joined() {
                    transaction.raise(framing::CONTENT_ENCODING);
                    transaction.is_ambiguous = true;
                }
                decoded = out;
                &decoded
            }
        };
        self.length += bytes.len() as u64;
        transaction.append(self.index, bytes, self.limit);
        if let Some(file) = self.file.and_then(|file| transaction.files.get_mut(file)) {
            file.update(bytes);
        }
        if let Some(range) = transaction.range.as_mut().filter(|_| self.is_range) {
            range.add(bytes);
        }
        if let Some(parts) = &mut self.parts {
            parts.data(bytes, transaction, settings);
        }
        if let Some(multipart) = &mut self.multipart {
            multipart.data(bytes, transaction, self.direction, settings);
        }
    }

    /// Records lost bytes.
    pub(super) fn gap(&mut self, transaction: &mut Transaction, size: u64) {
        if let Some(file) = self.file.and_then(|file| transaction.files.get_mut(file)) {
            file.gap(size);
        }
        self.end_range(transaction);
    }

    /// Notes that no further byte can be joined to the file of which the body is a range.
    fn end_range(&mut self, transaction: &mut Transaction) {
        if let Some(parts) = &mut self.parts {
            parts.end(transaction);
        }
        if let Some(range) = transaction
            .range
            .as_mut()
            .filter(|_| self.is_range || self.parts.is_some())
        {
            range.end();
        }
    }

    /// Ends the body.
    pub(super) fn close(&mut self, transaction: &mut Transaction, is_complete: bool) {
        transaction.close(self.index);
        if let Some(file) = self.file.and_then(|file| transaction.files.get_mut(file)) {
            file.close(is_complete);
        }
        self.end_range(transaction);
        if let Some(multipart) = &mut self.multipart {
            multipart.end(transaction);
        }
    }
}
