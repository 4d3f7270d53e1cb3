//! The responses of a connection: the parser of the server's bytes, up to the headers of a response.

mod body;
mod line_kind;
mod publish;
mod status_line;

use millrace_ips_rules::buffers::Buffer;

use super::body::Body;
use super::chunked::{self, Chunked, Part};
use super::framing::{self, Section};
use super::headers::{Headers, Lines, line};
use super::pairing::{Method, Pairing, Waiting};
use super::publish::update_record;
use super::readings::{Forks, Framing, Kind, Position, Reading, of_lines, other_chunks};
use super::step::{BLOCK_ROOM, HEADERS_SIZE, LINE_SIZE, Step};
use crate::app::AppProtocol;
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::transaction::{AppEvent, Progress, Transactions};
use crate::flow::Direction;
use line_kind::{LineKind, line_kind};
pub(super) use publish::publish_headers;

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
    /// After the headers of a response without a body, although they announce one.
    Bodiless,
    Sized(u64),
    UntilClose,
    Chunked(Chunked),
    /// In bytes after the last response that belong to no response.
    TrailingBytes,
    /// After the headers that open a tunnel or change the protocol.
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
    /// The bytes of the response in progress up to the end of its headers.
    head: Vec<u8>,
    section: Section,
    /// The number of bytes of `pending` in which no ambiguity was found.
    checked: usize,
    /// True once recipients read the response in progress in different ways.
    is_ambiguous: bool,
    pub(super) forks: Forks,
    /// The differences to the usual parser, for a further reading.
    reading: Option<Reading>,
    position: Position,
    /// True if the bytes of the body are kept as they are.
    is_plain: bool,
    /// True if a line before the status line was skipped.
    has_skipped: bool,
}

heap!(ResponseSide {
    pending,
    block,
    current,
    headers,
    protocol,
    body,
    head,
    forks
});

impl ResponseSide {
    /// Returns the parser of a further reading.
    pub(super) fn reading(reading: Reading, position: Position) -> ResponseSide {
        ResponseSide {
            reading: Some(reading),
            position,
            ..ResponseSide::default()
        }
    }

    fn lines(&self) -> Lines {
        let lines = self.reading.and_then(|reading| reading.lines);
        lines.unwrap_or(Lines::of(SIDE))
    }

    /// Notes a place in which recipients read the response in different ways.
    fn differ(&mut self, out: &mut Transactions, event: AppEvent) {
        self.is_ambiguous = true;
        let id = self.current.as_ref().map(|current| current.transaction);
        if let Some(transaction) = id.and_then(|id| out.by_id(id)) {
            transaction.raise(event);
            transaction.is_ambiguous = true;
        }
    }

    /// Asks for further readings. A reading with other lines may still end in several ways; others have no further readings.
    fn fork(&mut self, kind: Kind, readings: impl IntoIterator<Item = Reading>) {
        let own = self.reading.unwrap_or_default();
        if self.reading.is_none() || kind == Kind::End && !own.skips_lines {
            let waiting = self.current.as_ref();
            let head = [&self.head[..], &self.block];
            self.forks
                .add(own, kind, self.position.of_fork(), &head, waiting, readings);
        }
    }

