//! The requests of a connection: the parser of the client's bytes, up to the headers of a request.

mod body;
mod host;
mod http_09;
mod publish;
mod start;
mod tunnel;

use millrace_ips_rules::buffers::Buffer;

use super::body::Body;
use super::chunked::{self, Chunked, Part};
use super::framing::{self, Section};
use super::headers::{Headers, Lines, line};
use super::pairing::Pairing;
use super::readings::{Forks, Framing, Kind, Position, Reading, of_lines, other_chunks};
use super::request_line::{RequestLine, trimmed};
use super::step::{BLOCK_ROOM, HEADERS_SIZE, LINE_SIZE, Step};
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::transaction::{AppEvent, Progress, Transactions};
use crate::flow::Direction;

pub(super) use publish::publish_headers;

const SIDE: Direction = Direction::ToServer;

/// Maximum number of bytes that wait for the answer to CONNECT.
const TUNNEL_WAIT: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between requests, or in the first line of one.
    #[default]
    Line,
    /// After a line without protocol; headers may still follow.
    Http09,
    Headers,
    Trailer,
    Sized(u64),
    Chunked(Chunked),
    /// After the headers of CONNECT, until the response is known.
    Connect,
    /// As `Connect`, in mode `ids`. As observed, the headers count as complete at once if the response opens
    /// the tunnel, otherwise when the client sends more bytes or ends. In mode `ips` the headers count as
    /// complete before the request is forwarded, so that a rule can drop it.
    ConnectHeld,
    /// After the headers of an accepted CONNECT: the first bytes of the tunnel.
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
    /// True if the response to the request in progress has begun, and its line is incomplete.
    is_answered: bool,
    headers: Headers,
    line: RequestLine,
    body: Option<Body>,
    /// The bytes of the request in progress up to the end of its headers.
    head: Vec<u8>,
    section: Section,
    /// The number of bytes of `pending` in which no ambiguity was found.
    checked: usize,
    /// True once recipients read the request in progress in different ways.
    is_ambiguous: bool,
    pub(super) forks: Forks,
    /// The differences to the usual parser, for a further reading.
    reading: Option<Reading>,
    position: Position,
    /// The TCP port of the server, if it is known.
    pub(super) server_port: Option<u16>,
}

heap!(RequestSide {
    pending,
    block,
    headers,
    line,
    body,
    head,
    forks
});

impl RequestSide {
    /// Returns the parser of a further reading.
    pub(super) fn reading(reading: Reading, position: Position) -> RequestSide {
        RequestSide {
            reading: Some(reading),
            position,
            ..RequestSide::default()
        }
    }

    fn lines(&self) -> Lines {
        let lines = self.reading.and_then(|reading| reading.lines);
        lines.unwrap_or(Lines::of(SIDE))
    }

