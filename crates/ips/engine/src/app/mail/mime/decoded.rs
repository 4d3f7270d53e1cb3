//! The reading of a message or a multipart as it declares to be encoded.
//!
//! RFC 2045, section 6.4, allows no encoding of a multipart, nor RFC 2046, section 5.2.1, one of a message/rfc822. Programs read one
//! that declares base64 or quoted-printable as declared, or as it is, so both readings are inspected:
//!
//! ```text
//!  line ─┬─▶ the parser of the mail ──▶ the message as it is
//!        └─▶ decoder ─▶ lines ─▶ another parser ──▶ the message as declared
//! ```
//!
//! In quoted-printable most lines are the same in both readings. The other parser begins as a copy of the first one where they
//! begin to differ, so that a file which is the same in both is one file.

use super::super::decode::{Decoder, Encoding};
use super::super::lines;
use super::reading::{Decoded, Mime, Reading};
use crate::app::AppSettings;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

impl Decoded {
    /// Returns the reading of a message or multipart that begins, with the parser `start` if it differs from the first line on.
    pub(super) fn new(encoding: Encoding, readings: usize, start: Mime, settings: AppSettings) -> Decoded {
        let mut decoded = Decoded {
            decoder: Decoder::new(encoding),
            reading: Reading::Same(Decoder::new(Encoding::Identity)),
            readings,
            settings,
        };
        if encoding == Encoding::Base64 {
            // No line is the same in base64.
            decoded.separate(Mime {
                readings,
                is_guess: true,
                ..start
            });
        }
        decoded
    }

    /// Reads the message from its begin on, because it is none as it is. `is_guess` is true if that is uncertain.
    pub(super) fn is_only(&mut self, direction: Direction, is_guess: bool) {
        self.separate(Mime {
            readings: self.readings,
            is_guess,
            ..Mime::new(direction)
        });
    }

    /// Returns true if the message so far is the same as declared and as it is.
    pub(super) fn is_same(&self) -> bool {
        matches!(self.reading, Reading::Same(_))
    }

    /// Returns the number of readings that this one takes: itself, and those inside.
    pub(super) fn cost(&self) -> usize {
        1 + self.readings
    }

    /// Reads the message with a parser of its own from here on.
    pub(super) fn separate(&mut self, mime: Mime) {
        self.reading = Reading::Other {
            mime: Box::new(mime),
            rest: Vec::new(),
        };
    }

    /// Returns a reading in the same state, whose files are copies.
    pub(super) fn copy(&self, transaction: &mut Transaction) -> Decoded {
        let reading = match &self.reading {
            Reading::Same(plain) => Reading::Same(plain.clone()),
            Reading::Other { mime, rest } => {
                let inside = mime
                    .enclosing
                    .iter()
                    .filter_map(|message| message.decoded.as_ref());
                let room = mime.readings + inside.map(Decoded::cost).sum::<usize>();
                let mime = mime.copy(0, &mime.enclosing, room, transaction, &self.settings);
                Reading::Other {
                    mime: Box::new(mime),
                    rest: rest.clone(),
                }
            }
        };
        Decoded {
            decoder: self.decoder.clone(),
            reading,
            ..*self
        }
    }

    /// Decodes a line of the message; `end` is empty if the line continues in the next call. Returns the bytes that the other reading
    /// has here; `None` if it is still the same.
    pub(super) fn decode(&mut self, text: &[u8], end: &[u8]) -> Option<Vec<u8>> {
        let (bytes, _) = self.decoder.line(text, end);
        let Reading::Same(plain) = &mut self.reading else {
            return Some(bytes);
        };
        let (same, _) = plain.line(text, end);
        if bytes == same {
            return None;
        }
        // Both begin with the end of the line before, which the first parser has read.
        let before = same.len() - text.len();
        Some(bytes.get(before..).unwrap_or_default().to_vec())
    }

    /// Parses decoded bytes.
    pub(super) fn read(&mut self, bytes: &[u8], transaction: &mut Transaction) {
        let Reading::Other { mime, rest } = &mut self.reading else {
            return;
        };
        rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(line) = lines::next(&rest[at..]) {
            mime.line(line.text, line.end, transaction, &self.settings);
            at += line.size;
        }
        rest.drain(..at);
    }

    /// Ends a piece of the message: the rest may come with another transaction.
    pub(super) fn suspend(&mut self, transaction: &mut Transaction) {
        if let Reading::Other { mime, rest } = &mut self.reading {
            mime.suspend(&core::mem::take(rest), transaction, &self.settings);
        }
    }

    /// Continues the message with another piece, whose files belong to `transaction`.
    pub(super) fn resume(&mut self, transaction: &mut Transaction) {
        if let Reading::Other { mime, .. } = &mut self.reading {
            mime.resume(transaction, &self.settings);
        }
    }

    /// Ends the message. Returns the number of readings that end with it, and the names of its attachments.
    pub(super) fn end(mut self, transaction: &mut Transaction, is_complete: bool) -> (usize, Vec<Vec<u8>>) {
        let (cost, tail) = (self.cost(), self.decoder.finish());
        self.read(&tail, transaction);
        let attachments = match self.reading {
            Reading::Same(_) => Vec::new(),
            Reading::Other { mut mime, rest } => {
                if !rest.is_empty() {
                    mime.line(&rest, b"", transaction, &self.settings);
                }
                mime.end(transaction, is_complete);
                mime.summary.attachments
            }
        };
        (cost, attachments)
    }
}
