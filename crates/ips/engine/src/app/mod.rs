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
mod expectations;
pub mod file;
mod framed;
pub(crate) mod frames;
mod ftp;
mod ftp_data;
pub mod heap;
mod held;
mod http;
pub(crate) mod ike;
mod interfaces;
pub(crate) mod krb5;
mod ldap;
mod mail;
mod mdns;
mod modbus;
mod mqtt;
mod nfs;
mod open_files;
mod parameter;
mod parser;
mod parsers;
mod pgsql;
mod probe;
mod probing;
mod protocol;
mod quic;
pub(crate) mod ranges;
mod rdp;
pub mod record;
mod rfb;
mod sdp;
mod settings;
mod sip;
mod smb;
mod snmp;
mod ssh;
mod text;
mod tftp;
pub mod tls;
pub mod transaction;
mod transport;
mod waiting;
mod websocket;
mod words;

#[cfg(test)]
mod bounds;

use heap::Heap;
use waiting::{Held, OtherDirection, SecondParser};

pub use events::{EVENTS, REFUSED_EVENTS, event, protocol_of, why_refused};
pub use expectation::Expectation;
pub(crate) use expectations::Expectations;
pub use frames::{FrameReport, FrameSet, FrameView};
pub use parser::{Outcome, Parser};
pub use probe::{ProtocolDetection, detect_protocol};
pub use protocol::AppProtocol;
pub use settings::{AppSettings, Asks, CONTENT_CODINGS};
pub use smb::status_name as smb_status_name;
pub use tls::version_name as tls_version_name;
pub use transaction::{AppEvent, BufferView, Progress, Transaction, Transactions};
pub use transport::Transport;

