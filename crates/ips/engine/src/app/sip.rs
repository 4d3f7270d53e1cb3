//! SIP (RFC 3261): requests and responses over UDP, where a datagram is a message, and over TCP, where Content-Length
//! ends one.

use std::borrow::Cow;

use millrace_ips_rules::buffers::Buffer;

use super::parser::{Outcome, Parser};
use super::record::{Record, SipRecord};
use super::transaction::{Progress, Transaction, Transactions};
use super::{AppProtocol, AppSettings, Transport, sdp};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest size of the first line and the headers.
const HEADERS_SIZE: usize = 64 << 10;
/// Largest size of a body that is kept.
const BODY_SIZE: usize = 64 << 10;

/// A body in progress.
#[derive(Debug)]
struct Body {
    /// Bytes to come.
    left: u64,
    /// Number of the transaction.
    transaction: u64,
    /// Index of the buffer in the transaction.
    buffer: usize,
}

/// The state of a direction over TCP.
#[derive(Debug, Default)]
struct Side {
    /// Bytes that do not complete the headers.
    pending: Vec<u8>,
    body: Option<Body>,
    has_failed: bool,
}

heap!(Side { pending });

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Sip {
    transport: Transport,
    /// True if rules ask for the fields of SDP.
    reads_sdp: bool,
    /// True if transactions become records.
    keeps_records: bool,
    sides: [Side; 2],
    /// True if the flow had a valid message, so the protocol is certain.
    has_message: bool,
}

heap!(Sip { sides });

/// The first line of a message.
#[derive(Debug, PartialEq, Eq)]
enum FirstLine<'a> {
    Request {
        method: &'a [u8],
        uri: &'a [u8],
        protocol: &'a [u8],
    },
    Response {
        protocol: &'a [u8],
        code: &'a [u8],
        reason: &'a [u8],
    },
}

fn first_line(line: &[u8]) -> Option<FirstLine<'_>> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let (first, second) = (parts.next()?, parts.next()?);
    let third = parts.next().unwrap_or_default();
    if first.starts_with(b"SIP/") {
        let is_code = second.len() == 3 && second.iter().all(u8::is_ascii_digit);
        return is_code.then_some(FirstLine::Response {
            protocol: first,
            code: second,
            reason: third,
        });
    }
    let is_token = !first.is_empty()
        && first
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(byte));
    (is_token && third.starts_with(b"SIP/")).then_some(FirstLine::Request {
        method: first,
        uri: second,
        protocol: third,
    })
}

/// Returns the size of the first line, the headers and the empty line after them together, and the size of the first
/// line without its line feed; `None` if more bytes are needed.
fn head(data: &[u8]) -> Option<(usize, usize)> {
    let line = data.iter().position(|&byte| byte == b'\n')?;
    let mut start = line + 1;
    loop {
        let end = start + data.get(start..)?.iter().position(|&byte| byte == b'\n')?;
        if matches!(&data[start..end], b"" | b"\r") {
            return Some((end + 1, line));
        }
        start = end + 1;
    }
}

/// Headers with a buffer, by their name and their compact form (RFC 3261, section 7.3.3).
const HEADERS: &[(Buffer, &[u8], &[u8])] = &[
    (Buffer::SipFrom, b"from", b"f"),
    (Buffer::SipTo, b"to", b"t"),
    (Buffer::SipVia, b"via", b"v"),
    (Buffer::SipUserAgent, b"user-agent", b"user-agent"),
    (Buffer::SipContentType, b"content-type", b"c"),
    (Buffer::SipContentLength, b"content-length", b"l"),
];

/// Returns the lines of a block of headers, each with the lines that continue it (RFC 3261, section 7.3.1).
fn unfolded(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    core::iter::from_fn(move || {
        let is_end = |at: &usize| rest[*at] == b'\n' && !matches!(rest.get(at + 1), Some(b' ' | b'\t'));
        let end = (0..rest.len()).find(is_end);
        let line = &rest[..end.unwrap_or(rest.len())];
        rest = &rest[(line.len() + 1).min(rest.len())..];
        (!line.is_empty() || !rest.is_empty()).then_some(line)
    })
}

/// Returns the value of a header on one line; each fold becomes a space.
fn joined(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    if !value.contains(&b'\n') {
        return Cow::Borrowed(value);
    }
    let parts: Vec<&[u8]> = value
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .collect();
    Cow::Owned(parts.join(&b' '))
}

/// Returns the values of a header, by its name or its compact form.
fn values<'a>(block: &'a [u8], name: &'a [u8], compact: &'a [u8]) -> impl Iterator<Item = Cow<'a, [u8]>> {
    unfolded(block).filter_map(move |line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let known = line[..colon].trim_ascii();
        let is_it = known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(compact);
        is_it.then(|| joined(&line[colon + 1..]))
    })
}

