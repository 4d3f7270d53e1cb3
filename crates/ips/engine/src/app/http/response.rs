//! The responses of a connection.

use millrace_ips_rules::buffers::Buffer;

use super::body::Body;
use super::headers::{Headers, content_length, line};
use super::request::{chunk_size, is_http_11};
use super::{HEADERS_SIZE, LINE_SIZE, Method, Pairing, Step, Waiting, multipart, update_record};
use crate::app::AppProtocol;
use crate::app::AppSettings;
use crate::app::transaction::{AppEvent, Progress, Transaction, Transactions};
use crate::flow::Direction;

const SIDE: Direction = Direction::ToClient;

/// The URI that libhtp gives to a request that was not seen.
const UNSEEN: &[u8] = b"/libhtp::request_uri_not_seen";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between responses.
    #[default]
    Idle,
    Line,
    Headers,
    Trailer,
    Sized(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    /// In a line behind the last response that belongs to none.
    Junk,
    /// Behind the headers that open a tunnel or change the protocol.
    Tunnel,
    Failed,
}

/// The parser of the server's bytes.
#[derive(Debug, Default)]
pub(super) struct ResponseSide {
    state: State,
    pub(super) pending: Vec<u8>,
    block: Vec<u8>,
    /// The response in progress.
    current: Option<Waiting>,
    /// The transaction of the last response.
    previous: Option<u64>,
    headers: Headers,
    protocol: Vec<u8>,
    status: Option<u16>,
    has_continued: bool,
    body: Option<Body>,
}

/// The first bytes of a line, as far as they decide whether it is a status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Status,
    Other,
    Undecided,
}

/// Returns the kind of a line: browsers accept every line that begins with "http" as a status line.
fn line_kind(data: &[u8]) -> LineKind {
    let start = data
        .iter()
        .position(|&byte| !byte.is_ascii_whitespace() && byte != 0 && byte != 0x0b);
    let Some(start) = start else {
        return LineKind::Undecided;
    };
    let head = &data[start..(start + 4).min(data.len())];
    if !b"http"[..head.len()].eq_ignore_ascii_case(head) {
        LineKind::Other
    } else if head.len() == 4 {
        LineKind::Status
    } else {
        LineKind::Undecided
    }
}

