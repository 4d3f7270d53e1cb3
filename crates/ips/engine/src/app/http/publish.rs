//! The buffers that consist of the headers of a message, for requests and responses.

use millrace_ips_rules::buffers::Buffer;

use super::headers::Headers;
use crate::app::transaction::Transaction;
use crate::flow::Direction;

/// The headers of a kind of message that have buffers of their own.
pub(super) struct MessageHeaders {
    /// The direction.
    pub(super) side: Direction,
    /// The buffer of the first line.
    pub(super) first_line: Buffer,
    /// The header that `http.header` leaves out.
    pub(super) cookie: &'static [u8],
    /// The others, each with its buffer.
    pub(super) fields: &'static [(&'static [u8], Buffer)],
}

impl MessageHeaders {
    /// Publishes what consists of the headers of a message.
    pub(super) fn publish(&self, transaction: &mut Transaction, headers: &Headers) {
        let side = self.side;
        transaction.replace(Buffer::HttpHeader, side, headers.lines(self.cookie));
        transaction.replace(Buffer::HttpHeaderNames, side, headers.names());
        let mut start = transaction
            .buffer(self.first_line, side)
            .unwrap_or_default()
            .to_vec();
        start.extend_from_slice(b"\r\n");
        start.extend_from_slice(&headers.lines(b""));
        start.extend_from_slice(b"\r\n");
        transaction.replace(Buffer::HttpStart, side, start);
        let cookies = [
            (self.cookie, Buffer::HttpCookie),
            (self.cookie, Buffer::HttpCookieRaw),
        ];
        for &(name, buffer) in self.fields.iter().chain(&cookies) {
            if let Some(value) = headers.value(name) {
                transaction.replace(buffer, side, value);
            }
        }
    }
}
