//! Data connections of FTP (RFC 959): one file each.

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::framed::fields;
use super::parser::{Outcome, Parser};
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The values of `ftpdata_command`: the command that began the transfer, by the direction of the file.
const RETR: u8 = 1;
const STOR: u8 = 2;

/// The parser of a data connection.
#[derive(Debug)]
pub(super) struct FtpData {
    settings: AppSettings,
    name: Vec<u8>,
    direction: Direction,
    transaction: Option<(u64, usize)>,
}

heap!(FtpData { name });

impl FtpData {
    pub(super) fn new(name: Vec<u8>, direction: Direction, settings: AppSettings) -> FtpData {
        FtpData {
            settings,
            name,
            direction,
            transaction: None,
        }
    }
}

impl Parser for FtpData {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if chunk.direction != self.direction {
            return Outcome::Continue;
        }
        if self.transaction.is_none() {
            let transaction = out.start(AppProtocol::FtpData);
            transaction.advance(self.direction.reverse(), Progress::Complete);
            if !self.name.is_empty() {
                transaction.publish(Buffer::FileName, self.direction, self.name.as_slice());
            }
            let command = match self.direction {
                Direction::ToClient => RETR,
                Direction::ToServer => STOR,
            };
            transaction.number(NumberField::FtpDataCommand, self.direction, command);
            fields(transaction, |out| {
                out.text("filename", &self.name)
                    .text("command", if command == RETR { b"RETR" } else { b"STOR" });
            });
            let buffer = transaction.open(Buffer::FileData, None, self.direction, 0);
            transaction
                .files
                .push(self.settings.file(self.direction, &self.name));
            self.transaction = Some((transaction.id, buffer));
        }
        let Some((id, buffer)) = self.transaction else {
            return Outcome::Continue;
        };
        let Some(transaction) = out.by_id(id) else {
            return Outcome::Failed;
        };
        transaction.advance(self.direction, Progress::Body);
        transaction.append(buffer, chunk.bytes, self.settings.attachment_limit);
        if let Some(file) = transaction.files.first_mut() {
            if chunk.gap_before > 0 {
                file.gap(chunk.gap_before);
            }
            file.update(chunk.bytes);
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        let Some((id, buffer)) = self.transaction.filter(|_| direction == self.direction) else {
            return;
        };
        if let Some(transaction) = out.by_id(id) {
            transaction.close(buffer);
            if let Some(file) = transaction.files.first_mut() {
                file.close(true);
            }
            transaction.advance(direction, Progress::Complete);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_connection_is_a_file() {
        let mut parser = FtpData::new(b"x".to_vec(), Direction::ToClient, AppSettings::default());
        let mut out = Transactions::default();
        for bytes in [&b"%PDF"[..], b"-1.4"] {
            let chunk = StreamChunk::of(Direction::ToClient, bytes);
            parser.data(chunk, &mut out);
        }
        parser.end(Direction::ToClient, &mut out);
        assert_eq!(
            out.list[0].buffer(Buffer::FileData, Direction::ToClient),
            Some(&b"%PDF-1.4"[..])
        );
        assert_eq!(out.list[0].files[0].magic, Some("PDF document"));
    }
}