impl ResponseSide {
    /// Takes the next bytes.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        if core::mem::take(&mut pairing.resumes_http) && self.state == State::Tunnel {
            self.state = State::Idle;
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
        if !matches!(self.state, State::Failed | State::Tunnel) && data.len() - at > LINE_SIZE {
            self.raise(out, "http.response_field_too_long");
            self.fail(out);
        }
        if self.state != State::Failed {
            self.pending = data[at..].to_vec();
        }
    }

    /// Returns true if the server's bytes wait for the client to show what a tunnel carries.
    pub(super) fn waits_in_tunnel(&self) -> bool {
        self.state == State::Tunnel && !self.pending.is_empty()
    }

    /// Notes lost bytes. Only a body of known size, or one that the end of the stream ends, goes on behind them.
    pub(super) fn gap(&mut self, size: u64, out: &mut Transactions) {
        match self.state {
            State::Sized(left) if size < left => self.state = State::Sized(left - size),
            State::UntilClose => {}
            State::Tunnel => return,
            _ => {
                self.close_body(out, false);
                if let Some(transaction) = self
                    .current
                    .as_ref()
                    .and_then(|current| out.by_id(current.transaction))
                {
                    transaction.advance(SIDE, Progress::Complete);
                }
                self.current = None;
                self.state = State::Failed;
                self.pending = Vec::new();
                return;
            }
        }
        let transaction = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction));
        if let Some((body, transaction)) = self.body.as_mut().zip(transaction) {
            body.gap(transaction, size);
        }
    }

    /// Ends the server's bytes.
    pub(super) fn end(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let rest = core::mem::take(&mut self.pending);
        match self.state {
            State::Idle | State::Line if line_kind(&rest) == LineKind::Status => {
                self.begin(pairing, out);
                self.status_line(&rest, out);
            }
            State::Headers => {
                self.block.extend_from_slice(&rest);
                self.end_headers(pairing, out, settings);
            }
            _ => {}
        }
        if self.current.is_some() {
            self.finish(out, self.state == State::UntilClose);
        }
        self.state = State::Failed;
    }

    fn raise(&mut self, out: &mut Transactions, event: AppEvent) {
        match self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction))
        {
            Some(transaction) => transaction.raise(event),
            None => out.raise(event),
        }
    }

    fn fail(&mut self, out: &mut Transactions) {
        if self.current.is_some() {
            self.finish(out, false);
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
        if data.is_empty() {
            return Step::NeedMore;
        }
        match self.state {
            State::Failed => Step::NeedMore,
            State::Tunnel => Step::NeedMore,
            State::Junk => {
                let end = data.iter().position(|&byte| byte == b'\n');
                if end.is_some() {
                    self.state = State::Idle;
                }
                Step::Consumed(end.map_or(data.len(), |end| end + 1))
            }
            State::Idle => self.idle(data, pairing, out, settings),
            State::Line => self.first_line(data, out, settings),
            State::Headers | State::Trailer => {
                let Some((end, next)) = line(data, SIDE, false) else {
                    return Step::NeedMore;
                };
                if self.block.len() + next > HEADERS_SIZE {
                    self.raise(out, "http.response_field_too_long");
                    self.fail(out);
                    return Step::Consumed(next);
                }
                self.block.extend_from_slice(&data[..next]);
                if end == 0 {
                    self.end_headers(pairing, out, settings);
                }
                Step::Consumed(next)
            }
            State::Sized(left) => {
                let size = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                self.write_body(&data[..size], out, settings);
                self.state = State::Sized(left - size as u64);
                if left == size as u64 {
                    self.finish(out, true);
                }
                Step::Consumed(size)
            }
            State::UntilClose => {
                self.write_body(data, out, settings);
                Step::Consumed(data.len())
            }
            State::ChunkSize => {
                let Some((end, next)) = line(data, SIDE, false) else {
                    // A line that does not begin with a digit is no size: the body ends with the stream.
                    return match data.iter().find(|byte| !byte.is_ascii_whitespace()) {
                        Some(byte) if !byte.is_ascii_hexdigit() => {
                            self.raise(out, "http.invalid_response_chunk_len");
                            self.state = State::UntilClose;
                            Step::Consumed(0)
                        }
                        _ => Step::NeedMore,
                    };
                };
                let text = data[..end].trim_ascii();
                if text.is_empty() {
                    return Step::Consumed(next);
                }
                match chunk_size(text) {
                    None => {
                        self.raise(out, "http.invalid_response_chunk_len");
                        self.state = State::UntilClose;
                        return Step::Consumed(0);
                    }
                    Some((size, has_extension)) => {
                        if has_extension {
                            self.raise(out, "http.response_chunk_extension");
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

    /// Begins the response to the oldest request that has none.
    fn begin(&mut self, pairing: &mut Pairing, out: &mut Transactions) {
        if self.current.is_some() {
            return;
        }
        self.headers = Headers::default();
        self.has_continued = false;
        self.block.clear();
        let waiting = pairing.waiting.pop_front().unwrap_or_else(|| {
            let transaction = out.start(AppProtocol::Http);
            transaction.raise("http.unable_to_match_response_to_request");
            transaction.publish(Buffer::HttpUriRaw, Direction::ToServer, UNSEEN);
            transaction.advance(Direction::ToServer, Progress::Complete);
            update_record(transaction, |record| record.url = UNSEEN.to_vec());
            Waiting {
                transaction: transaction.id,
                method: Method::Other,
                is_http_09: false,
                expects_continue: false,
                file_name: UNSEEN[1..].to_vec(),
            }
        });
        if let Some(transaction) = out.by_id(waiting.transaction) {
            transaction.advance(SIDE, Progress::Started);
            if waiting.is_http_09 {
                transaction.advance(Direction::ToServer, Progress::Complete);
            }
        }
        self.current = Some(waiting);
    }

    fn idle(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        let is_http_09 = pairing.waiting.front().is_some_and(|waiting| waiting.is_http_09);
        if is_http_09 && line_kind(data) == LineKind::Undecided {
            return Step::NeedMore;
        }
        if is_http_09 && line_kind(data) == LineKind::Other {
            self.begin(pairing, out);
            self.open_body(out, settings);
            self.state = State::UntilClose;
            return Step::Consumed(0);
        }
        // Bytes behind a response that no request asked for belong to it.
        if pairing.waiting.is_empty()
            && let Some(previous) = self.previous
        {
            match line_kind(data) {
                LineKind::Undecided => return Step::NeedMore,
                LineKind::Status => {}
                LineKind::Other => {
                    if let Some(transaction) = out.by_id(previous) {
                        transaction.raise("http.response_body_unexpected");
                    }
                    self.state = State::Junk;
                    return Step::Consumed(0);
                }
            }
        }
        self.begin(pairing, out);
        self.state = State::Line;
        Step::Consumed(0)
    }

    fn first_line(&mut self, data: &[u8], out: &mut Transactions, settings: &AppSettings) -> Step {
        let complete = line(data, SIDE, false);
        let text = complete.map_or(data, |(end, _)| &data[..end]);
        let is_blank = text
            .iter()
            .all(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b));
        match (line_kind(text), complete) {
            (_, Some((_, next))) if is_blank => Step::Consumed(next),
            (LineKind::Status, Some((_, next))) => {
                self.status_line(text, out);
                Step::Consumed(next)
            }
            (LineKind::Other, _) | (LineKind::Undecided, Some(_)) => {
                // The bytes are a body without headers, as browsers take them.
                self.open_body(out, settings);
                self.state = State::UntilClose;
                Step::Consumed(0)
            }
            (LineKind::Undecided | LineKind::Status, None) => Step::NeedMore,
        }
    }

    fn status_line(&mut self, text: &[u8], out: &mut Transactions) {
        let Some(transaction) = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction))
        else {
            self.state = State::Failed;
            return;
        };
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let start = text
            .iter()
            .position(|byte| !is_space(byte) && *byte != 0)
            .unwrap_or(text.len());
        let body = &text[start..];
        let protocol = &body[..body.iter().position(is_space).unwrap_or(body.len())];
        let rest = &body[protocol.len()..];
        let rest = &rest[rest.iter().take_while(|byte| is_space(byte)).count()..];
        let status = &rest[..rest.iter().position(is_space).unwrap_or(rest.len())];
        let tail = &rest[status.len()..];
        let message = &tail[tail.iter().take_while(|byte| is_space(byte)).count()..];
        transaction.replace(Buffer::HttpResponseLine, SIDE, text);
        transaction.replace(Buffer::HttpProtocol, SIDE, protocol);
        if !status.is_empty() {
            transaction.replace(Buffer::HttpStatCode, SIDE, status);
            if !tail.is_empty() {
                transaction.replace(Buffer::HttpStatMsg, SIDE, message);
            }
        }
        let number = core::str::from_utf8(status)
            .ok()
            .and_then(|text| text.parse::<u16>().ok());
        self.status = number.filter(|status| (100..=999).contains(status));
        self.protocol = protocol.to_vec();
        if self.status.is_none() {
            transaction.raise("http.response_invalid_status");
        }
        let upper = protocol.to_ascii_uppercase();
        if !(upper.starts_with(b"HTTP/") && (upper.ends_with(b"1.0") || upper.ends_with(b"1.1"))) {
            transaction.raise("http.response_invalid_protocol");
        }
        let status = self.status;
        update_record(transaction, |record| record.status = status);
        self.state = State::Headers;
    }

    fn end_headers(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let is_trailer = self.state == State::Trailer;
        let block = core::mem::take(&mut self.block);
        let Some(transaction) = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction))
        else {
            self.state = State::Failed;
            return;
        };
        let mut events = Vec::new();
        self.headers.add_block(&block, SIDE, &mut events);
        for event in events {
            transaction.raise(event);
        }
        let mut raw = if is_trailer {
            transaction
                .buffer(Buffer::HttpHeaderRaw, SIDE)
                .unwrap_or_default()
                .to_vec()
        } else {
            Vec::new()
        };
        raw.extend_from_slice(&block);
        transaction.replace(Buffer::HttpHeaderRaw, SIDE, raw);
        publish_headers(transaction, &self.headers);
        if is_trailer {
            self.finish(out, true);
            return;
        }
        let length = self
            .headers
            .value(b"content-length")
            .and_then(content_length)
            .unwrap_or(0);
        if self.status == Some(100) && self.headers.value(b"transfer-encoding").is_none() && length == 0 {
            if self.has_continued {
                transaction.raise("http.100_continue_already_seen");
            }
            transaction.remove_direction(SIDE);
            self.has_continued = true;
            self.headers = Headers::default();
            self.state = State::Line;
            return;
        }
        transaction.advance(SIDE, Progress::Headers);
        self.decide_body(pairing, out, settings);
    }

    fn decide_body(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let Some(current) = &self.current else { return };
        let Some(transaction) = out.by_id(current.transaction) else {
            self.state = State::Failed;
            return;
        };
        let status = self.status.unwrap_or(0);
        let coding = self.headers.value(b"transfer-encoding");
        let length = self.headers.find(b"content-length");
        let has_framing = coding.is_some() || length.is_some();
        if current.method == Method::Connect {
            let is_accepted = (200..300).contains(&status);
            if status != 407 || pairing.connect.is_none() {
                pairing.connect = Some(is_accepted);
            }
            if is_accepted {
                self.finish(out, true);
                self.state = State::Tunnel;
                return;
            }
        }
        if status == 101 && !has_framing {
            self.finish(out, true);
            pairing.is_tunnel = true;
            self.state = State::Tunnel;
            return;
        }
        if (400..500).contains(&status) && current.expects_continue {
            pairing.refuses_body = true;
        }
        let has_no_body = current.method == Method::Head
            || (!has_framing && ((100..200).contains(&status) || status == 204 || status == 304));
        if has_no_body {
            self.finish(out, true);
            return;
        }
        let mut state = State::UntilClose;
        if let Some(value) = coding.filter(|value| contains_chunked(value)) {
            if !value.eq_ignore_ascii_case(b"chunked") {
                transaction.raise("http.response_abnormal_transfer_encoding");
            }
            if !is_http_11(&self.protocol) {
                transaction.raise("http.response_chunked_old_proto");
            }
            state = State::ChunkSize;
        } else if let Some(header) = length {
            match content_length(&header.value) {
                Some(0) => {
                    self.finish(out, true);
                    return;
                }
                Some(size) => state = State::Sized(size),
                None => {
                    transaction.raise("http.invalid_content_length_field_in_response");
                    self.fail(out);
                    return;
                }
            }
        }
        transaction.advance(SIDE, Progress::Body);
        self.state = state;
        self.open_body(out, settings);
    }

    fn open_body(&mut self, out: &mut Transactions, settings: &AppSettings) {
        let Some(current) = &self.current else { return };
        let Some(transaction) = out.by_id(current.transaction) else {
            return;
        };
        transaction.advance(SIDE, Progress::Body);
        let disposition = self.headers.value(b"content-disposition");
        let name = disposition.and_then(|value| multipart::parameter(value, b"filename"));
        let name = name.unwrap_or_else(|| current.file_name.clone());
        self.body = Some(Body::open(transaction, SIDE, &self.headers, &name, settings));
    }

    fn write_body(&mut self, bytes: &[u8], out: &mut Transactions, settings: &AppSettings) {
        let transaction = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction));
        if let Some((body, transaction)) = self.body.as_mut().zip(transaction) {
            body.write(transaction, bytes, settings);
        }
    }

    fn close_body(&mut self, out: &mut Transactions, is_complete: bool) {
        let Some(mut body) = self.body.take() else { return };
        if let Some(transaction) = self
            .current
            .as_ref()
            .and_then(|current| out.by_id(current.transaction))
        {
            body.close(transaction, is_complete);
            update_record(transaction, |record| record.length = body.length);
        }
    }

    /// Ends a response.
    fn finish(&mut self, out: &mut Transactions, is_complete: bool) {
        self.close_body(out, is_complete);
        if let Some(current) = self.current.take() {
            if let Some(transaction) = out.by_id(current.transaction) {
                transaction.advance(SIDE, Progress::Complete);
            }
            self.previous = Some(current.transaction);
        }
        self.state = State::Idle;
    }
}

