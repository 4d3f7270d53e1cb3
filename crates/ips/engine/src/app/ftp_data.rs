//! Data connections of FTP (RFC 959): one file each.

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::expectation::Expectation;
use super::framed::fields;
use super::parser::{Outcome, Parser};
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The values of `ftpdata_command`: the command that began the transfer.
const RETR: u8 = 1;
const STOR: u8 = 2;

/// The parser of a data connection.
#[derive(Debug)]
pub(super) struct FtpData {
    settings: AppSettings,
    name: Vec<u8>,
    /// Direction of the file. In active mode the FTP server opens the connection, so a download flows to the server of it.
    direction: Direction,
    is_download: bool,
    transaction: Option<(u64, usize)>,
}

heap!(FtpData { name });

impl FtpData {
    pub(super) fn new(expectation: Expectation, settings: AppSettings) -> FtpData {
        FtpData {
            settings,
            name: expectation.file_name,
            direction: expectation.direction,
            is_download: expectation.is_download,
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
            let (command, name, direction) = match self.is_download {
                true => (RETR, b"RETR", Direction::ToClient),
                false => (STOR, b"STOR", Direction::ToServer),
            };
            // In Suricata RETR matches to the client and STOR to the server, whichever end opened the connection.
            transaction.number_once(NumberField::FtpDataCommand, self.direction, command);
            transaction.number_once(NumberField::FtpDataCommand, direction, command);
            fields(transaction, |out| {
                out.text("filename", &self.name).text("command", name);
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
    use crate::flow::FlowKey;

    #[test]
    fn a_data_connection_is_a_file() {
        let expectation = Expectation {
            key: FlowKey {
                client: [192, 0, 2, 1].into(),
                server: [192, 0, 2, 2].into(),
                client_port: 0,
                server_port: 1025,
                protocol: 6,
                vlans: [0; 3],
                tunnel_depth: 0,
            },
            protocol: AppProtocol::FtpData,
            file_name: b"x".to_vec(),
            direction: Direction::ToClient,
            is_download: true,
        };
        let mut parser = FtpData::new(expectation, AppSettings::default());
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