use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

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
    /// Offset in the stream from which the bytes of each direction are encrypted, by [`Direction::index`]: raw contents are not
    /// searched from there on, as the documentation of Suricata describes for its setting `encryption-handling: track-only`.
    pub encrypted_from: [Option<u64>; 2],
    /// True once data of the flow escaped inspection: a strict parser refused bytes, a transaction was removed before
    /// its inspection, or a transaction exceeded a limit. In mode `ips` the policy for parser errors applies.
    pub has_failed: bool,
    /// True once a stream of HTTP/2 has carried a message of DNS (RFC 8484).
    pub(crate) carries_dns: bool,
    /// True once a message was inspected that recipients read in different ways. In mode `ips` the policy for ambiguous messages
    /// applies.
    pub is_ambiguous: bool,
    /// The direction whose waiting bytes were parsed because a packet of the other direction identified the
    /// protocol.
    pub(crate) caught_up: Option<Direction>,
    /// True by [`Direction::index`] if a rule stores all files of the direction.
    pub(crate) stores: [bool; 2],
    /// Connections that the flow announces, until the engine takes them.
    pub expected: Vec<Expectation>,
    /// Settings of the parsers.
    pub settings: AppSettings,
    mode: Mode,
    /// The frames of the protocol, if rules ask for them.
    pub(crate) frames: Option<Box<frames::Frames>>,
    /// The direction of the first data.
    first: Option<Direction>,
    /// Offset in the stream behind the bytes that were received, by [`Direction::index`].
    received: [u64; 2],
    /// The protocol that follows a change of protocol, if both ends agreed on one.
    expects: Option<AppProtocol>,
    /// The request that upgrades the connection to HTTP/2, until its parser begins.
    upgraded: Option<Box<http::http2::UpgradeRequest>>,
    /// The direction whose protocol is not known yet, although that of the flow is.
    other: Option<OtherDirection>,
    /// The parser of a direction that speaks another protocol than the flow.
    second: Option<SecondParser>,
    /// Bytes that wait for the inspection of the transactions before them, in the order in which they will be parsed.
    held: Vec<Held>,
    has_ended: [bool; 2],
    /// The direction whose first bytes are of no known protocol, although those of the other are.
    failed_direction: Option<Direction>,
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
        let AppState {
            protocol,
            original_protocol,
            transactions,
            flushes_raw,
            encrypted_from,
            has_failed,
            carries_dns,
            is_ambiguous,
            caught_up,
            stores,
            expected,
            settings,
            mode,
            frames,
            first,
            received,
            expects,
            upgraded,
            other,
            second,
            held,
            has_ended,
            failed_direction,
            has_unknown_datagram,
            is_changed,
        } = self;
        transactions.reset();
        expected.clear();
        match mode {
            Mode::Probing { waiting } => {
                for bytes in waiting {
                    bytes.get_or_insert_default().clear();
                }
            }
            Mode::Parsing(_) | Mode::Done => *mode = Mode::default(),
        }
        if held.capacity() > 0 {
            *held = Vec::new();
        }
        (*protocol, *original_protocol, *first, *caught_up) = (None, None, None, None);
        (*expects, *failed_direction, *frames, *other, *second) = (None, None, None, None, None);
        (*flushes_raw, *encrypted_from, *stores, *received, *has_ended) = Default::default();
        (*has_failed, *is_ambiguous, *has_unknown_datagram, *is_changed) = (false, false, false, false);
        (*carries_dns, *upgraded) = (false, None);
        *settings = AppSettings::default();
    }

    /// Returns true if the bytes of both directions are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted_from.iter().all(Option::is_some)
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
        let second = self.second.as_ref().map(|second| &second.parser);
        let second = second.map_or(0, |parser| size_of_val(&**parser) + parser.heap());
        let other = self.other.heap() + second;
        let frames = self.frames.as_mut().map_or(0, |frames| frames.heap());
        let waiting = self.upgraded.heap() + self.held.heap();
        mode + other + frames + self.transactions.heap() + self.expected.heap() + waiting
    }

    /// Frees the parser, the transactions and all waiting bytes. Later bytes are not parsed.
    pub(crate) fn give_up_memory(&mut self) {
        self.mode = Mode::Done;
        (self.other, self.second, self.frames, self.upgraded) = (None, None, None, None);
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
            let parser = ftp_data::FtpData::new(expectation, self.settings);
            self.mode = Mode::Parsing(Box::new(parser));
        }
    }

    /// Passes in-order bytes of a TCP stream to the parser, or to protocol detection while there is none. Holds the
    /// bytes if earlier ones are held.
    pub fn stream(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        if !chunk.bytes.is_empty() {
            self.first.get_or_insert(chunk.direction);
        }
        let received = &mut self.received[chunk.direction.index()];
        *received = (*received).max(chunk.offset + chunk.bytes.len() as u64);
        if self.is_over() && !chunk.is_end {
            return;
        }
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
                Some(
                    AppProtocol::Smb
                    | AppProtocol::Ftp
                    | AppProtocol::Imap
                    | AppProtocol::Pop3
                    | AppProtocol::Pgsql
                    | AppProtocol::Enip,
                ) => false,
                // The engine does not parse messages of this protocol: each chunk counts as one message.
                Some(AppProtocol::Krb5) => direction == chunk.direction,
                _ => self.completed(direction) != completed[direction.index()],
            };
            self.flushes_raw[direction.index()] |= is_due;
        }
    }

    /// Returns true if no byte is looked at any more, and none counts as a message.
    #[inline]
    fn is_over(&self) -> bool {
        matches!(self.mode, Mode::Done)
            && self.frames.is_none()
            && !self.is_paused()
            && self.protocol != Some(AppProtocol::Krb5)
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
            Mode::Done if self.frames.is_none() => {}
            Mode::Done | Mode::Parsing(_) => self.parse(key, chunk),
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
        self.end_second(direction);
        if let Some(frames) = &mut self.frames {
            frames.end(direction);
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
        if self.transactions.list.is_empty() {
            return 0;
        }
        let steps = |transaction: &Transaction| {
            let progress = transaction.progress[direction.index()];
            let is_complete = usize::from(progress == Progress::Complete);
            match transaction.app {
                // Hello, certificate and end of a handshake; request and acknowledgments of an exchange.
                AppProtocol::Tls | AppProtocol::Mqtt => {
                    let (has_first, has_second) = (progress >= Progress::Headers, progress >= Progress::Body);
                    usize::from(has_first) + usize::from(has_second) + is_complete
                }
                _ => is_complete,
            }
        };
        self.transactions.list.iter().map(steps).sum()
    }

    /// Passes bytes to the parser, at once or in slices.
    fn parse(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        match self.fits(key, &chunk) {
            true => self.parse_slice(key, chunk),
            false => self.parse_in_slices(key, chunk),
        }
    }

    fn parse_slice(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        if chunk.bytes.is_empty() && chunk.gap_before == 0 {
            return;
        }
        self.transactions.side = chunk.direction.index();
        if let Some(frames) = &mut self.frames {
            frames.data(&chunk);
            self.transactions.has_lost |= core::mem::take(&mut frames.has_lost);
        }
        if self.other.is_some() || self.second.is_some() {
            self.parse_other(key, chunk);
        }
        let Mode::Parsing(parser) = &mut self.mode else {
            return;
        };
        let outcome = parser.data(chunk, &mut self.transactions);
        self.carries_dns |= self.transactions.carries_dns;
        if core::mem::take(&mut self.transactions.has_lost) {
            // Bytes that escape inspection may hide an attack, as those that cannot be parsed may.
            self.has_failed = true;
            self.transactions.raise(transaction::INCOMPLETE);
        }
        self.encrypted_from = parser.encrypted_from();
        self.expected.append(&mut parser.expected());
        self.flushes_raw[chunk.direction.index()] |= parser.ends_message();
        match outcome {
            Outcome::Continue => {}
            Outcome::Paused { rest } => self.hold_rest(rest),
            Outcome::Failed => {
                self.has_failed |= parser.is_strict();
                self.transactions.end();
                self.mode = Mode::Done;
            }
            Outcome::Switch { rest } => self.change(key, chunk.direction, rest),
        }
    }
}
