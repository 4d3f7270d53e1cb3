//! The buffers and the record that consist of the headers of a request.

use millrace_ips_rules::buffers::Buffer;

use super::host::is_valid_host;
use super::{RequestSide, SIDE};
use crate::app::AppSettings;
use crate::app::http::headers::Headers;
use crate::app::http::publish::{MessageHeaders, update_record};
use crate::app::http::request_line::is_http_11;
use crate::app::http::uri::Uri;
use crate::app::transaction::Transaction;

impl RequestSide {
    /// Publishes the host of a request, which its URI or its header names.
    pub(super) fn publish_host(&self, transaction: &mut Transaction) {
        let uri = self.line.uri().unwrap_or_default();
        let is_connect = self.line.method() == b"CONNECT";
        let of_uri = if is_connect {
            Uri::parse_host(uri)
        } else {
            Uri::parse(uri)
        };
        let header = self.headers.value(b"host");
        let of_header = header.map(Uri::parse_host);
        let header_host = of_header.as_ref().and_then(|host| host.host);
        match (of_uri.host, header_host) {
            (None, None) if self.line.protocol().is_some_and(is_http_11) && header.is_none() => {
                transaction.raise("http.missing_host_header");
            }
            (Some(uri), Some(header)) if !uri.eq_ignore_ascii_case(header) => {
                transaction.raise("http.host_header_ambiguous");
            }
            _ => {}
        }
        if header_host.is_some_and(|host| !is_valid_host(host)) || (header.is_some() && header_host.is_none())
        {
            transaction.raise("http.request_header_host_invalid");
        }
        if of_uri.port.is_some_and(|port| port_of(port).is_none()) {
            transaction.raise("http.invalid_authority_port");
        }
        if let Some(port) = of_header.as_ref().and_then(|host| host.port) {
            match port_of(port) {
                None => transaction.raise("http.invalid_server_port_in_request"),
                Some(port) if self.server_port.is_some_and(|server| server != port) => {
                    transaction.raise("http.request_server_port_tcp_port_mismatch");
                }
                Some(_) => {}
            }
        }
        if self
            .headers
            .value(b"authorization")
            .is_some_and(|value| !has_known_scheme(value))
        {
            transaction.raise("http.request_auth_unrecognized");
        }
        let port = of_uri.port.or(of_header.as_ref().and_then(|host| host.port));
        let port = port.and_then(|port| core::str::from_utf8(port).ok()?.parse().ok());
        if let Some(host) = of_uri.host.or(header_host) {
            let mut normal = host.to_ascii_lowercase();
            while normal.last() == Some(&b'.') {
                normal.pop();
            }
            transaction.publish(Buffer::HttpHost, SIDE, normal.as_slice());
            update_record(transaction, |record| record.hostname = normal);
        }
        if let Some(raw) = of_uri.host.or(header) {
            transaction.publish(Buffer::HttpHostRaw, SIDE, raw);
        }
        update_record(transaction, |record| record.port = port);
    }
}

const HEADERS: MessageHeaders = MessageHeaders {
    side: SIDE,
    first_line: Buffer::HttpRequestLine,
    cookie: b"cookie",
    fields: &[
        (b"user-agent", Buffer::HttpUserAgent),
        (b"referer", Buffer::HttpReferer),
        (b"accept", Buffer::HttpAccept),
        (b"accept-encoding", Buffer::HttpAcceptEnc),
        (b"accept-language", Buffer::HttpAcceptLang),
        (b"connection", Buffer::HttpConnection),
        (b"content-length", Buffer::HttpContentLen),
        (b"content-type", Buffer::HttpContentType),
    ],
};

/// Publishes the buffers and the fields of the record that consist of headers of a request.
pub(in crate::app::http) fn publish_headers(
    transaction: &mut Transaction,
    headers: &Headers,
    settings: &AppSettings,
) {
    HEADERS.publish(transaction, headers, settings);
    let value = |name: &[u8]| headers.value(name).map(<[u8]>::to_vec);
    update_record(transaction, |record| {
        record.user_agent = value(b"user-agent");
        record.referer = value(b"referer");
        record.forwarded_for = value(b"x-forwarded-for");
    });
}

/// Returns the number of a port; `None` if the text is none.
fn port_of(text: &[u8]) -> Option<u16> {
    let port = core::str::from_utf8(text).ok()?.parse().ok();
    port.filter(|port| *port != 0)
}

/// Returns true if the credentials of a request have one of the schemes Basic, Digest and Bearer.
fn has_known_scheme(value: &[u8]) -> bool {
    let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    [&b"basic"[..], b"digest", b"bearer"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}
