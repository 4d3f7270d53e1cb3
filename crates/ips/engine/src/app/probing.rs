//! Detection of the protocol of a flow: by the first bytes of one direction, then of the other, and again after a change of
//! protocol.
//!
//! ```text
//!  first bytes ─▶ found ─▶ parser ◀── bytes of both directions
//!                   │
//!                   └─▶ the other direction: same protocol ─▶ nothing more
//!                                            none ──────────▶ anomaly "only one direction"
//!                                            another ───────▶ anomaly "mismatch", and a parser of its own beside the first
//! ```
//!
//! The events are those that Suricata documents for protocol detection.

use super::frames::Frames;
use super::http::http2::{self, Http2, UpgradeRequest};
use super::parser::{Outcome, Parser};
use super::parsers::parser_of;
use super::probe::{self, PROBE_SIZE, ProtocolDetection, detect_protocol};
use super::transaction::{AppEvent, Transactions};
use super::transport::{TCP, Transport};
use super::waiting::{OtherDirection, SecondParser};
use super::{AppProtocol, AppState, Mode, record};
use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

/// The first bytes of the two directions are of different protocols.
const MISMATCH: AppEvent = "applayer_mismatch_protocol_both_directions";
/// The server has sent first, in a protocol in which the client does.
const WRONG_FIRST: AppEvent = "applayer_wrong_direction_first_data";
/// The first bytes of one direction are of no known protocol.
const ONE_DIRECTION: AppEvent = "applayer_detect_protocol_only_one_direction";
/// Detection has ended with the bytes of one direction: the other is silent, or too short to decide.
const SKIPPED: AppEvent = "applayer_proto_detection_skipped";
/// Plain text follows a command that starts TLS.
const NO_TLS: AppEvent = "applayer_no_tls_after_starttls";
/// Another protocol follows than the one to which both ends have agreed to change.
const UNEXPECTED: AppEvent = "applayer_unexpected_protocol";

/// Returns true if the client of a protocol sends first.
fn begins_with_client(protocol: AppProtocol) -> bool {
    matches!(
        protocol,
        AppProtocol::Http
            | AppProtocol::Http2
            | AppProtocol::Tls
            | AppProtocol::Smb
            | AppProtocol::Dcerpc
            | AppProtocol::Modbus
            | AppProtocol::Dnp3
            | AppProtocol::Ldap
            | AppProtocol::Krb5
            | AppProtocol::Mqtt
            | AppProtocol::Pgsql
            | AppProtocol::Enip
    )
}

impl AppState {
    /// Tries to detect the protocol of the bytes that wait.
    pub(super) fn probe(&mut self, key: &FlowKey, direction: Direction, transport: Transport) {
        let is_http2 = self.expects == Some(AppProtocol::Http2);
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
        match detect(bytes, (direction, transport), ports, is_http2) {
            ProtocolDetection::Found(protocol)
                if direction == Direction::ToServer
                    && size < PROBE_SIZE
                    && waiting[Direction::ToClient.index()]
                        .as_ref()
                        .is_some_and(Vec::is_empty)
                    && probe::awaits_greeting(protocol, ports) => {}
            ProtocolDetection::Found(protocol) => {
                let waiting = core::mem::take(waiting);
                self.found(key, (direction, direction), protocol, &waiting);
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
                let is_short = || {
                    other.as_ref().is_some_and(|bytes| {
                        detect(bytes, (direction.reverse(), transport), ports, is_http2)
                            == ProtocolDetection::Undecided
                    })
                };
                let gives_up = !is_silent || size >= PROBE_SIZE;
                let is_skipped = gives_up && (is_silent || is_short());
                if gives_up && !self.begin_by_client(key, direction) {
                    if is_skipped {
                        self.transactions.raise(SKIPPED);
                    }
                    self.give_up();
                }
            }
        }
    }

    /// Starts the parser of the protocol that the client's bytes identify, if they waited for a greeting and the
    /// server sent something else, or nothing. `direction` is the direction of the packet. Returns true if there
    /// is such a protocol.
    pub(super) fn begin_by_client(&mut self, key: &FlowKey, direction: Direction) -> bool {
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
            self.found(key, (direction, client), protocol, &waiting);
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
        self.confirm(AppProtocol::Failed);
        self.protocol = Some(AppProtocol::Failed);
        self.mode = Mode::Done;
    }