    /// Parses the next bytes, and stops at a fork: the bytes behind it are then pending.
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
            self.position.advance(size);
            if !self.forks.is_empty() {
                break;
            }
        }
        if self.forks.is_empty() && matches!(self.state, State::Headers | State::Trailer) {
            self.ends_otherwise(&data[at..], out);
        }
        let keeps_all = matches!(self.state, State::Failed | State::Tunnel) || pairing.pauses_responses;
        if self.forks.is_empty() && !keeps_all && data.len() - at > LINE_SIZE {
            self.raise(out, "http.response_field_too_long");
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

    /// Returns true while the server's bytes wait for the client to show the protocol of a tunnel.
    pub(super) fn is_in_tunnel(&self) -> bool {
        self.state == State::Tunnel
    }

    /// Handles lost bytes. Parsing continues after them only in a tunnel, in a body of known size, or in a
    /// body that ends with the stream.
    pub(super) fn gap(&mut self, size: u64, out: &mut Transactions) {
        self.position.next += size;
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

    /// Handles the end of the server's bytes.
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

    /// Stops parsing of the connection, because the bytes that follow have no defined meaning.
    fn refuse(&mut self, pairing: &mut Pairing, out: &mut Transactions) {
        pairing.is_refused = true;
        self.fail(out);
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
        // The answer to a CONNECT decides what the client's bytes behind it are: they are parsed before the server's next byte,
        // as if that came in a segment of its own.
        if pairing.has_held_requests && pairing.connect.is_some() && self.state != State::Failed {
            pairing.pauses_responses = true;
            return Step::NeedMore;
        }
        match self.state {
            State::Failed => Step::NeedMore,
            State::Tunnel => Step::NeedMore,
            State::TrailingBytes => {
                let end = data.iter().position(|&byte| byte == b'\n');
                if end.is_some() {
                    self.state = State::Idle;
                }
                Step::Consumed(end.map_or(data.len(), |end| end + 1))
            }
            State::Idle => self.idle(data, pairing, out, settings),
            State::Line => self.first_line(data, out, settings),
            State::Headers | State::Trailer => {
                let plain = framing::plain_line(data);
                let found = plain.map(|end| (end, end + 2));
                let Some((end, next)) = found.or_else(|| line(data, self.lines(), false)) else {
                    return Step::NeedMore;
                };
                if plain.is_none() && self.ends_otherwise(&data[..next], out) {
                    return Step::Consumed(0);
                }
                if self.block.len() + next > HEADERS_SIZE {
                    self.raise(out, "http.response_field_too_long");
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
                if end == 0 || ends_blank && framing::is_blank(&data[..end]) {
                    self.end_headers(pairing, out, settings);
                }
                Step::Consumed(next)
            }
            State::Bodiless => self.bodiless(data, pairing, out, settings),
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
            State::Chunked(mut chunked) => {
                let before = chunked;
                let part = chunked.step(data, self.lines());
                self.state = State::Chunked(chunked);
                let problem = chunked::problem(before, data, &part);
                if let Some(event) = problem {
                    self.differ(out, event);
                    self.fork(Kind::Chunk, other_chunks(self.lines(), &[Framing::Plain]));
                }
                let step = match part {
                    Part::NeedMore => Step::NeedMore,
                    Part::Framing { size, has_extension } => {
                        if has_extension {
                            self.raise(out, "http.response_chunk_extension");
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
                    // The body ends with the stream.
                    Part::Invalid(_) => {
                        self.raise(out, "http.invalid_response_chunk_len");
                        self.state = State::UntilClose;
                        Step::Consumed(0)
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

    /// Begins the response to the oldest request that has no response.
    fn begin(&mut self, pairing: &mut Pairing, out: &mut Transactions) {
        if self.current.is_some() {
            return;
        }
        self.headers.clear();
        self.has_continued = false;
        self.block.clear();
        self.head.clear();
        self.section = Section::default();
        self.checked = 0;
        self.is_ambiguous = false;
        self.forks.begin();
        let waiting = pairing.waiting.pop_front();
        let waiting = waiting
            .or_else(|| pairing.half_line.begin(out))
            .unwrap_or_else(|| {
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
                    file_name: UNSEEN.to_vec(),
                }
            });
        out.has_lost |= pairing.has_overflowed;
        if pairing.awaits_upgrade == Some(waiting.transaction) {
            pairing.awaits_upgrade = None;
        }
        let begin = self.position.start();
        if let Some(transaction) = out.by_id(waiting.transaction) {
            transaction.begin[SIDE.index()] = Some(begin);
            transaction.advance(SIDE, Progress::Started);
            if waiting.is_http_09 {
                transaction.advance(Direction::ToServer, Progress::Complete);
            }
        }
        self.current = Some(waiting);
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
        let lines = self
            .reading
            .and_then(|reading| reading.lines)
            .unwrap_or(Lines::of(SIDE));
        self.headers.add_block(&block, (SIDE, lines), &mut events);
        if !is_trailer {
            self.head.extend_from_slice(&block);
        }
        for event in events {
            transaction.raise(event);
        }
        if !is_trailer && self.has_byte_ranges() {
            transaction.raise("http.response_multipart_byteranges");
        }
        if !is_trailer && self.needs_boundary() {
            return self.refuse(pairing, out);
        }
        match transaction
            .buffer(Buffer::HttpHeaderRaw, SIDE)
            .filter(|_| is_trailer)
        {
            Some(known) => {
                let raw = [known, &block].concat();
                transaction.replace(Buffer::HttpHeaderRaw, SIDE, raw);
            }
            None => transaction.replace(Buffer::HttpHeaderRaw, SIDE, block),
        }
        publish_headers(transaction, &self.headers, settings);
        if is_trailer {
            transaction.has_new_trailer[SIDE.index()] = true;
            self.finish(out, true);
            if self.headers.has_too_many {
                self.refuse(pairing, out);
            }
            return;
        }
        if self.headers.has_too_many {
            return self.refuse(pairing, out);
        }
        // An interim response is followed by the headers of the final one.
        if !self.is_interim() {
            transaction.advance(SIDE, Progress::Headers);
        }
        self.decide_body(pairing, out, settings);
    }
}
