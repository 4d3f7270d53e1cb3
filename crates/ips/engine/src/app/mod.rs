//! Application protocols: detection of the protocol, parsers, transactions and their buffers.
//!
//! ```text
//!  StreamChunk ─▶ AppState ── probe ──▶ protocol known ──▶ Parser ──▶ Transactions ──▶ detection, records
//!                    ▲                                        │
//!                    └────────── Switch (CONNECT, STARTTLS) ──┘
//! ```
//!
//! Segment boundaries have no meaning for a parser: any segmentation of a direction gives the same transactions.

mod ber;
mod bittorrent;
mod dhcp;
mod dnp3;
pub mod dns;
mod enip;
mod events;
mod expectation;
pub mod file;
mod framed;
mod ftp;
mod ftp_data;
pub mod heap;
mod held;
mod http;
mod ike;
mod interfaces;
pub(crate) mod krb5;
mod ldap;
mod mail;
mod modbus;
mod mqtt;
mod nfs;
mod parameter;
mod parser;
mod parsers;
mod pgsql;
mod probe;
mod protocol;
mod quic;
pub mod record;
mod rfb;
mod sip;
mod smb;
mod snmp;
mod ssh;
mod text;
mod tftp;
pub mod tls;
pub mod transaction;
mod websocket;

use heap::Heap;
use parsers::parser_of;

pub use events::{EVENTS, event, protocol_of};
pub use expectation::Expectation;
pub(crate) use expectation::Expectations;
pub use parser::{Outcome, Parser};
pub use probe::{ProtocolDetection, Transport, detect_protocol};
pub use protocol::AppProtocol;
pub use transaction::{AppEvent, BufferView, Progress, Transaction, Transactions};

use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// The number of bytes of a direction that protocol detection examines.
const PROBE_SIZE: usize = 8192;

/// Settings of the parsers. The defaults are those that the documentation of Suricata gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppSettings {
    /// Bytes of the body of an HTTP request that are inspected.
    pub request_body_limit: usize,
    /// Bytes of the body of an HTTP response that are inspected.
    pub response_body_limit: usize,
    /// Bytes of a mail attachment that are inspected.
    pub attachment_limit: usize,
    /// The minimum size in bytes of the body of an HTTP request that is inspected before it is complete.
    pub request_body_minimum: usize,
    /// The minimum size in bytes of the body of an HTTP response that is inspected before it is complete.
    pub response_body_minimum: usize,
    /// The minimum size in bytes of a mail attachment that is inspected before it is complete.
    pub attachment_minimum: usize,
    /// True if files are hashed.
    pub hashes_files: bool,
    /// True in mode `ips`: bytes are inspected before they are forwarded.
    pub is_inline: bool,
}

impl Default for AppSettings {
    fn default() -> AppSettings {
        AppSettings {
            request_body_limit: 100 << 10,
            response_body_limit: 100 << 10,
            attachment_limit: 100_000,
            request_body_minimum: 32 << 10,
            response_body_minimum: 40 << 10,
            attachment_minimum: 32 << 10,
            hashes_files: false,
            is_inline: false,
        }
    }
}

impl AppSettings {
    /// Returns the settings under overload: half as many bytes of bodies and attachments are inspected.
    pub fn half_as_deep(self) -> AppSettings {
        AppSettings {
            request_body_limit: self.request_body_limit / 2,
            response_body_limit: self.response_body_limit / 2,
            attachment_limit: self.attachment_limit / 2,
            ..self
        }
    }

    /// Returns the settings for mode `ips`: bytes are inspected before they are forwarded, so buffers need no minimum.
    pub fn inline(self) -> AppSettings {
        AppSettings {
            request_body_minimum: 0,
            response_body_minimum: 0,
            attachment_minimum: 0,
            is_inline: true,
            ..self
        }
    }
}

/// The progress of detection of the protocol.
#[derive(Debug)]
enum Mode {
    /// The bytes of each direction, by [`Direction::index`], that wait until the protocol is known; `None` for a
    /// direction in which detection has failed.
    Probing { waiting: [Option<Vec<u8>>; 2] },
    /// The protocol is known.
    Parsing(Box<dyn Parser>),
    /// Nothing is parsed any more.
    Done,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Probing {
            waiting: [Some(Vec::new()), Some(Vec::new())],
        }
    }
}

