//! A part of a message whose bytes are a file.

use millrace_ips_rules::buffers::Buffer;

use super::super::decode::Decoder;
use crate::app::AppSettings;
use crate::app::file::File;
use crate::app::heap::heap;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// Largest size of a line in base64 or quoted-printable, without its end (RFC 2045, sections 6.7 and 6.8).
const ENCODED_LINE_SIZE: usize = 76;
/// Largest number of attachments of a message. Also the number of files of a transaction at which no further piece of a
/// file is added to it.
pub(super) const ATTACHMENTS: usize = 256;
/// Number of bytes at the end of a piece of a file that are inspected again with the next piece: a content may begin in
/// one piece and end in the next.
pub(super) const OVERLAP: usize = 1024;

/// A part whose bytes are a file: its decoder, buffer and file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: Vec<u8>,
    pub(super) decoder: Decoder,
    pub(super) buffer: usize,
    pub(super) file: usize,
    /// Number of bytes of the file in earlier pieces.
    pub(super) earlier: u64,
    /// Between two pieces: the last bytes of the previous piece, at most [`OVERLAP`].
    pub(super) overlap: Vec<u8>,
    /// True if this is a part of one of two readings, so that its lines may be none.
    pub(super) is_quiet: bool,
}

heap!(Part {
    name,
    decoder,
    overlap
});

/// Notes that a transaction has no room for a file.
pub(super) fn refuse_file(transaction: &mut Transaction) {
    transaction.raise("smtp.mime_too_many_attachments");
    transaction.exceeds_limits = true;
}

impl Part {
    /// Adds a line to the file; `end` is empty if the line continues in the next call.
    pub(super) fn line(
        &mut self,
        text: &[u8],
        end: &[u8],
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
        if self.decoder.is_encoding() && text.len() > ENCODED_LINE_SIZE && !self.is_quiet {
            transaction.raise("smtp.mime_long_enc_line");
        }
        let (bytes, problem) = self.decoder.line(text, end);
        if let Some(problem) = problem.filter(|_| !self.is_quiet) {
            transaction.raise(problem);
        }
        transaction.append(self.buffer, &bytes, settings.attachment_limit);
        if let Some(file) = transaction.files.get_mut(self.file) {
            file.update(&bytes);
        }
    }

    /// Ends the file in a transaction that has only a part of the file.
    pub(super) fn suspend(&mut self, transaction: &mut Transaction, settings: &AppSettings) {
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
    pub(super) fn resume(
        &mut self,
        direction: Direction,
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) {
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

    /// Returns a file with the bytes of this one, whose next bytes may differ. Returns `None` if the transaction has no room for
    /// it.
    pub(super) fn copy(
        &self,
        direction: Direction,
        transaction: &mut Transaction,
        settings: &AppSettings,
    ) -> Option<Part> {
        let known = transaction.files.get(self.file).cloned();
        let known = known.filter(|_| transaction.files.len() < ATTACHMENTS);
        transaction.publish(Buffer::FileName, direction, self.name.as_slice());
        let buffer = transaction.open(Buffer::FileData, None, direction, settings.attachment_minimum);
        let Some(file) = known.filter(|_| buffer != usize::MAX) else {
            refuse_file(transaction);
            return None;
        };
        let bytes = transaction.bytes(self.buffer).to_vec();
        transaction.append(buffer, &bytes, settings.attachment_limit);
        transaction.files.push(file);
        Some(Part {
            name: self.name.clone(),
            decoder: self.decoder.clone(),
            buffer,
            file: transaction.files.len() - 1,
            earlier: self.earlier,
            overlap: Vec::new(),
            is_quiet: true,
        })
    }

    /// Ends the file.
    pub(super) fn close(&mut self, transaction: &mut Transaction, is_complete: bool) {
        let rest = self.decoder.finish();
        transaction.append(self.buffer, &rest, usize::MAX);
        transaction.close(self.buffer);
        if let Some(file) = transaction.files.get_mut(self.file) {
            file.update(&rest);
            file.close(is_complete);
        }
    }
}
