//! The requests of a connection.

use millrace_ips_rules::buffers::Buffer;

use super::body::Body;
use super::headers::{Headers, content_length, line};
use super::uri::Uri;
use super::{HEADERS_SIZE, LINE_SIZE, Method, Pairing, Step, Waiting, update_record};
use crate::app::AppProtocol;
use crate::app::AppSettings;
use crate::app::transaction::{AppEvent, Progress, Transaction, Transactions};
use crate::flow::Direction;

const SIDE: Direction = Direction::ToServer;

/// White space that may follow the line of an HTTP/0.9 request.
const HTTP_09_JUNK: usize = 16;

/// Bytes that wait for the answer to CONNECT.
const TUNNEL_WAIT: usize = 64 << 10;

/// Methods that begin a request behind another one (RFC 9110, RFC 3253, RFC 4918).
const METHODS: &[&[u8]] = &[
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between requests, or in the first line of one.
    #[default]
    Line,
    /// Behind a line without protocol: headers may follow all the same.
    Http09,
    Headers,
    Trailer,
    Sized(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    /// Behind CONNECT, until the response is known.
    Connect,
    /// Behind the headers of an accepted CONNECT: the first bytes of the tunnel.
    Tunnel,
    Failed,
}

/// The parser of the client's bytes.
#[derive(Debug, Default)]
pub(super) struct RequestSide {
    state: State,
    pub(super) pending: Vec<u8>,
    block: Vec<u8>,
    /// The request in progress, or the last one.
    transaction: Option<u64>,
    is_open: bool,
    headers: Headers,
    line: RequestLine,
    body: Option<Body>,
}

/// The parts of a request line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct RequestLine {
    method: Vec<u8>,
    uri: Option<Vec<u8>>,
    protocol: Option<Vec<u8>>,
    has_odd_delimiter: bool,
    has_odd_uri: bool,
    has_leading_space: bool,
}