/// State of the application protocol of a flow.
#[derive(Debug, Default)]
pub struct AppState {
    /// The protocol, once it is known.
    pub protocol: Option<AppProtocol>,
    /// The protocol before the last change of protocol.
    pub original_protocol: Option<AppProtocol>,
    pub transactions: Transactions,
    /// True by [`Direction::index`] if the parser completed a message, so that raw stream data are inspected at once.
    pub flushes_raw: [bool; 2],
    /// True while the bytes are encrypted: raw contents are not searched, as the documentation of Suricata
    /// describes for its setting `encryption-handling: track-only`.
    pub is_encrypted: bool,
    /// True once data of the flow escaped inspection: a strict parser refused bytes, a transaction was removed before
    /// its inspection, or a transaction exceeded a limit. In mode `ips` the policy for parser errors applies.
    pub has_failed: bool,
    /// True once a message was inspected that recipients read in different ways. In mode `ips` the policy for ambiguous messages
    /// applies.
    pub is_ambiguous: bool,
    /// The direction whose waiting bytes were parsed because a packet of the other direction identified the
    /// protocol.
    pub(crate) caught_up: Option<Direction>,
    /// Connections that the flow announces, until the engine takes them.
    pub expected: Vec<Expectation>,
    /// Settings of the parsers.
    pub settings: AppSettings,
    mode: Mode,
    /// Bytes that wait for the inspection of the transactions before them, in the order in which they will be parsed.
    held: Vec<held::Held>,
    has_ended: [bool; 2],
    /// True once a datagram belongs to no known protocol.
    has_unknown_datagram: bool,
    /// True if bytes were parsed since the last call of [`AppState::take_changed`].
    is_changed: bool,
}

impl AppState {
    /// Returns the state of a new flow.
    pub fn new(settings: AppSettings) -> AppState {
        AppState {
            settings,
            ..AppState::default()
        }
    }

    /// Resets the state to that of a new flow, and keeps its allocated memory.
    pub(crate) fn reset(&mut self) {
        let mut transactions = core::mem::take(&mut self.transactions);
        transactions.reset();
        let mut expected = core::mem::take(&mut self.expected);
        expected.clear();
        let mode = match core::mem::take(&mut self.mode) {
            Mode::Probing { mut waiting } => {
                for bytes in &mut waiting {
                    bytes.get_or_insert_default().clear();
                }
                Mode::Probing { waiting }
            }
            Mode::Parsing(_) | Mode::Done => Mode::default(),
        };
        *self = AppState {
            transactions,
            expected,
            mode,
            ..AppState::default()
        };
    }