    /// Notes a place in which recipients read the request in different ways.
    fn differ(&mut self, out: &mut Transactions, event: AppEvent) {
        // A request line does not change the end of the request.
        self.is_ambiguous |= event != framing::START_LINE;
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.raise(event);
            transaction.is_ambiguous = true;
            // Of a request that was complete, rules see the anomaly, too.
            transaction.is_inspected[SIDE.index()] = false;
        }
    }

    /// Asks for further readings. A reading with other lines may still end in several ways; others have no further readings.
    fn fork(&mut self, kind: Kind, readings: impl IntoIterator<Item = Reading>) {
        let own = self.reading.unwrap_or_default();
        if self.reading.is_none() || kind == Kind::End && !own.skips_lines {
            let head = [&self.head[..], &self.block];
            self.forks
                .add(own, kind, self.position.of_fork(), &head, None, readings);
        }
    }

    /// Parses the next bytes, and stops at a fork: the bytes behind it are then pending. Without bytes, it continues where it
    /// waited for the response.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        // The client may have sent further requests before the response; their bodies are not refused.
        if let Some(refused) = pairing.refuses_body.take()
            && self.transaction == Some(refused)
        {
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
            self.position.advance(size);
            if !self.forks.is_empty() {
                break;
            }
        }
        if self.forks.is_empty() && matches!(self.state, State::Headers | State::Trailer) {
            self.ends_otherwise(&data[at..], out);
        }
        let waits = matches!(self.state, State::Connect | State::ConnectHeld);
        pairing.has_held_requests = waits && data.len() > at;
        let limit = if waits { TUNNEL_WAIT } else { LINE_SIZE };
        if self.forks.is_empty() && self.state != State::Failed && data.len() - at > limit {
            self.end_connect(pairing, out, settings);
            self.raise(out, "http.request_field_too_long");
            self.refuse(pairing, out);
        }
        if self.state != State::Failed {
            if owned.is_empty() {
                self.pending = bytes[at..].to_vec();
            } else {
                // The bytes of an incomplete line stay where they are: a copy for each chunk would be slow if
                // they come one by one.
                owned.drain(..at);
                self.pending = owned;
            }
        }
    }

    /// Returns true if a header line, or the beginning of one, makes the parser stop for further readings: the line ends for some
    /// recipients before it ends for others.
    fn ends_otherwise(&mut self, line: &[u8], out: &mut Transactions) -> bool {
        let problem = framing::incomplete_line(line, self.checked);
        self.checked = line.len();
        if let Some(event) = problem {
            self.differ(out, event);
            self.fork(Kind::Lines, of_lines(Lines::of(SIDE)));
        }
        !self.forks.is_empty()
    }

    /// Handles lost bytes. Parsing continues after them only in a tunnel or in a body of known size.
    pub(super) fn gap(&mut self, size: u64, out: &mut Transactions) {
        self.position.next += size;
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

    /// Handles the end of the client's bytes.
    pub(super) fn end(&mut self, pairing: &mut Pairing, out: &mut Transactions, settings: &AppSettings) {
        let rest = core::mem::take(&mut self.pending);
        match self.state {
            State::Line if !trimmed(&rest).is_empty() => {
                self.start(&rest, pairing, out);
                self.raise(out, "http.request_line_incomplete");
            }
            State::Headers => {
                self.block.extend_from_slice(&rest);
                self.end_headers(pairing, out, settings);
            }
            State::ConnectHeld => self.end_connect(pairing, out, settings),
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

    /// Stops parsing of the connection, because the bytes that follow have no defined meaning.
    fn refuse(&mut self, pairing: &mut Pairing, out: &mut Transactions) {
        pairing.is_refused = true;
        self.fail(out);
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
                None if settings.is_inline && !data.is_empty() => self.speaks_early(out, settings),
                None => Step::NeedMore,
                Some(is_accepted) => {
                    self.state = if is_accepted { State::Tunnel } else { State::Line };
                    Step::Consumed(0)
                }
            },
            State::ConnectHeld
                if pairing.connect.is_none() || pairing.connect == Some(false) && data.is_empty() =>
            {
                Step::NeedMore
            }
            State::ConnectHeld => {
                self.end_connect(pairing, out, settings);
                self.state = State::Connect;
                Step::Consumed(0)
            }
            _ if data.is_empty() => Step::NeedMore,
            State::Line => self.first_line(data, pairing, out, settings),
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
            State::Chunked(mut chunked) => {
                let before = chunked;
                let part = chunked.step(data, self.lines());
                self.state = State::Chunked(chunked);
                let problem = chunked::problem(before, data, &part);
                if let Some(event) = problem {
                    self.differ(out, event);
                    self.fork(
                        Kind::Chunk,
                        other_chunks(self.lines(), &[Framing::Plain, Framing::None]),
                    );
                }
                let step = match part {
                    Part::NeedMore => Step::NeedMore,
                    Part::Framing { size, has_extension } => {
                        if has_extension {
                            self.raise(out, "http.request_chunk_extension");
                        }
                        Step::Consumed(size)
                    }
                    Part::Data(bytes) => {
                        self.write_body(bytes, out, settings);
                        Step::Consumed(bytes.len())
                    }
                    Part::Last(size) => {
                        self.state = State::Trailer;
                        Step::Consumed(size)
                    }
                    Part::Invalid(size) => {
                        self.raise(out, "http.invalid_request_chunk_len");
                        if !settings.is_inline {
                            self.state = State::Sized(u64::MAX);
                            return Step::Consumed(0);
                        }
                        self.refuse(pairing, out);
                        Step::Consumed(size)
                    }
                };
                if problem.is_some()
                    && let Step::Consumed(size) = step
                {
                    // The line belongs to the bytes that follow.
                    self.forks.follow(&data[..size]);
                }
                step
            }
        }
    }

    fn header_line(
        &mut self,
        data: &[u8],
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) -> Step {
        let plain = framing::plain_line(data);
        let found = plain.map(|end| (end, end + 2));
        let Some((end, next)) = found.or_else(|| line(data, self.lines(), false)) else {
            return Step::NeedMore;
        };
        if plain.is_none() && self.ends_otherwise(&data[..next], out) {
            return Step::Consumed(0);
        }
        if self.block.len() + next > HEADERS_SIZE {
            self.raise(out, "http.request_field_too_long");
            self.refuse(pairing, out);
            return Step::Consumed(next);
        }
        if self.block.capacity() == 0 {
            self.block.reserve_exact(data.len().min(BLOCK_ROOM));
        }
        self.block.extend_from_slice(&data[..next]);
        self.position.ahead = next as u64;
        self.checked = 0;
        for event in self.section.header_line(&data[..next], plain.is_some()) {
            self.differ(out, event);
            if matches!(event, framing::LINE_END | framing::HEADER_END) {
                self.fork(Kind::Lines, of_lines(Lines::of(SIDE)));
            }
        }
        let ends_blank = self.reading.is_some_and(|reading| reading.blank_ends_headers);
        let end = if ends_blank && framing::is_blank(&data[..end]) {
            0
        } else {
            end
        };
        let is_held = !settings.is_inline && self.state == State::Headers && self.line.method() == b"CONNECT";
        if end == 0 && is_held {
            self.state = State::ConnectHeld;
        } else if end == 0 {
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
        let lines = self
            .reading
            .and_then(|reading| reading.lines)
            .unwrap_or(Lines::of(SIDE));
        self.headers.add_block(&block, (SIDE, lines), &mut events);
        for event in events {
            transaction.raise(event);
        }
        if !is_trailer {
            self.head.extend_from_slice(&block);
        }
        if is_trailer {
            let mut raw = transaction
                .buffer(Buffer::HttpHeaderRaw, SIDE)
                .unwrap_or_default()
                .to_vec();
            raw.extend_from_slice(&block);
            transaction.replace(Buffer::HttpHeaderRaw, SIDE, raw);
            publish_headers(transaction, &self.headers, settings);
            transaction.has_new_trailer[SIDE.index()] = true;
            self.finish(out);
            if self.headers.has_too_many {
                self.refuse(pairing, out);
            }
            return;
        }
        transaction.publish(Buffer::HttpHeaderRaw, SIDE, block);
        publish_headers(transaction, &self.headers, settings);
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
        if self.headers.find(b"upgrade").is_some() {
            pairing.awaits_upgrade = self.transaction;
        }
        // The headers that are not kept may decide where the body ends.
        if self.headers.has_too_many {
            return self.refuse(pairing, out);
        }
        self.decide_body(pairing, out, settings);
    }
}