/// Returns true if a Transfer-Encoding value has the coding "chunked".
fn contains_chunked(value: &[u8]) -> bool {
    value
        .to_ascii_lowercase()
        .windows(7)
        .any(|window| window == b"chunked")
}

/// Publishes what consists of the headers of a response.
fn publish_headers(transaction: &mut Transaction, headers: &Headers) {
    transaction.replace(Buffer::HttpHeader, SIDE, headers.lines(b"set-cookie"));
    transaction.replace(Buffer::HttpHeaderNames, SIDE, headers.names());
    let mut start = transaction
        .buffer(Buffer::HttpResponseLine, SIDE)
        .unwrap_or_default()
        .to_vec();
    start.extend_from_slice(b"\r\n");
    start.extend_from_slice(&headers.lines(b""));
    start.extend_from_slice(b"\r\n");
    transaction.replace(Buffer::HttpStart, SIDE, start);
    for (name, buffer) in [
        (&b"connection"[..], Buffer::HttpConnection),
        (b"content-length", Buffer::HttpContentLen),
        (b"content-type", Buffer::HttpContentType),
        (b"location", Buffer::HttpLocation),
        (b"server", Buffer::HttpServer),
        (b"set-cookie", Buffer::HttpCookie),
        (b"set-cookie", Buffer::HttpCookieRaw),
    ] {
        if let Some(value) = headers.value(name) {
            transaction.replace(buffer, SIDE, value);
        }
    }
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