    /// Starts the parser of a protocol that the bytes of `direction` identified, with the bytes that waited.
    pub(super) fn begin(
        &mut self,
        key: &FlowKey,
        direction: Direction,
        protocol: AppProtocol,
        waiting: &[Option<Vec<u8>>; 2],
    ) {
        self.protocol = Some(protocol);
        let frames = Frames::new(
            protocol,
            key.protocol != TCP,
            self.settings.frames,
            self.settings.reports_frames,
        );
        self.frames = match (frames, self.frames.take()) {
            (Some(frames), Some(before)) => Some(Box::new(frames.after(*before))),
            (frames, before) => frames.map(Box::new).or(before),
        };
        let upgraded = self.upgraded.take().filter(|_| protocol == AppProtocol::Http2);
        let has_upgraded = upgraded.is_some();
        let parser = match upgraded {
            Some(request) => {
                let parser = Http2::upgraded(self.settings, *request, &mut self.transactions);
                Some(Box::new(parser) as Box<dyn Parser>)
            }
            None => parser_of(protocol, key, self.settings),
        };
        self.mode = parser.map_or(Mode::Done, Mode::Parsing);
        if matches!(self.mode, Mode::Done) && self.frames.is_none() {
            return;
        }
        if !waiting
            .iter()
            .any(|bytes| bytes.as_ref().is_none_or(Vec::is_empty))
        {
            self.caught_up = Some(direction.reverse());
        }
        if has_upgraded && direction == Direction::ToClient {
            // The client has sent the request before.
            self.caught_up = Some(Direction::ToServer);
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
                        offset: self.received[direction.index()].saturating_sub(bytes.len() as u64),
                        bytes,
                        gap_before,
                        is_end: false,
                    },
                );
            }
        }
    }

    /// Starts the parser of a protocol that the bytes of `identified` show, with the bytes that waited. `direction` is the
    /// direction of the packet.
    fn found(
        &mut self,
        key: &FlowKey,
        (direction, identified): (Direction, Direction),
        protocol: AppProtocol,
        waiting: &[Option<Vec<u8>>; 2],
    ) {
        self.confirm(protocol);
        if key.protocol == TCP {
            let is_first = self.original_protocol.is_none();
            if is_first && self.first == Some(Direction::ToClient) && begins_with_client(protocol) {
                self.transactions.raise(WRONG_FIRST);
            }
            self.other = Some(OtherDirection {
                direction: identified.reverse(),
                bytes: Vec::new(),
            });
            self.second = None;
        }
        self.begin(key, direction, protocol, waiting);
    }

    /// Compares the protocol that follows a change of protocol with the one that was agreed on.
    fn confirm(&mut self, protocol: AppProtocol) {
        if let Some(expected) = self.expects.take()
            && expected != protocol
        {
            self.transactions.raise(UNEXPECTED);
            if expected == AppProtocol::Tls {
                self.transactions.raise(NO_TLS);
            }
        }
    }

    /// Changes the protocol: detection begins again with bytes that the parser did not consume.
    pub(super) fn change(&mut self, key: &FlowKey, direction: Direction, rest: [Vec<u8>; 2]) {
        let upgrade = upgrade(&self.transactions);
        let request = self.transactions.list.back();
        self.upgraded = request
            .filter(|_| upgrade == Some(AppProtocol::Http2))
            .map(|request| Box::new(UpgradeRequest::of(request)));
        self.original_protocol = self.protocol;
        (self.other, self.second) = (None, None);
        if let Some(frames) = &mut self.frames {
            frames.stop();
        }
        self.transactions.end();
        self.expects = match self.protocol {
            Some(AppProtocol::Http) => upgrade,
            _ => Some(AppProtocol::Tls),
        };
        if upgrade == Some(AppProtocol::WebSocket) {
            // The bytes of WebSocket do not identify it; the answer to the upgrade does (RFC 6455, section 4.2.2).
            self.expects = None;
            self.begin(key, direction, AppProtocol::WebSocket, &rest.map(Some));
            return;
        }
        self.mode = Mode::Probing {
            waiting: rest.map(Some),
        };
        for direction in Direction::BOTH {
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

    /// Returns the protocol of a direction: that of the flow, unless the direction speaks another.
    pub(crate) fn detected_in(&self, direction: Direction) -> Option<AppProtocol> {
        match &self.second {
            Some(second) if second.direction == direction => Some(second.protocol),
            _ => self.detected(),
        }
    }

    /// Returns the protocol of a direction for records: [`AppProtocol::Failed`] if its own bytes are of no known protocol.
    pub(crate) fn spoken_in(&self, direction: Direction) -> Option<AppProtocol> {
        match self.failed_direction == Some(direction) {
            true => Some(AppProtocol::Failed),
            false => self.detected_in(direction),
        }
    }

    /// Returns the name in events of a protocol of the flow: HTTP/2 has another one once it has carried DNS.
    pub(crate) fn reported(&self, protocol: Option<AppProtocol>) -> Option<AppProtocol> {
        match protocol {
            Some(AppProtocol::Http2) if self.carries_dns => Some(AppProtocol::Doh2),
            protocol => protocol,
        }
    }

    /// Passes bytes to the parser of a direction that speaks another protocol, or to the detection of that protocol.
    pub(super) fn parse_other(&mut self, key: &FlowKey, chunk: StreamChunk<'_>) {
        if let Some(other) = self.other.take_if(|other| other.direction == chunk.direction) {
            if chunk.gap_before == 0 {
                self.identify(key, other, chunk);
            }
            return;
        }
        if let Some(second) = &mut self.second
            && second.direction == chunk.direction
        {
            let outcome = second.parser.data(chunk, &mut self.transactions);
            // The bytes that the parser gave back would be passed to both parsers.
            self.transactions.has_lost |= matches!(outcome, Outcome::Paused { .. });
            if outcome != Outcome::Continue {
                self.second = None;
            }
        }
    }

    /// Compares the first bytes of a direction with the protocol that the other direction has identified.
    fn identify(&mut self, key: &FlowKey, mut other: OtherDirection, chunk: StreamChunk<'_>) {
        other.bytes.extend_from_slice(chunk.bytes);
        let ports = (key.client_port, key.server_port);
        let direction = chunk.direction;
        let is_http2 = self.protocol == Some(AppProtocol::Http2);
        match detect(&other.bytes, (direction, Transport::Tcp), ports, is_http2) {
            ProtocolDetection::Found(protocol) if Some(protocol) == self.protocol => {}
            ProtocolDetection::Found(protocol) => {
                self.transactions.raise(MISMATCH);
                if let Some(parser) = parser_of(protocol, key, self.settings) {
                    self.second = Some(SecondParser {
                        direction,
                        protocol,
                        parser,
                    });
                    let bytes = core::mem::take(&mut other.bytes);
                    self.parse_other(
                        key,
                        StreamChunk {
                            bytes: &bytes,
                            ..chunk
                        },
                    );
                }
            }
            ProtocolDetection::Undecided if other.bytes.len() < PROBE_SIZE => self.other = Some(other),
            ProtocolDetection::Undecided | ProtocolDetection::Unknown => {
                self.failed_direction = Some(other.direction);
                self.transactions.raise(ONE_DIRECTION);
            }
        }
    }

    /// Ends the parser of a direction that speaks another protocol.
    pub(super) fn end_second(&mut self, direction: Direction) {
        if let Some(mut second) = self.second.take_if(|second| second.direction == direction) {
            second.parser.end(direction, &mut self.transactions);
        }
    }
}

/// Returns the protocol of the first bytes of a direction; if it may be HTTP/2, also by the first frame of the server.
fn detect(
    bytes: &[u8],
    (direction, transport): (Direction, Transport),
    ports: (u16, u16),
    is_http2: bool,
) -> ProtocolDetection {
    if is_http2 && direction == Direction::ToClient {
        match http2::detect_server(bytes) {
            ProtocolDetection::Unknown => {}
            detection => return detection,
        }
    }
    detect_protocol(bytes, direction, transport, ports)
}

/// Returns the protocol to which the last transaction of HTTP changes, if the server accepted the change.
fn upgrade(transactions: &Transactions) -> Option<AppProtocol> {
    let last = transactions.list.back()?;
    let is_accepted = matches!(&last.record, record::Record::Http(http) if http.status == Some(101));
    if !is_accepted {
        return None;
    }
    let mut headers = last.buffers(
        millrace_ips_rules::buffers::Buffer::HttpHeader,
        Direction::ToClient,
    );
    headers.find_map(|view| {
        view.bytes.split(|byte| *byte == b'\n').find_map(|line| {
            let mut parts = line.splitn(2, |byte| *byte == b':');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if !name.eq_ignore_ascii_case(b"upgrade") {
                return None;
            }
            match value.trim_ascii().to_ascii_lowercase().as_slice() {
                b"websocket" => Some(AppProtocol::WebSocket),
                b"h2c" => Some(AppProtocol::Http2),
                _ => None,
            }
        })
    })
}
