//! The streams of a connection: a request and its response each, with the buffers of HTTP/1.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::limits::STREAMS;
use super::upgrade::{self, UpgradeRequest};
use crate::app::dns;
use crate::app::heap::heap;
use crate::app::http::body::{Body, Undoing};
use crate::app::http::headers::{Headers, RECORD_SIZE};
use crate::app::http::publish::update_record;
use crate::app::http::request::publish_headers as publish_request_headers;
use crate::app::http::response::publish_headers as publish_response_headers;
use crate::app::http::uri::Uri;
use crate::app::mail::decode::{Decoder, Encoding};
use crate::app::parameter::file_names;
use crate::app::record::{FIELD_LIST, FIELD_SIZE, Fields};
use crate::app::transaction::{Progress, Transaction, Transactions};
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;

/// Largest size of a DNS message over HTTP (RFC 8484, section 6).
const DNS_SIZE: usize = 65_535;
/// The media type of DNS messages.
const DNS_TYPE: &[u8] = b"application/dns-message";
const PROTOCOL: &[u8] = b"HTTP/2";

/// A side of a stream.
#[derive(Debug, Default)]
struct Side {
    headers: Headers,
    has_headers: bool,
    is_over: bool,
    body: Option<Body>,
    /// The bytes of a DNS message; `None` for other bodies.
    dns: Option<Vec<u8>>,
}

heap!(Side { headers, body, dns });

/// A stream without end.
#[derive(Debug)]
struct Stream {
    number: u32,
    transaction: u64,
    /// The last part of the path, which names the file of the response.
    file_name: Vec<u8>,
    sides: [Side; 2],
}

heap!(Stream { file_name, sides });

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    list: VecDeque<Stream>,
    settings: AppSettings,
}

heap!(Streams { list });

impl Streams {
    pub(super) fn new(settings: AppSettings) -> Streams {
        Streams {
            list: VecDeque::new(),
            settings,
        }
    }

    /// Returns the place of a stream, which begins if it is not there.
    fn place(&mut self, direction: Direction, number: u32, out: &mut Transactions) -> usize {
        if let Some(at) = self.list.iter().position(|stream| stream.number == number) {
            return at;
        }
        if self.list.len() >= STREAMS {
            out.raise("http2.too_many_streams");
            if let Some(oldest) = self.list.front().map(|stream| stream.number) {
                for side in Direction::BOTH {
                    self.end(side, oldest, false, out);
                }
            }
        }
        let transaction = out.start(AppProtocol::Http2);
        update_record(transaction, |record| record.http2_stream = Some(number));
        let mut stream = Stream {
            number,
            transaction: transaction.id,
            file_name: Vec::new(),
            sides: Default::default(),
        };
        if direction == Direction::ToClient {
            // The request was not seen.
            transaction.advance(Direction::ToServer, Progress::Complete);
            transaction.is_inspected[Direction::ToServer.index()] = true;
            stream.sides[Direction::ToServer.index()].is_over = true;
        }
        self.list.push_back(stream);
        self.list.len() - 1
    }

    /// Begins the stream of the request that upgraded the connection: the client has sent it as a whole.
    pub(super) fn upgrade(&mut self, request: UpgradeRequest, out: &mut Transactions) {
        const SIDE: Direction = Direction::ToServer;
        let UpgradeRequest { fields, body } = request;
        self.headers(SIDE, upgrade::STREAM, &fields, out);
        if self.settings.keeps_records {
            self.record_headers(SIDE, upgrade::STREAM, &[], &fields, out);
        }
        let begun = self.list.back().and_then(|stream| out.by_id(stream.transaction));
        if let (Some(transaction), Some(body)) = (begun, body) {
            transaction.publish(Buffer::HttpRequestBody, SIDE, body);
        }
        self.end(SIDE, upgrade::STREAM, true, out);
    }