/// Returns true for white space between the parts of a request line.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Removes white space from both ends.
fn trimmed(text: &[u8]) -> &[u8] {
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
    fn parse(text: &[u8]) -> RequestLine {
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
pub(super) fn is_http_11(protocol: &[u8]) -> bool {
    protocol.to_ascii_uppercase().starts_with(b"HTTP") && protocol.ends_with(b"1.1")
}

/// Returns the size of a chunk in its line, or `None` if the line is not valid; and whether it has extensions.
pub(super) fn chunk_size(text: &[u8]) -> Option<(u64, bool)> {
    let text = trimmed(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let number = core::str::from_utf8(&text[..digits]).ok()?;
    let size = u64::from_str_radix(number, 16)
        .ok()
        .filter(|&size| size <= i32::MAX as u64)?;
    Some((size, text[digits..].contains(&b';')))
}

impl RequestSide {
    /// Takes the next bytes; without bytes it goes on where it waited for the response.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        if pairing.refuses_body {
            pairing.refuses_body = false;
            self.refuse_body(out);
        }
        let mut owned = core::mem::take(&mut self.pending);
        let data = if owned.is_empty() {
            bytes
        } else {
            owned.extend_from_slice(bytes);
            &owned
        };
        let mut at = 0;
        while let Step::Consumed(size) = self.step(&data[at..], pairing, out, settings) {
            at += size;
        }
        let limit = if self.state == State::Connect {
            TUNNEL_WAIT
        } else {
            LINE_SIZE
        };
        if self.state != State::Failed && data.len() - at > limit {
            self.raise(out, "http.request_field_too_long");
            self.fail(out);
        }
        if self.state != State::Failed {
            self.pending = data[at..].to_vec();
        }
    }

    /// Notes lost bytes. Only a body of known size goes on behind them.
    pub(super) fn gap(&mut self, size: u64, out: &mut Transactions) {
        if let State::Sized(left) = self.state
            && size < left
        {
            self.state = State::Sized(left - size);
            if let Some((body, transaction)) = self
                .body
                .as_mut()
                .zip(self.transaction.and_then(|id| out.by_id(id)))
            {
                body.gap(transaction, size);
            }
            return;
        }
        if self.state != State::Tunnel {
            self.fail(out);
        }
    }

    /// Ends the client's bytes.
    pub(super) fn end(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let rest = core::mem::take(&mut self.pending);
        match self.state {
            State::Line if !trimmed(&rest).is_empty() => self.start(&rest, pairing, out),
            State::Headers => {
                self.block.extend_from_slice(&rest);
                self.end_headers(pairing, out, settings);
            }
            _ => {}
        }
        if self.is_open {
            self.close_body(out, false);
            self.complete(out);
        }
        self.state = State::Failed;
    }

    fn raise(&mut self, out: &mut Transactions, event: AppEvent) {
        match self.transaction.and_then(|id| out.by_id(id)) {
            Some(transaction) => transaction.raise(event),
            None => out.raise(event),
        }
    }

    /// Stops parsing of this side.
    fn fail(&mut self, out: &mut Transactions) {
        self.close_body(out, false);
        if self.is_open {
            self.complete(out);
        }
        self.state = State::Failed;
        self.pending = Vec::new();
        self.block = Vec::new();
    }

    fn step(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        match self.state {
            State::Failed => Step::NeedMore,
            State::Tunnel => self.probe_tunnel(data, pairing),
            State::Connect => match pairing.connect.take() {
                None => Step::NeedMore,
                Some(is_accepted) => {
                    self.state = if is_accepted { State::Tunnel } else { State::Line };
                    Step::Consumed(0)
                }
            },
            _ if data.is_empty() => Step::NeedMore,
            State::Line => self.first_line(data, pairing, out),
            State::Http09 => self.http_09(data, out),
            State::Headers | State::Trailer => self.header_line(data, pairing, out, settings),
            State::Sized(left) => {
                let size = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                self.write_body(&data[..size], out, settings);
                self.state = State::Sized(left - size as u64);
                if left == size as u64 {
                    self.finish(out);
                }
                Step::Consumed(size)
            }
            State::ChunkSize => {
                let Some((end, next)) = line(data, SIDE, false) else {
                    return Step::NeedMore;
                };
                let text = trimmed(&data[..end]);
                if text.is_empty() {
                    return Step::Consumed(next);
                }
                match chunk_size(text) {
                    None => {
                        self.raise(out, "http.invalid_request_chunk_len");
                        self.fail(out);
                    }
                    Some((size, has_extension)) => {
                        if has_extension {
                            self.raise(out, "http.request_chunk_extension");
                        }
                        self.state = if size == 0 {
                            State::Trailer
                        } else {
                            State::Chunk(size)
                        };
                    }
                }
                Step::Consumed(next)
            }
            State::Chunk(left) => {
                let size = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                self.write_body(&data[..size], out, settings);
                self.state = if size as u64 == left {
                    State::ChunkEnd
                } else {
                    State::Chunk(left - size as u64)
                };
                Step::Consumed(size)
            }
            State::ChunkEnd => match data.iter().position(|&byte| byte == b'\n') {
                Some(end) => {
                    self.state = State::ChunkSize;
                    Step::Consumed(end + 1)
                }
                None => Step::NeedMore,
            },
        }
    }

    fn first_line(&mut self, data: &[u8], pairing: &mut Pairing, out: &mut Transactions) -> Step {
        let Some((end, next)) = line(data, SIDE, false) else {
            return Step::NeedMore;
        };
        let text = &data[..end];
        if text.is_empty() {
            return Step::Consumed(next);
        }
        if let Some(previous) = self.transaction {
            let parsed = RequestLine::parse(text);
            if parsed.protocol.is_none() && !METHODS.contains(&parsed.method.as_slice()) {
                if let Some(transaction) = out.by_id(previous) {
                    transaction.raise("http.request_body_unexpected");
                }
                return Step::Consumed(next);
            }
        }
        self.start(text, pairing, out);
        Step::Consumed(next)
    }

    /// Begins a request with its first line.
    fn start(&mut self, text: &[u8], pairing: &mut Pairing, out: &mut Transactions) {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        self.line = RequestLine::parse(text);
        self.headers = Headers::default();
        self.block.clear();
        self.body = None;
        self.is_open = true;
        let request = &self.line;
        let transaction = out.start(AppProtocol::Http);
        self.transaction = Some(transaction.id);
        transaction.publish(Buffer::HttpRequestLine, SIDE, text);
        transaction.publish(Buffer::HttpMethod, SIDE, request.method.as_slice());
        let uri = request.uri.as_deref().unwrap_or_default();
        if request.uri.is_some() {
            transaction.publish(Buffer::HttpUriRaw, SIDE, uri);
        }
        let method = match request.method.as_slice() {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        };
        let parsed = if method == Method::Connect {
            Uri::parse_host(uri)
        } else {
            Uri::parse(uri)
        };
        let normal = if method == Method::Connect {
            None
        } else {
            parsed.normalise()
        };
        if let Some(normal) = &normal {
            transaction.publish(Buffer::HttpUri, SIDE, normal.as_slice());
        }
        if let Some(protocol) = &request.protocol {
            transaction.publish(Buffer::HttpProtocol, SIDE, protocol.as_slice());
        }
        if request.has_leading_space {
            transaction.raise("http.request_line_leading_whitespace");
        }
        if request.has_odd_delimiter {
            transaction.raise("http.method_delim_non_compliant");
        }
        if request.has_odd_uri {
            transaction.raise("http.uri_delim_non_compliant");
        }
        if parsed.host.is_some_and(|host| !is_valid_host(host)) {
            transaction.raise("http.uri_host_invalid");
        }
        transaction.advance(SIDE, Progress::Started);
        update_record(transaction, |record| {
            record.method = request.method.clone();
            record.url = uri.to_vec();
            record.protocol = request.protocol.clone().unwrap_or_default();
        });
        // A file is named after the last segment of the path.
        let path = normal
            .as_deref()
            .unwrap_or_default()
            .split(|&byte| byte == b'?')
            .next()
            .unwrap_or_default();
        let file_name = path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default()
            .to_vec();
        pairing.push(Waiting {
            transaction: transaction.id,
            method,
            is_http_09: self.line.protocol.is_none(),
            expects_continue: false,
            file_name,
        });
        self.state = if self.line.protocol.is_some() {
            State::Headers
        } else {
            State::Http09
        };
    }

    /// Decides whether a request without protocol is one of HTTP/0.9 or has headers.
    fn http_09(&mut self, data: &[u8], out: &mut Transactions) -> Step {
        let spaces = data.iter().take_while(|&&byte| is_space(byte)).count();
        if spaces == data.len() && spaces <= HTTP_09_JUNK {
            return Step::NeedMore;
        }
        self.raise(out, "http.request_line_missing_protocol");
        self.state = State::Headers;
        Step::Consumed(0)
    }

    fn header_line(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        let Some((end, next)) = line(data, SIDE, false) else {
            return Step::NeedMore;
        };
        if self.block.len() + next > HEADERS_SIZE {
            self.raise(out, "http.request_field_too_long");
            self.fail(out);
            return Step::Consumed(next);
        }
        self.block.extend_from_slice(&data[..next]);
        if end == 0 {
            self.end_headers(pairing, out, settings);
        }
        Step::Consumed(next)
    }

    /// Publishes the header buffers and decides how the body ends.
    fn end_headers(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let is_trailer = self.state == State::Trailer;
        let block = core::mem::take(&mut self.block);
        let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) else {
            self.state = State::Failed;
            return;
        };
        let mut events = Vec::new();
        self.headers.add_block(&block, SIDE, &mut events);
        for event in events {
            transaction.raise(event);
        }
        if is_trailer {
            let mut raw = transaction
                .buffer(Buffer::HttpHeaderRaw, SIDE)
                .unwrap_or_default()
                .to_vec();
            raw.extend_from_slice(&block);
            transaction.replace(Buffer::HttpHeaderRaw, SIDE, raw);
            publish_headers(transaction, &self.headers);
            self.finish(out);
            return;
        }
        transaction.publish(Buffer::HttpHeaderRaw, SIDE, block);
        publish_headers(transaction, &self.headers);
        self.publish_host(transaction);
        transaction.advance(SIDE, Progress::Headers);
        let expects = self
            .headers
            .value(b"expect")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        if let Some(waiting) = pairing
            .waiting
            .iter_mut()
            .find(|waiting| Some(waiting.transaction) == self.transaction)
        {
            waiting.expects_continue = expects;
        }
        self.decide_body(out, settings);
    }

    fn publish_host(&self, transaction: &mut Transaction) {
        let uri = self.line.uri.as_deref().unwrap_or_default();
        let is_connect = self.line.method == b"CONNECT";
        let of_uri = if is_connect {
            Uri::parse_host(uri)
        } else {
            Uri::parse(uri)
        };
        let header = self.headers.value(b"host");
        let of_header = header.map(Uri::parse_host);
        let header_host = of_header.as_ref().and_then(|host| host.host);
        match (of_uri.host, header_host) {
            (None, None) if self.line.protocol.as_deref().is_some_and(is_http_11) && header.is_none() => {
                transaction.raise("http.missing_host_header");
            }
            (Some(uri), Some(header)) if !uri.eq_ignore_ascii_case(header) => {
                transaction.raise("http.host_header_ambiguous");
            }
            _ => {}
        }
        if header_host.is_some_and(|host| !is_valid_host(host)) || (header.is_some() && header_host.is_none())
        {
            transaction.raise("http.header_host_invalid");
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

    fn decide_body(&mut self, out: &mut Transactions, settings: &AppSettings) {
        let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) else {
            return;
        };
        if self.line.method == b"CONNECT" {
            self.state = State::Connect;
            self.complete(out);
            return;
        }
        let length = self.headers.find(b"content-length");
        let mut state = State::Line;
        if let Some(coding) = self.headers.value(b"transfer-encoding") {
            if coding
                .to_ascii_lowercase()
                .windows(7)
                .any(|window| window == b"chunked")
            {
                if length.is_some() || !self.line.protocol.as_deref().is_some_and(is_http_11) {
                    transaction.raise("http.invalid_transfer_encoding_value_in_request");
                }
                state = State::ChunkSize;
            } else {
                transaction.raise("http.invalid_transfer_encoding_value_in_request");
            }
        } else if let Some(header) = length {
            if header.is_repeated || header.is_folded {
                transaction.raise("http.invalid_content_length_field_in_request");
            }
            match content_length(&header.value) {
                Some(0) => {}
                Some(size) => state = State::Sized(size),
                None => transaction.raise("http.invalid_content_length_field_in_request"),
            }
        }
        self.state = state;
        if state == State::Line {
            self.complete(out);
            return;
        }
        let normal = transaction.buffer(Buffer::HttpUri, SIDE).unwrap_or_default();
        let path = normal.split(|&byte| byte == b'?').next().unwrap_or_default();
        let name = path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default()
            .to_vec();
        transaction.advance(SIDE, Progress::Body);
        self.body = Some(Body::open(transaction, SIDE, &self.headers, &name, settings));
    }

    fn write_body(&mut self, bytes: &[u8], out: &mut Transactions, settings: &AppSettings) {
        if let Some((body, transaction)) = self
            .body
            .as_mut()
            .zip(self.transaction.and_then(|id| out.by_id(id)))
        {
            body.write(transaction, bytes, settings);
        }
    }

    fn close_body(&mut self, out: &mut Transactions, is_complete: bool) {
        let Some(mut body) = self.body.take() else { return };
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            body.close(transaction, is_complete);
            update_record(transaction, |record| record.request_length = body.length);
        }
    }

    /// Ends a request with its body.
    fn finish(&mut self, out: &mut Transactions) {
        self.close_body(out, true);
        self.complete(out);
        self.state = State::Line;
    }

    fn complete(&mut self, out: &mut Transactions) {
        self.is_open = false;
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(SIDE, Progress::Complete);
        }
    }

    /// Ends a request whose body the server does not want.
    fn refuse_body(&mut self, out: &mut Transactions) {
        if matches!(self.state, State::Sized(_) | State::ChunkSize)
            && self.body.as_ref().is_some_and(|body| body.length == 0)
        {
            self.finish(out);
        }
    }

    /// Decides from the first line behind CONNECT whether the tunnel carries HTTP.
    fn probe_tunnel(&mut self, data: &[u8], pairing: &mut Pairing) -> Step {
        if data.is_empty() {
            return Step::NeedMore;
        }
        let size = data.iter().position(|&byte| is_space(byte)).unwrap_or(data.len());
        if METHODS.contains(&&data[..size]) && size < data.len() {
            self.state = State::Line;
            pairing.resumes_http = true;
            return Step::Consumed(0);
        }
        if size == data.len() && METHODS.iter().any(|method| method.starts_with(data)) {
            return Step::NeedMore;
        }
        pairing.is_tunnel = true;
        Step::NeedMore
    }
}

