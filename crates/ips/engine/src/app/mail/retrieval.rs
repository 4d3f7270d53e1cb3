//! Parts of the POP3 and IMAP parsers: a mail that the POP3 server sends, and the words of a line.

use super::lines;
use super::mime::Mime;
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// A mail on its way to the client.
#[derive(Debug)]
pub(super) struct Delivery {
    mime: Mime,
    /// True if the last piece did not end its line.
    is_in_line: bool,
}

heap!(Delivery { mime });

impl Delivery {
    pub(super) fn new() -> Delivery {
        Delivery {
            mime: Mime::new(Direction::ToClient),
            is_in_line: false,
        }
    }

    /// Parses a line of the mail, or a piece of a long line.
    pub(super) fn line(
        &mut self,
        text: &[u8],
        end: &[u8],
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        self.mime.line(text, end, transaction, settings);
        self.is_in_line = end.is_empty();
    }

    /// Consumes bytes of the mail and returns their number. An incomplete line is not consumed unless
    /// `is_last` is true.
    pub(super) fn bytes(
        &mut self,
        data: &[u8],
        is_last: bool,
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) -> usize {
        let mut at = 0;
        while let Some(line) = lines::next(&data[at..]) {
            self.line(line.text, line.end, transaction, settings);
            at += line.size;
        }
        if is_last && at < data.len() {
            self.line(&data[at..], b"", transaction, settings);
            at = data.len();
        }
        at
    }

    /// Skips a line of the mail with the line end `end`; a piece of a long line has an empty one.
    pub(super) fn skip(&mut self, end: &[u8]) {
        self.is_in_line = end.is_empty();
    }

    /// Returns true if the next bytes continue a line.
    pub(super) fn is_in_line(&self) -> bool {
        self.is_in_line
    }

    /// Ends the mail.
    pub(super) fn end(mut self, transaction: &mut Transaction, is_complete: bool) {
        self.mime.end(transaction, is_complete);
    }
}

/// Splits a line at its first space: the word, and the rest without white space around it.
pub(super) fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii())
}