    /// Adds the fields of a header block: of a message, or behind its body.
    pub(super) fn headers(
        &mut self,
        direction: Direction,
        number: u32,
        fields: &[(Vec<u8>, Vec<u8>)],
        out: &mut Transactions,
    ) {
        let at = self.place(direction, number, out);
        let Some(stream) = self.list.get_mut(at) else {
            return;
        };
        let Some(transaction) = out.by_id(stream.transaction) else {
            return;
        };
        let status = pseudo(fields, b":status");
        let is_interim = status.is_some_and(|status| status.first() == Some(&b'1') && status.len() == 3);
        let side = &mut stream.sides[direction.index()];
        publish_fields(fields, direction, self.settings, transaction);
        if is_interim {
            // The final response follows (RFC 9113, section 8.1).
            return;
        }
        let mut events = Vec::new();
        side.headers.add_fields(direction, &lines(fields), &mut events);
        for event in events {
            transaction.raise(event);
        }
        if core::mem::replace(&mut side.has_headers, true) {
            transaction.has_new_trailer[direction.index()] = true;
        } else if direction == Direction::ToServer {
            stream.file_name = begin_request(fields, transaction);
        } else {
            begin_response(status.unwrap_or_default(), transaction);
        }
        let headers = &stream.sides[direction.index()].headers;
        match direction {
            Direction::ToServer => publish_request_headers(transaction, headers, &self.settings),
            Direction::ToClient => publish_response_headers(transaction, headers, &self.settings),
        }
        transaction.compose(Buffer::HttpHeaderRaw, direction, None, |text| {
            headers.write_lines(b"", text);
        });
        transaction.advance(direction, Progress::Headers);
        let query = pseudo(fields, b":path")
            .and_then(dns_query)
            .filter(|_| direction == Direction::ToServer);
        if let Some(message) = query {
            out.carries_dns = true;
            dns::message(&message, direction, out);
        }
    }

    /// Adds the names of the headers of a promised request to the stream on which the server promises it.
    pub(super) fn promise(
        &mut self,
        direction: Direction,
        number: u32,
        fields: &[(Vec<u8>, Vec<u8>)],
        out: &mut Transactions,
    ) {
        let known = self.list.iter().find(|stream| stream.number == number);
        let Some(transaction) = known.and_then(|stream| out.by_id(stream.transaction)) else {
            return;
        };
        publish_fields(fields, direction, self.settings, transaction);
        transaction.advance(direction, Progress::Started);
    }

    /// Adds the headers of a block, and the sizes of the table in front of them, to the record of their stream.
    pub(super) fn record_headers(
        &mut self,
        direction: Direction,
        number: u32,
        sizes: &[(NumberField, u64)],
        fields: &[(Vec<u8>, Vec<u8>)],
        out: &mut Transactions,
    ) {
        let known = self.list.iter().find(|stream| stream.number == number);
        let Some(transaction) = known.and_then(|stream| out.by_id(stream.transaction)) else {
            return;
        };
        update_record(transaction, |record| {
            let list = &mut record.headers[direction.index()];
            let mut left = RECORD_SIZE;
            let room = FIELD_LIST.saturating_sub(list.len());
            for (_, size) in sizes.iter().take(room) {
                let mut entry = Fields::default();
                entry.number("table_size_update", *size);
                list.push(entry);
            }
            let room = FIELD_LIST.saturating_sub(list.len());
            for (name, value) in fields.iter().take(room) {
                let size = name.len().min(FIELD_SIZE) + value.len().min(FIELD_SIZE);
                let Some(rest) = left.checked_sub(size) else {
                    break;
                };
                left = rest;
                let mut entry = Fields::default();
                entry.text("name", name).text("value", value);
                list.push(entry);
            }
        });
    }

    /// Adds numbers of a frame to the transaction of its stream, and values to its record; without one, the frame is a transaction:
    /// for rules if it has numbers, else only for the record of a frame outside of streams.
    pub(super) fn note(
        &mut self,
        direction: Direction,
        number: u32,
        numbers: &[(NumberField, u64)],
        values: Fields,
        out: &mut Transactions,
    ) {
        if numbers.is_empty() && values.list.is_empty() {
            return;
        }
        let known = self.list.iter().find(|stream| stream.number == number);
        let id = known.map(|stream| stream.transaction);
        let (transaction, is_own) = match id {
            Some(id) => (out.by_id(id), false),
            None if numbers.is_empty() && number != 0 => return,
            None => (Some(out.start(AppProtocol::Http2)), true),
        };
        let Some(transaction) = transaction else {
            return;
        };
        for (field, value) in numbers {
            transaction.number_once(*field, direction, *value);
        }
        if !values.list.is_empty() {
            update_record(transaction, |record| {
                record.http2_stream = Some(number);
                let known = &mut record.frames[direction.index()];
                for (name, value) in values.list {
                    if known.value(name).is_none() {
                        known.list.push((name, value));
                    } else if name != "settings" && known.value("has_multiple").is_none() {
                        known.text("has_multiple", name.as_bytes());
                    }
                }
            });
        }
        if is_own {
            Direction::BOTH
                .into_iter()
                .for_each(|side| transaction.advance(side, Progress::Complete));
            transaction.is_inspected[direction.reverse().index()] = true;
            if numbers.is_empty() {
                transaction.is_inspected[direction.index()] = true;
            }
        }
    }