/// The size of a body by the headers of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    None,
    Known(u64),
    /// No number, or several that differ.
    Invalid,
}

impl Length {
    fn of(headers: &[u8]) -> Length {
        let number = |value: Cow<'_, [u8]>| match value.iter().all(u8::is_ascii_digit) {
            true => core::str::from_utf8(&value).ok()?.parse().ok(),
            false => None,
        };
        let mut numbers = values(headers, b"content-length", b"l").map(number);
        match numbers.next() {
            None => Length::None,
            Some(Some(first)) if numbers.all(|other| other == Some(first)) => Length::Known(first),
            Some(_) => Length::Invalid,
        }
    }
}

impl Sip {
    pub(super) fn new(transport: Transport, settings: AppSettings) -> Sip {
        Sip {
            transport,
            reads_sdp: settings.asks.sdp,
            keeps_records: settings.keeps_records,
            sides: Default::default(),
            has_message: false,
        }
    }

    /// Publishes the head of a message; returns its transaction, and the size of its body.
    fn message(
        direction: Direction,
        line: &[u8],
        headers: &[u8],
        out: &mut Transactions,
    ) -> Option<(u64, Length)> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let first = first_line(line)?;
        let transaction = out.start(AppProtocol::Sip);
        let mut record = SipRecord::default();
        match first {
            FirstLine::Request {
                method,
                uri,
                protocol,
            } => {
                transaction.publish(Buffer::SipMethod, direction, method);
                transaction.publish(Buffer::SipUri, direction, uri);
                transaction.publish(Buffer::SipProtocol, direction, protocol);
                transaction.publish(Buffer::SipRequestLine, direction, line);
                record.method = method.to_vec();
                record.uri = uri.to_vec();
                record.version = protocol.to_vec();
            }
            FirstLine::Response {
                protocol,
                code,
                reason,
            } => {
                transaction.publish(Buffer::SipProtocol, direction, protocol);
                transaction.publish(Buffer::SipStatCode, direction, code);
                transaction.publish(Buffer::SipStatMsg, direction, reason);
                transaction.publish(Buffer::SipResponseLine, direction, line);
                record.code = core::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
                record.reason = reason.to_vec();
                record.version = protocol.to_vec();
            }
        }
        transaction.record = Record::Sip(Box::new(record));
        transaction.publish(Buffer::SipHeader, direction, headers);
        for (buffer, name, compact) in HEADERS {
            for value in values(headers, name, compact) {
                transaction.publish(*buffer, direction, value.as_ref());
            }
        }
        transaction.advance(direction, Progress::Headers);
        // A message has one direction.
        transaction.advance(direction.reverse(), Progress::Complete);
        transaction.is_inspected[direction.reverse().index()] = true;
        Some((transaction.id, Length::of(headers)))
    }

    /// Parses a datagram. Returns [`Outcome::Failed`] if it is no message, such as a `NOTIFY` of SSDP, which has the
    /// method of SIP and the version of HTTP.
    fn datagram(&self, direction: Direction, data: &[u8], out: &mut Transactions) -> Outcome {
        // Keep-alives are empty lines (RFC 5626, section 3.5.1).
        if data.trim_ascii().is_empty() {
            return Outcome::Continue;
        }
        let Some((size, line)) = head(data) else {
            out.raise("sip.invalid_data");
            return Outcome::Failed;
        };
        let Some((id, length)) = Sip::message(direction, &data[..line], &data[line + 1..size], out) else {
            out.raise("sip.invalid_data");
            return Outcome::Failed;
        };
        let rest = data.len() - size;
        let body = match length {
            Length::Known(length) => usize::try_from(length).unwrap_or(rest).min(rest),
            Length::None | Length::Invalid => rest,
        };
        if let Some(transaction) = out.by_id(id) {
            if body > 0 {
                transaction.publish(
                    Buffer::SipBody,
                    direction,
                    &data[size..size + body.min(BODY_SIZE)],
                );
                self.describe(&data[size..size + body.min(BODY_SIZE)], direction, transaction);
            }
            transaction.advance(direction, Progress::Complete);
        }
        Outcome::Continue
    }

    /// Publishes the fields of a session description if rules ask for them, and adds them to the record if there is one.
    fn describe(&self, body: &[u8], direction: Direction, transaction: &mut Transaction) {
        let is_sdp = |kind: &[u8]| {
            kind.get(..sdp::MEDIA_TYPE.len())
                .is_some_and(|kind| kind.eq_ignore_ascii_case(sdp::MEDIA_TYPE))
        };
        if !transaction
            .buffer(Buffer::SipContentType, direction)
            .is_some_and(is_sdp)
        {
            return;
        }
        if self.reads_sdp {
            sdp::publish(body, direction, transaction);
        }
        if self.keeps_records
            && let Record::Sip(record) = &mut transaction.record
        {
            record.sdp = sdp::record(body);
        }
    }

    /// Consumes bytes from the front of a stream and returns their number; 0 if the message is incomplete or the side has failed.
    fn step(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) -> usize {
        if let Some(mut body) = self.sides[direction.index()].body.take() {
            let size = usize::try_from(body.left).unwrap_or(usize::MAX).min(data.len());
            body.left -= size as u64;
            if let Some(transaction) = out.by_id(body.transaction) {
                transaction.append(body.buffer, &data[..size], BODY_SIZE);
                transaction.advance(direction, Progress::Body);
                if body.left == 0 {
                    transaction.close(body.buffer);
                    if self.reads_sdp || self.keeps_records {
                        let bytes = transaction.bytes(body.buffer).to_vec();
                        self.describe(&bytes, direction, transaction);
                    }
                    transaction.advance(direction, Progress::Complete);
                }
            }
            if body.left > 0 {
                self.sides[direction.index()].body = Some(body);
            }
            return size;
        }
        let side = &mut self.sides[direction.index()];
        let blank = data
            .iter()
            .take_while(|byte| matches!(byte, b'\r' | b'\n'))
            .count();
        if blank > 0 {
            return blank;
        }
        let Some((size, line)) = head(data) else {
            if data.len() > HEADERS_SIZE {
                out.raise("sip.invalid_data");
                side.has_failed = true;
            }
            return 0;
        };
        let Some((id, length)) = Sip::message(direction, &data[..line], &data[line + 1..size], out) else {
            out.raise("sip.invalid_data");
            side.has_failed = true;
            return 0;
        };
        self.has_message = true;
        let side = &mut self.sides[direction.index()];
        if let Some(transaction) = out.by_id(id) {
            match length {
                Length::Known(length) if length > 0 => {
                    let buffer = transaction.open(Buffer::SipBody, None, direction, 0);
                    side.body = Some(Body {
                        left: length,
                        transaction: id,
                        buffer,
                    });
                }
                Length::Known(_) | Length::None => transaction.advance(direction, Progress::Complete),
                Length::Invalid => {
                    transaction.raise("sip.invalid_data");
                    side.has_failed = true;
                }
            }
        }
        size
    }
}

