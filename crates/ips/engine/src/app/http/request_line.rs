//! The first line of a request.

use memchr::memchr_iter;

use crate::app::heap::heap;
use crate::app::http::framing::is_protocol;
use crate::app::text::Span;

/// Methods that begin a request after another one (RFC 9110, RFC 3253, RFC 4918).
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
    text: Vec<u8>,
    method: Span,
    uri: Option<Span>,
    protocol: Option<Span>,
    /// The URI up to its first white space, if it has some: other recipients end it there.
    cut_uri: Option<Span>,
    pub(super) has_odd_delimiter: bool,
    pub(super) has_odd_uri: bool,
    pub(super) has_leading_space: bool,
}

heap!(RequestLine { text });

/// Returns true for white space between the parts of a request line.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Removes white space from both ends.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
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

/// Returns true if a URI has an encoded percent sign in front of two hexadecimal digits: decoded twice, it is another one.
pub(super) fn is_encoded_twice(uri: &[u8]) -> bool {
    memchr_iter(b'%', uri).any(|at| {
        let encoded = uri[at + 1..].first_chunk::<4>();
        encoded.is_some_and(|[two, five, digits @ ..]| {
            [*two, *five] == *b"25" && digits.iter().all(u8::is_ascii_hexdigit)
        })
    })
}

impl RequestLine {
    /// Returns true if the line has a URI, and its method is a token (RFC 9110, section 5.6.2).
    pub(super) fn is_valid(&self) -> bool {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        self.uri.is_some() && !self.method().is_empty() && self.method().iter().all(is_token)
    }

    /// Parses a line; its parts replace those of the previous line.
    pub(super) fn parse(&mut self, line: &[u8]) {
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        text.reserve(line.len());
        let start = line
            .iter()
            .position(|&byte| !is_space(byte))
            .unwrap_or(line.len());
        let body = &line[start..];
        let method_size = body.iter().position(|&byte| is_space(byte)).unwrap_or(body.len());
        let rest = &body[method_size..];
        let delimiter = rest.iter().take_while(|&&byte| is_space(byte)).count();
        let has_odd_delimiter = rest[..delimiter].iter().any(|&byte| byte != b' ');
        let method = Span::append(&mut text, &body[..method_size]);
        let rest = trimmed(rest);
        let (mut uri, mut protocol) = split(rest, |byte| byte == b' ');
        let mut has_odd_uri = uri.iter().any(|&byte| is_space(byte));
        if has_odd_uri && uri.len() == rest.len() {
            (uri, protocol) = split(rest, is_space);
        }
        // The last part is the protocol, and the URI has white space.
        let mut cut = None;
        let last = rest.iter().rposition(|&byte| is_space(byte)).unwrap_or(0);
        let before = trimmed(&rest[..last]);
        if last > 0 && is_protocol(trimmed(&rest[last..])) && before.iter().any(|&byte| is_space(byte)) {
            cut = Some(split(before, is_space).0);
            (uri, protocol) = (before, trimmed(&rest[last..]));
            has_odd_uri = uri.iter().any(|&byte| is_space(byte) && byte != b' ');
        }
        *self = RequestLine {
            method,
            uri: (!rest.is_empty()).then(|| Span::append(&mut text, uri)),
            protocol: (!protocol.is_empty()).then(|| Span::append(&mut text, protocol)),
            cut_uri: cut.map(|cut| Span::append(&mut text, cut)),
            has_odd_delimiter,
            has_odd_uri,
            has_leading_space: start > 0,
            text,
        };
    }

    pub(super) fn method(&self) -> &[u8] {
        self.method.of(&self.text)
    }

    pub(super) fn uri(&self) -> Option<&[u8]> {
        Some(self.uri?.of(&self.text))
    }

    pub(super) fn cut_uri(&self) -> Option<&[u8]> {
        Some(self.cut_uri?.of(&self.text))
    }

    pub(super) fn protocol(&self) -> Option<&[u8]> {
        Some(self.protocol?.of(&self.text))
    }
}

/// Returns true if a protocol text means HTTP/1.1.
pub(super) fn is_http_11(protocol: &[u8]) -> bool {
    let is_http = protocol
        .get(..4)
        .is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP"));
    is_http && protocol.ends_with(b"1.1")
}