/// Publishes what consists of the headers of a request.
fn publish_headers(transaction: &mut Transaction, headers: &Headers) {
    let lines = headers.lines(b"cookie");
    transaction.replace(Buffer::HttpHeader, SIDE, lines);
    transaction.replace(Buffer::HttpHeaderNames, SIDE, headers.names());
    let mut start = transaction
        .buffer(Buffer::HttpRequestLine, SIDE)
        .unwrap_or_default()
        .to_vec();
    start.extend_from_slice(b"\r\n");
    start.extend_from_slice(&headers.lines(b""));
    start.extend_from_slice(b"\r\n");
    transaction.replace(Buffer::HttpStart, SIDE, start);
    for (name, buffer) in [
        (&b"user-agent"[..], Buffer::HttpUserAgent),
        (b"referer", Buffer::HttpReferer),
        (b"accept", Buffer::HttpAccept),
        (b"accept-encoding", Buffer::HttpAcceptEnc),
        (b"accept-language", Buffer::HttpAcceptLang),
        (b"connection", Buffer::HttpConnection),
        (b"content-length", Buffer::HttpContentLen),
        (b"content-type", Buffer::HttpContentType),
        (b"cookie", Buffer::HttpCookie),
        (b"cookie", Buffer::HttpCookieRaw),
    ] {
        if let Some(value) = headers.value(name) {
            transaction.replace(buffer, SIDE, value);
        }
    }
    let value = |name: &[u8]| headers.value(name).map(<[u8]>::to_vec);
    update_record(transaction, |record| {
        record.user_agent = value(b"user-agent");
        record.referer = value(b"referer");
        record.forwarded_for = value(b"x-forwarded-for");
    });
}

/// Returns true for host names and addresses of usual form.
fn is_valid_host(host: &[u8]) -> bool {
    if let Some(address) = host.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")) {
        return core::str::from_utf8(address).is_ok_and(|text| text.parse::<core::net::Ipv6Addr>().is_ok());
    }
    let is_label = |label: &[u8]| {
        (1..=63).contains(&label.len())
            && label
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    let host = host.strip_suffix(b".").unwrap_or(host);
    host.len() <= 255 && host.split(|&byte| byte == b'.').all(is_label)
}