    /// Adds bytes of a body.
    pub(super) fn data(&mut self, direction: Direction, number: u32, bytes: &[u8], out: &mut Transactions) {
        let settings = self.settings;
        let at = self.place(direction, number, out);
        let Some(stream) = self.list.get_mut(at) else {
            return;
        };
        let Some(transaction) = out.by_id(stream.transaction) else {
            return;
        };
        let side = &mut stream.sides[direction.index()];
        if side.is_over {
            transaction.raise("http2.stream_id_reuse");
            return;
        }
        let body = match &mut side.body {
            Some(body) => body,
            none => {
                transaction.advance(direction, Progress::Body);
                let is_dns = side
                    .headers
                    .value(b"content-type")
                    .is_some_and(|kind| kind.eq_ignore_ascii_case(DNS_TYPE));
                side.dns = is_dns.then(Vec::new);
                let disposition = side.headers.value(b"content-disposition");
                let names = disposition.map(file_names).unwrap_or_default();
                let name = match direction {
                    Direction::ToServer => names.first().map_or(&b""[..], Vec::as_slice),
                    Direction::ToClient => names.first().map_or(&stream.file_name[..], Vec::as_slice),
                };
                none.insert(Body::open(
                    transaction,
                    direction,
                    &side.headers,
                    name,
                    (&settings, Undoing::Declared),
                ))
            }
        };
        body.write(transaction, bytes, &settings);
        let has_range = transaction.range.is_some();
        if let Some(message) = &mut side.dns {
            match message.len() + bytes.len() <= DNS_SIZE {
                true => message.extend_from_slice(bytes),
                false => {
                    side.dns = None;
                    transaction.raise(match direction {
                        Direction::ToServer => "http2.dns_request_too_long",
                        Direction::ToClient => "http2.dns_response_too_long",
                    });
                }
            }
        }
        out.has_ranges |= has_range;
    }

    /// Records lost bytes of a direction.
    pub(super) fn gap(&mut self, direction: Direction, size: u64, out: &mut Transactions) {
        for stream in &mut self.list {
            let side = &mut stream.sides[direction.index()];
            if let (Some(body), Some(transaction)) = (&mut side.body, out.by_id(stream.transaction)) {
                body.gap(transaction, size);
            }
        }
    }

    /// Ends a direction of a stream; the stream ends with both.
    pub(super) fn end(
        &mut self,
        direction: Direction,
        number: u32,
        is_complete: bool,
        out: &mut Transactions,
    ) {
        let Some(at) = self.list.iter().position(|stream| stream.number == number) else {
            return;
        };
        let stream = &mut self.list[at];
        let side = &mut stream.sides[direction.index()];
        side.is_over = true;
        let (body, message) = (side.body.take(), side.dns.take());
        let is_over = stream.sides.iter().all(|side| side.is_over);
        if let Some(transaction) = out.by_id(stream.transaction) {
            if let Some(mut body) = body {
                body.close(transaction, is_complete);
                let length = body.length;
                update_record(transaction, |record| match direction {
                    Direction::ToServer => record.request_length = length,
                    Direction::ToClient => record.length = length,
                });
            }
            transaction.advance(direction, Progress::Complete);
        }
        if is_over {
            self.list.remove(at);
        }
        if let Some(message) = message.filter(|_| is_complete) {
            out.carries_dns = true;
            dns::message(&message, direction, out);
        }
    }

    /// Ends a direction of all streams.
    pub(super) fn end_all(&mut self, direction: Direction, out: &mut Transactions) {
        let numbers: Vec<u32> = self.list.iter().map(|stream| stream.number).collect();
        for number in numbers {
            self.end(direction, number, false, out);
        }
    }
}

/// Publishes the names of headers, and if rules ask for them the headers.
fn publish_fields(
    fields: &[(Vec<u8>, Vec<u8>)],
    direction: Direction,
    settings: AppSettings,
    transaction: &mut Transaction,
) {
    for (name, value) in fields {
        transaction.publish(Buffer::Http2HeaderName, direction, name.as_slice());
        if settings.asks.http2_headers {
            let doubled = |text: &[u8]| {
                let parts: Vec<&[u8]> = text.split(|byte| *byte == b':').collect();
                parts.join(&b"::"[..])
            };
            let header = [&doubled(name), &b": "[..], &doubled(value)].concat();
            transaction.publish(Buffer::Http2Header, direction, header.as_slice());
        }
    }
}

