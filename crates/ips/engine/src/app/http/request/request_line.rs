//! The first line of a request.

use crate::app::heap::heap;

/// Methods that begin a request behind another one (RFC 9110, RFC 3253, RFC 4918).
pub(super) const METHODS: &[&[u8]] = &[
    b"GET",
    b"HEAD",
    b"PUT",
    b"POST",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"VERSION-CONTROL",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"REPORT",
    b"MKWORKSPACE",
    b"MKACTIVITY",
    b"BASELINE-CONTROL",
    b"MERGE",
    b"INVALID",
];

/// The parts of a request line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RequestLine {
    pub(super) method: Vec<u8>,
    pub(super) uri: Option<Vec<u8>>,
    pub(super) protocol: Option<Vec<u8>>,
    pub(super) has_odd_delimiter: bool,
    pub(super) has_odd_uri: bool,
    pub(super) has_leading_space: bool,
}

heap!(RequestLine {
    method,
    uri,
    protocol
});

/// Returns true for white space between the parts of a request line.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Removes white space from both ends.
pub(in crate::app::http) fn trimmed(text: &[u8]) -> &[u8] {
    let start = text
        .iter()
        .position(|&byte| !is_space(byte))
        .unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|&byte| !is_space(byte))
        .map_or(start, |last| last + 1);
    &text[start..end]
}

/// Splits at the first byte of a kind.
fn split(text: &[u8], at: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| at(byte)) {
        Some(index) => (trimmed(&text[..index]), trimmed(&text[index + 1..])),
        None => (trimmed(text), &[]),
    }
}

impl RequestLine {
    pub(super) fn parse(text: &[u8]) -> RequestLine {
        let start = text
            .iter()
            .position(|&byte| !is_space(byte))
            .unwrap_or(text.len());
        let body = &text[start..];
        let method_size = body.iter().position(|&byte| is_space(byte)).unwrap_or(body.len());
        let rest = &body[method_size..];
        let delimiter = rest.iter().take_while(|&&byte| is_space(byte)).count();
        let mut line = RequestLine {
            method: body[..method_size].to_vec(),
            has_leading_space: start > 0,
            has_odd_delimiter: rest[..delimiter].iter().any(|&byte| byte != b' '),
            ..RequestLine::default()
        };
        let rest = trimmed(rest);
        if rest.is_empty() {
            return line;
        }
        let (mut uri, mut protocol) = split(rest, |byte| byte == b' ');
        if uri.iter().any(|&byte| is_space(byte)) {
            line.has_odd_uri = true;
            if uri.len() == rest.len() {
                (uri, protocol) = split(rest, is_space);
            }
        }
        line.uri = Some(uri.to_vec());
        line.protocol = (!protocol.is_empty()).then(|| protocol.to_vec());
        line
    }
}

/// Returns true if a protocol text means HTTP/1.1.
pub(in crate::app::http) fn is_http_11(protocol: &[u8]) -> bool {
    protocol.to_ascii_uppercase().starts_with(b"HTTP") && protocol.ends_with(b"1.1")
}
