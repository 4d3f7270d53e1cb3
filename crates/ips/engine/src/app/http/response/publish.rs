//! The buffers and the record that consist of the headers of a response.

use millrace_ips_rules::buffers::Buffer;

use super::SIDE;
use crate::app::AppSettings;
use crate::app::http::headers::Headers;
use crate::app::http::publish::{MessageHeaders, update_record};
use crate::app::transaction::Transaction;

const HEADERS: MessageHeaders = MessageHeaders {
    side: SIDE,
    first_line: Buffer::HttpResponseLine,
    cookie: b"set-cookie",
    fields: &[
        (b"connection", Buffer::HttpConnection),
        (b"content-length", Buffer::HttpContentLen),
        (b"content-type", Buffer::HttpContentType),
        (b"location", Buffer::HttpLocation),
        (b"server", Buffer::HttpServer),
    ],
};

/// Publishes the buffers and the fields of the record that consist of headers of a response.
pub(in crate::app::http) fn publish_headers(
    transaction: &mut Transaction,
    headers: &Headers,
    settings: &AppSettings,
) {
    HEADERS.publish(transaction, headers, settings);
    let value = |name: &[u8]| headers.value(name).map(<[u8]>::to_vec);
    update_record(transaction, |record| {
        let without_parameters = |value: Vec<u8>| {
            value
                .split(|&byte| byte == b';')
                .next()
                .map(|v| v.trim_ascii().to_vec())
        };
        record.content_type = value(b"content-type").and_then(without_parameters);
        record.content_range = value(b"content-range");
        record.redirect = value(b"location");
    });
}