/// Returns the value of a pseudo-header (RFC 9113, section 8.3).
fn pseudo<'a>(fields: &'a [(Vec<u8>, Vec<u8>)], name: &[u8]) -> Option<&'a [u8]> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_slice())
}

/// Returns the fields that HTTP/1 would have: `:authority` is the host, and the parts of a cookie are one (sections 8.2.3
/// and 8.3.1).
fn lines(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(fields.len());
    let has_host = fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    for (name, value) in fields {
        if name == b":authority" && !has_host {
            lines.push((b"host".to_vec(), value.clone()));
        }
        if name.starts_with(b":") {
            continue;
        }
        let cookie = lines
            .iter_mut()
            .find(|(known, _)| name == b"cookie" && known == name);
        match cookie {
            Some((_, joined)) => {
                joined.extend_from_slice(b"; ");
                joined.extend_from_slice(value);
            }
            None => lines.push((name.clone(), value.clone())),
        }
    }
    lines
}

/// Publishes the buffers of a request that come before its headers; returns the name of the file that it asks for.
fn begin_request(fields: &[(Vec<u8>, Vec<u8>)], transaction: &mut Transaction) -> Vec<u8> {
    const SIDE: Direction = Direction::ToServer;
    let of = |name: &[u8]| pseudo(fields, name).unwrap_or_default();
    let (method, path) = (of(b":method"), of(b":path"));
    let line = [method, b" ", path, b" ", PROTOCOL].concat();
    transaction.publish(Buffer::HttpRequestLine, SIDE, line.as_slice());
    transaction.publish(Buffer::HttpMethod, SIDE, method);
    transaction.publish(Buffer::HttpProtocol, SIDE, PROTOCOL);
    let normal = Uri::parse(path).normalise();
    if !path.is_empty() {
        transaction.publish(Buffer::HttpUriRaw, SIDE, path);
    }
    if let Some(normal) = &normal {
        transaction.publish(Buffer::HttpUri, SIDE, normal.as_slice());
    }
    let header = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    let header = header.map(|(_, value)| value.as_slice());
    let authority = pseudo(fields, b":authority").or(header);
    let host = authority.map(Uri::parse_host);
    if let Some(authority) = authority {
        transaction.publish(Buffer::HttpHostRaw, SIDE, authority);
        if authority.contains(&b'@') {
            transaction.raise("http2.userinfo_in_uri");
        }
        if header.is_some_and(|header| !header.eq_ignore_ascii_case(authority)) {
            transaction.raise("http2.authority_host_mismatch");
        }
    }
    let name = host
        .as_ref()
        .and_then(|host| host.host)
        .map(<[u8]>::to_ascii_lowercase);
    if let Some(name) = &name {
        transaction.publish(Buffer::HttpHost, SIDE, name.as_slice());
    }
    let port = host.and_then(|host| core::str::from_utf8(host.port?).ok()?.parse().ok());
    update_record(transaction, |record| {
        record.method = method.to_vec();
        record.url = path.to_vec();
        record.protocol = PROTOCOL.to_vec();
        record.hostname = name.unwrap_or_default();
        record.port = port;
    });
    let path = normal.as_deref().unwrap_or(path);
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    path.rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// Publishes the buffers of a response that come before its headers.
fn begin_response(status: &[u8], transaction: &mut Transaction) {
    const SIDE: Direction = Direction::ToClient;
    let line = [PROTOCOL, b" ", status].concat();
    transaction.publish(Buffer::HttpResponseLine, SIDE, line.as_slice());
    transaction.publish(Buffer::HttpProtocol, SIDE, PROTOCOL);
    transaction.publish(Buffer::HttpStatCode, SIDE, status);
    let code = core::str::from_utf8(status)
        .ok()
        .and_then(|text| text.parse().ok());
    update_record(transaction, |record| record.status = code);
}

/// Returns the DNS message in the query of a path (RFC 8484, section 4.1.1).
fn dns_query(path: &[u8]) -> Option<Vec<u8>> {
    let (_, query) = path.split_at_checked(path.iter().position(|byte| *byte == b'?')? + 1)?;
    let mut parts = query.split(|byte| *byte == b'&');
    let text = parts.find_map(|part| part.strip_prefix(b"dns="))?;
    // The alphabet of URLs (RFC 4648, section 5).
    let text: Vec<u8> = text
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let (message, _) = Decoder::new(Encoding::Base64).line(&text, b"");
    Some(message).filter(|message| dns::is_message(message) && message.len() <= DNS_SIZE)
}