    /// Returns true if the memory may have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.is_changed)
    }

    /// Returns the memory of the parser, the transactions, the announced connections and all waiting bytes, in bytes.
    pub(crate) fn memory(&mut self) -> usize {
        let mode = match &self.mode {
            Mode::Probing { waiting } => waiting.heap(),
            Mode::Parsing(parser) => size_of_val(&**parser) + parser.heap(),
            Mode::Done => 0,
        };
        mode + self.transactions.heap() + self.expected.heap() + self.held.heap()
    }

    /// Frees the parser, the transactions and all waiting bytes. Later bytes are not parsed.
    pub(crate) fn give_up_memory(&mut self) {
        self.mode = Mode::Done;
        self.transactions.free();
        self.expected = Vec::new();
        self.held = Vec::new();
    }

    /// Returns the state of a flow whose protocol is known.
    pub fn with_protocol(key: &FlowKey, protocol: AppProtocol, settings: AppSettings) -> AppState {
        let mut state = AppState::new(settings);
        let nothing = [Some(Vec::new()), Some(Vec::new())];
        state.begin(key, Direction::ToServer, protocol, &nothing);
        state
    }

    /// Returns true if no byte of the flow was passed to protocol detection or to a parser.
    pub(crate) fn is_untouched(&self) -> bool {
        let is_empty = |bytes: &Option<Vec<u8>>| bytes.as_ref().is_some_and(Vec::is_empty);
        self.protocol.is_none()
            && matches!(&self.mode, Mode::Probing { waiting } if waiting.iter().all(is_empty))
    }

    /// Gives the flow the protocol that another flow announced for it.
    pub(crate) fn apply_expectation(&mut self, expectation: Expectation) {
        if expectation.protocol == AppProtocol::FtpData {
            self.protocol = Some(AppProtocol::FtpData);
            let parser = ftp_data::FtpData::new(expectation.file_name, expectation.direction, self.settings);
            self.mode = Mode::Parsing(Box::new(parser));
        }
    }

    /// Passes in-order bytes of a TCP stream to the parser, or to protocol detection while there is none. Holds the
    /// bytes if earlier ones are held.
    pub fn stream(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        self.is_changed = true;
        // The first bytes of one direction may identify the protocol, so that waiting bytes of the other are
        // parsed, too.
        let completed = Direction::BOTH.map(|direction| self.completed(direction));
        if self.is_paused() {
            self.hold(chunk);
            return;
        }
        self.receive(key, chunk);
        if chunk.is_end {
            self.end_stream(key, chunk);
        }
        for direction in Direction::BOTH {
            let is_due = match self.protocol {
                // As observed in Suricata, messages of these protocols wait for a whole chunk, or for the end of
                // the connection.
                Some(AppProtocol::Smb | AppProtocol::Ftp | AppProtocol::Imap | AppProtocol::Pop3) => false,
                // The engine does not parse messages of this protocol: each chunk counts as one message.
                Some(AppProtocol::Krb5) => direction == chunk.direction,
                _ => self.completed(direction) != completed[direction.index()],
            };
            self.flushes_raw[direction.index()] |= is_due;
        }
    }

    /// Ends the direction of a chunk; if bytes are held, after them.
    fn end_stream(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        if !self.is_paused() {
            self.begin_by_client(key, chunk.direction);
        }
        match self.is_paused() {
            false => self.end(chunk.direction),
            true => self.hold(StreamChunk {
                bytes: &[],
                gap_before: 0,
                ..chunk
            }),
        }
    }

    /// Passes bytes of a TCP stream to the parser, or to protocol detection.
    fn receive(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        let side = chunk.direction.index();
        match &mut self.mode {
            Mode::Done => {}
            Mode::Parsing(_) => self.parse(key, chunk),
            Mode::Probing { waiting } => {
                if chunk.gap_before > 0 {
                    waiting[side] = None;
                }
                if let Some(bytes) = &mut waiting[side] {
                    bytes.extend_from_slice(chunk.bytes);
                }
                self.probe(key, chunk.direction, Transport::Tcp);
            }
        }
    }

    /// Passes a datagram to the parser, or to protocol detection while there is none.
    pub fn datagram(&mut self, key: &FlowKey, direction: Direction, payload: &[u8]) {
        if payload.is_empty() {
            return;
        }
        self.is_changed = true;
        if let Mode::Probing { waiting } = &mut self.mode {
            waiting[direction.index()] = Some(payload.to_vec());
            self.probe(key, direction, Transport::Udp);
            return;
        }
        self.parse(
            key,
            StreamChunk {
                direction,
                offset: 0,
                bytes: payload,
                gap_before: 0,
                is_end: false,
            },
        );
    }

    /// Ends a direction: no byte follows. With the second direction every transaction is complete.
    pub fn end(&mut self, direction: Direction) {
        if core::mem::replace(&mut self.has_ended[direction.index()], true) {
            return;
        }
        if let Mode::Parsing(parser) = &mut self.mode {
            parser.end(direction, &mut self.transactions);
        }
        if self.has_ended == [true; 2] {
            self.transactions.end();
            self.mode = Mode::Done;
        }
    }

    /// Frees the transactions that are complete and inspected.
    pub fn remove_finished_transactions(&mut self) {
        self.transactions.remove_finished();
    }

    /// Returns the number of complete messages in stored transactions after which raw stream data are inspected:
    /// requests and responses, and the hello and the certificates of TLS.
    fn completed(&self, direction: Direction) -> usize {
        let steps = |transaction: &Transaction| {
            let progress = transaction.progress[direction.index()];
            let is_complete = usize::from(progress == Progress::Complete);
            match transaction.app {
                AppProtocol::Tls => {
                    let (has_hello, has_certificate) =
                        (progress >= Progress::Headers, progress >= Progress::Body);
                    usize::from(has_hello) + usize::from(has_certificate) + is_complete
                }
                _ => is_complete,
            }
        };
        self.transactions.list.iter().map(steps).sum()
    }

    /// Tries to detect the protocol of the bytes that wait.
    fn probe(&mut self, key: &FlowKey, direction: Direction, transport: Transport) {
        let Mode::Probing { waiting } = &mut self.mode else {
            return;
        };
        let side = direction.index();
        let Some(bytes) = &waiting[side] else {
            if !self.begin_by_client(key, direction) {
                self.give_up();
            }
            return;
        };
        let (ports, size) = ((key.client_port, key.server_port), bytes.len());
        match detect_protocol(bytes, direction, transport, ports) {
            ProtocolDetection::Found(protocol)
                if direction == Direction::ToServer
                    && size < PROBE_SIZE
                    && waiting[Direction::ToClient.index()]
                        .as_ref()
                        .is_some_and(Vec::is_empty)
                    && probe::awaits_greeting(protocol, ports) => {}
            ProtocolDetection::Found(protocol) => {
                let waiting = core::mem::take(waiting);
                self.begin(key, direction, protocol, &waiting);
            }
            ProtocolDetection::Undecided if size < PROBE_SIZE => {}
            ProtocolDetection::Undecided
                if direction == Direction::ToServer
                    && waiting[side].as_mut().is_some_and(probe::remove_space) => {}
            // Each datagram is examined by itself.
            ProtocolDetection::Unknown if transport == Transport::Udp => {
                waiting[side] = Some(Vec::new());
                self.has_unknown_datagram = true;
            }
            // The other side may decide the protocol: the server's first bytes are kept for the parser.
            ProtocolDetection::Undecided | ProtocolDetection::Unknown => {
                let other = &waiting[direction.reverse().index()];
                let is_silent = other.as_ref().is_some_and(Vec::is_empty);
                if (!is_silent || size >= PROBE_SIZE) && !self.begin_by_client(key, direction) {
                    self.give_up();
                }
            }
        }
    }

    /// Starts the parser of the protocol that the client's bytes identify, if they waited for a greeting and the
    /// server sent something else, or nothing. `direction` is the direction of the packet. Returns true if there
    /// is such a protocol.
    fn begin_by_client(&mut self, key: &FlowKey, direction: Direction) -> bool {
        let Mode::Probing { waiting } = &mut self.mode else {
            return false;
        };
        let ports = (key.client_port, key.server_port);
        let client = Direction::ToServer;
        if key.protocol == TCP
            && let Some(bytes) = &waiting[client.index()]
            && let ProtocolDetection::Found(protocol) = detect_protocol(bytes, client, Transport::Tcp, ports)
        {
            let waiting = core::mem::take(waiting);
            self.begin(key, direction, protocol, &waiting);
            return true;
        }
        false
    }

    /// Returns the protocol, once it is known; [`AppProtocol::Failed`] once detection has ended without a result. Detection
    /// examines each datagram by itself, so it has ended for the datagrams so far.
    pub(crate) fn detected(&self) -> Option<AppProtocol> {
        self.protocol
            .or_else(|| self.has_unknown_datagram.then_some(AppProtocol::Failed))
    }

    /// Ends protocol detection without a result; later bytes are not parsed.
    fn give_up(&mut self) {
        self.protocol = Some(AppProtocol::Failed);
        self.mode = Mode::Done;
    }

    /// Starts the parser of a protocol that the bytes of `direction` identified, with the bytes that waited.
    fn begin(
        &mut self,
        key: &FlowKey,
        direction: Direction,
        protocol: AppProtocol,
        waiting: &[Option<Vec<u8>>; 2],
    ) {
        self.protocol = Some(protocol);
        let Some(parser) = parser_of(protocol, key, self.settings) else {
            self.mode = Mode::Done;
            return;
        };
        self.mode = Mode::Parsing(parser);
        if !waiting
            .iter()
            .any(|bytes| bytes.as_ref().is_none_or(Vec::is_empty))
        {
            self.caught_up = Some(direction.reverse());
        }
        let order = match protocol {
            AppProtocol::Smtp
            | AppProtocol::Ftp
            | AppProtocol::Pop3
            | AppProtocol::Imap
            | AppProtocol::Ssh => [Direction::ToClient, Direction::ToServer],
            _ => [Direction::ToServer, Direction::ToClient],
        };
        for direction in order {
            let bytes = waiting[direction.index()].as_deref();
            let gap_before = u64::from(bytes.is_none());
            let bytes = bytes.unwrap_or_default();
            if !bytes.is_empty() || gap_before > 0 {
                self.parse(
                    key,
                    StreamChunk {
                        direction,
                        offset: 0,
                        bytes,
                        gap_before,
                        is_end: false,
                    },
                );
            }
        }
    }

    /// Passes bytes to the parser, at once or in slices.
    fn parse(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        match self.fits(key, &chunk) {
            true => self.parse_slice(key, chunk),
            false => self.parse_in_slices(key, chunk),
        }
    }

    fn parse_slice(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        let Mode::Parsing(parser) = &mut self.mode else {
            return;
        };
        if chunk.bytes.is_empty() && chunk.gap_before == 0 {
            return;
        }
        self.transactions.side = chunk.direction.index();
        let outcome = parser.data(chunk, &mut self.transactions);
        // A transaction that was removed before its inspection may hide an attack, as bytes that cannot be parsed may.
        self.has_failed |= core::mem::take(&mut self.transactions.has_lost);
        self.is_encrypted = parser.is_encrypted();
        self.expected.append(&mut parser.expected());
        self.flushes_raw[chunk.direction.index()] |= parser.ends_message();
        match outcome {
            Outcome::Continue => {}
            Outcome::Failed => {
                self.has_failed |= parser.is_strict();
                self.transactions.end();
                self.mode = Mode::Done;
            }
            Outcome::Switch { rest } => {
                let is_websocket = upgrades_to_websocket(&self.transactions);
                self.original_protocol = self.protocol;
                self.transactions.end();
                if is_websocket {
                    // The bytes of WebSocket do not identify it; the answer to the upgrade does (RFC 6455, section 4.2.2).
                    self.begin(key, chunk.direction, AppProtocol::WebSocket, &rest.map(Some));
                    return;
                }
                self.mode = Mode::Probing {
                    waiting: rest.map(Some),
                };
                for direction in [Direction::ToServer, Direction::ToClient] {
                    let Mode::Probing { waiting } = &self.mode else {
                        return;
                    };
                    let has_bytes = waiting[direction.index()]
                        .as_ref()
                        .is_some_and(|bytes| !bytes.is_empty());
                    if has_bytes {
                        let transport = if key.protocol == TCP {
                            Transport::Tcp
                        } else {
                            Transport::Udp
                        };
                        self.probe(key, direction, transport);
                    }
                }
            }
        }
    }
}

/// Returns true if the last transaction of HTTP is an upgrade to WebSocket that the server accepted.
fn upgrades_to_websocket(transactions: &Transactions) -> bool {
    let Some(last) = transactions.list.back() else {
        return false;
    };
    let is_accepted = matches!(&last.record, record::Record::Http(http) if http.status == Some(101));
    let mut headers = last.buffers(
        millrace_ips_rules::buffers::Buffer::HttpHeader,
        Direction::ToClient,
    );
    is_accepted
        && headers.any(|view| {
            view.bytes.split(|byte| *byte == b'\n').any(|line| {
                let mut parts = line.splitn(2, |byte| *byte == b':');
                let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                name.eq_ignore_ascii_case(b"upgrade") && value.trim_ascii().eq_ignore_ascii_case(b"websocket")
            })
        })
}
