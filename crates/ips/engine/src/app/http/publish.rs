//! The record of a message, and the buffers that consist of its headers, for requests and responses.

use millrace_ips_rules::buffers::Buffer;

use super::headers::Headers;
use crate::app::AppSettings;
use crate::app::record::{HttpRecord, Record};
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// The headers of requests, or of responses, that have separate buffers.
pub(super) struct MessageHeaders {
    /// The direction.
    pub(super) side: Direction,
    /// The buffer of the first line.
    pub(super) first_line: Buffer,
    /// The header that `http.header` leaves out.
    pub(super) cookie: &'static [u8],
    /// The other headers that have buffers, each with its buffer.
    pub(super) fields: &'static [(&'static [u8], Buffer)],
}

impl MessageHeaders {
    /// Publishes the buffers that consist of headers of a message, and records the headers if records have details.
    pub(super) fn publish(&self, transaction: &mut Transaction, headers: &Headers, settings: &AppSettings) {
        let side = self.side;
        transaction.compose(Buffer::HttpHeader, side, None, |text| {
            headers.write_lines(self.cookie, text);
        });
        transaction.compose(Buffer::HttpHeaderNames, side, None, |text| {
            headers.write_names(text);
        });
        transaction.compose(Buffer::HttpStart, side, Some(self.first_line), |text| {
            text.extend_from_slice(b"\r\n");
            headers.write_lines(b"", text);
            text.extend_from_slice(b"\r\n");
        });
        let cookies = [
            (self.cookie, Buffer::HttpCookie),
            (self.cookie, Buffer::HttpCookieRaw),
        ];
        for &(name, buffer) in self.fields.iter().chain(&cookies) {
            if let Some(value) = headers.value(name) {
                transaction.replace(buffer, side, value);
            }
        }
        if settings.details {
            update_record(transaction, |record| {
                // Those of HTTP/2 are recorded as they were sent.
                if record.http2_stream.is_none() {
                    record.headers[side.index()] = headers.record();
                }
            });
        }
    }
}

/// Changes the record of a transaction.
pub(super) fn update_record(transaction: &mut Transaction, change: impl FnOnce(&mut HttpRecord)) {
    if !matches!(transaction.record, Record::Http(_)) {
        transaction.record = Record::Http(Box::default());
    }
    if let Record::Http(record) = &mut transaction.record {
        change(record);
    }
}