impl Parser for Sip {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if self.transport == Transport::Udp {
            return self.datagram(chunk.direction, chunk.bytes, out);
        }
        let side = &mut self.sides[chunk.direction.index()];
        side.has_failed |= chunk.gap_before > 0;
        if side.has_failed {
            side.pending = Vec::new();
            return Outcome::Continue;
        }
        let mut data = core::mem::take(&mut side.pending);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        while at < data.len() && !self.sides[chunk.direction.index()].has_failed {
            let size = self.step(chunk.direction, &data[at..], out);
            if size == 0 {
                break;
            }
            at += size;
        }
        let side = &mut self.sides[chunk.direction.index()];
        if side.has_failed {
            return Outcome::Failed;
        }
        data.drain(..at);
        side.pending = data;
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if let Some(body) = self.sides[direction.index()].body.take()
            && let Some(transaction) = out.by_id(body.transaction)
        {
            transaction.close(body.buffer);
            transaction.advance(direction, Progress::Complete);
        }
    }

    fn is_strict(&self) -> bool {
        // Methods of SIP are words of other protocols over TCP, too.
        self.transport == Transport::Udp || self.has_message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::transaction::Transaction;

    const INVITE: &[u8] =
        b"INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/TCP a\r\nFrom: <sip:a@example.org>\r\n\
        l: 4\r\n\r\nv=0\n";
    const OK: &[u8] = b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n";

    fn feed(transport: Transport, bytes: &[u8], step: usize) -> Transactions {
        let (outcome, out) = outcome(transport, bytes, step);
        assert_eq!(outcome, Outcome::Continue);
        out
    }

    fn outcome(transport: Transport, bytes: &[u8], step: usize) -> (Outcome, Transactions) {
        let (mut sip, mut out) = (
            Sip::new(transport, AppSettings::default()),
            Transactions::default(),
        );
        let mut outcome = Outcome::Continue;
        for bytes in bytes.chunks(step) {
            let chunk = StreamChunk::of(Direction::ToServer, bytes);
            outcome = sip.data(chunk, &mut out);
        }
        (outcome, out)
    }

    #[test]
    fn messages_of_a_stream_are_the_same_for_any_segmentation() {
        let bytes = [INVITE, b"\r\n\r\n", OK, INVITE].concat();
        for step in 1..bytes.len() {
            let out = feed(Transport::Tcp, &bytes, step);
            assert_eq!(out.list.len(), 3, "{step}");
            assert!(out.list.iter().all(Transaction::is_complete));
            let side = Direction::ToServer;
            let invite = &out.list[0];
            assert_eq!(invite.buffer(Buffer::SipMethod, side), Some(&b"INVITE"[..]));
            assert_eq!(
                invite.buffer(Buffer::SipUri, side),
                Some(&b"sip:bob@example.org"[..])
            );
            assert_eq!(invite.buffer(Buffer::SipBody, side), Some(&b"v=0\n"[..]));
            for (message, buffer, value) in [
                (0, Buffer::SipProtocol, &b"SIP/2.0"[..]),
                (0, Buffer::SipRequestLine, b"INVITE sip:bob@example.org SIP/2.0"),
                (0, Buffer::SipVia, b"SIP/2.0/TCP a"),
                (0, Buffer::SipFrom, b"<sip:a@example.org>"),
                (0, Buffer::SipContentLength, b"4"),
                (1, Buffer::SipResponseLine, b"SIP/2.0 200 OK"),
                (1, Buffer::SipStatCode, b"200"),
                (1, Buffer::SipStatMsg, b"OK"),
            ] {
                assert_eq!(out.list[message].buffer(buffer, side), Some(value), "{buffer:?}");
            }
            let Record::Sip(record) = &out.list[1].record else {
                panic!("a record of SIP")
            };
            assert_eq!((record.code, &record.reason[..]), (Some(200), &b"OK"[..]));
        }
    }

    #[test]
    fn a_folded_content_length_ends_the_message_where_it_says() {
        let first = b"MESSAGE sip:bob@example.org SIP/2.0\r\nContent-Length:\r\n 4\r\n\r\nv=0\n";
        let bytes = [first, INVITE].concat();
        for step in 1..bytes.len() {
            let out = feed(Transport::Tcp, &bytes, step);
            let side = Direction::ToServer;
            assert_eq!(out.list.len(), 2, "{step}");
            assert_eq!(
                out.list[0].buffer(Buffer::SipContentLength, side),
                Some(&b"4"[..])
            );
            assert_eq!(out.list[0].buffer(Buffer::SipBody, side), Some(&b"v=0\n"[..]));
            assert_eq!(out.list[1].buffer(Buffer::SipMethod, side), Some(&b"INVITE"[..]));
        }
    }

    #[test]
    fn a_stream_whose_messages_have_no_end_is_an_error_of_the_protocol() {
        for lengths in ["l: four", "l: +4", "l: 4\r\nContent-Length: 5", "l:"] {
            let bytes = format!("MESSAGE sip:bob@example.org SIP/2.0\r\n{lengths}\r\n\r\n");
            let (mut sip, mut out) = (
                Sip::new(Transport::Tcp, AppSettings::default()),
                Transactions::default(),
            );
            let chunk = StreamChunk::of(Direction::ToServer, bytes.as_bytes());
            assert_eq!(
                (sip.data(chunk, &mut out), sip.is_strict()),
                (Outcome::Failed, true),
                "{lengths}"
            );
            assert_eq!(out.list[0].events, ["sip.invalid_data"]);
        }
        // After a valid message, the flow is known to be SIP.
        for (before, is_strict) in [(&b""[..], false), (INVITE, true)] {
            let bytes = [before, b"NOTIFY /events HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            let (mut sip, mut out) = (
                Sip::new(Transport::Tcp, AppSettings::default()),
                Transactions::default(),
            );
            let outcome = sip.data(StreamChunk::of(Direction::ToServer, &bytes), &mut out);
            assert_eq!((outcome, sip.is_strict()), (Outcome::Failed, is_strict));
        }
    }

    #[test]
    fn a_datagram_is_a_message_and_others_are_an_event_and_an_error() {
        let out = feed(Transport::Udp, INVITE, 1000);
        assert_eq!(out.list.len(), 1);
        assert_eq!(feed(Transport::Udp, b"\r\n\r\n", 1000).events.len(), 0);
        let ssdp = b"NOTIFY * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\r\n";
        for bytes in [&b"INVITE\r\n\r\n"[..], ssdp] {
            let (outcome, out) = outcome(Transport::Udp, bytes, 1000);
            assert_eq!(outcome, Outcome::Failed);
            assert_eq!((out.list.len(), &out.events[..]), (0, &["sip.invalid_data"][..]));
        }
    }
}
