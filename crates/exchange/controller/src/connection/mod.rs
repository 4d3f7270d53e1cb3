//! One connection with a switch, without sockets and without a clock.
//!
//! The owner feeds bytes with [`Connection::receive`], takes [`Progress`] with [`Connection::poll`] until there is none and
//! [`Event`]s with [`Connection::poll_event`], writes [`Connection::output`] to its socket, and calls [`Connection::tick`]
//! when [`Connection::deadline`] is reached.
//!
//! Guarantees against any switch:
//! - Every submitted operation has exactly one [`Outcome`], at the latest when the connection ends.
//! - If an operation exceeds its timeout, the connection ends. Only a new listing on a new connection shows
//!   which changes the switch has made. The switch discards an open bundle with the connection.
//! - Memory is bounded: input by one message and one read, events by [`Settings::max_events_size`], a listing by
//!   [`Settings::max_dump_size`] of encoded bytes a part, replies to ECHO_REQUESTs by [`Settings::max_output`]; a commit is
//!   encoded as the switch reads it.

mod error;
mod settings;

use std::collections::VecDeque;

use millrace_openflow::connection::Inbox;
use millrace_openflow::flow_monitor::{self, FLOW_MONITOR, FlowUpdate};
use millrace_openflow::multipart::{MultipartReply, ReplyBody};
use millrace_openflow::{
    ErrorCode, ErrorMessage, Experimenter, Header, Hello, Message, MessageType, SwitchFeatures, decode,
};
use millrace_types::{Time, Xid};

pub use error::{CloseReason, SubmitError};
pub use settings::Settings;

use crate::assembly::AssemblyError;
use crate::dump::DumpFilter;
use crate::event::{Event, EventQueue};
use crate::operation::{BundleSupport, Commit, DumpOperation, Operation, Outcome, Received, Request};
use crate::outgoing::Outgoing;

/// The number of an operation, unique within the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationId(u64);

/// Progress of a connection.
#[derive(Clone, PartialEq, Debug)]
pub enum Progress {
    /// Version 1.3 was negotiated, and the switch sent its FEATURES_REPLY.
    Ready(SwitchFeatures),
    /// An operation is complete.
    Done(OperationId, Outcome),
    /// The connection is closed. The bytes in [`Connection::output`] are to be written before the socket is closed.
    Closed(CloseReason),
}

/// Counters of messages that had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages that cannot be decoded.
    pub undecodable: u64,
    /// Messages that answer no request, or that only a controller may send.
    pub unexpected: u64,
    /// Late messages of an abandoned reply.
    pub late: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitsHello,
    /// The xid of the FEATURES_REQUEST.
    AwaitsFeatures(Xid),
    Ready,
    Closed,
}

/// An operation, and its deadline. The timeout starts with the first message of the operation.
#[derive(Debug)]
struct Running {
    id: OperationId,
    operation: Operation,
    deadline: Time,
}

/// The maximum number of abandoned multipart requests whose late messages are recognised.
const ABANDONED_LEN: usize = 8;

/// One connection, on the side of the controller.
#[derive(Debug)]
pub struct Connection {
    settings: Settings,
    state: State,
    inbox: Inbox,
    out: Outgoing,
    started: Time,
    last_heard: Time,
    /// The time of the last ECHO_REQUEST.
    echo_sent_at: Time,
    unanswered: u32,
    queue: VecDeque<(OperationId, Operation)>,
    running: Option<Running>,
    next_operation: u64,
    next_bundle: u32,
    support: BundleSupport,
    abandoned: VecDeque<Xid>,
    progress: VecDeque<Progress>,
    events: EventQueue,
    counters: Counters,
}

impl Connection {
    /// Returns a connection that was just opened. The output begins with HELLO.
    pub fn new(settings: Settings, now: Time) -> Connection {
        let mut out = Outgoing::new();
        let xid = out.xid();
        put(&mut out, &Message::Hello(Hello::OURS), xid);
        Connection {
            settings,
            state: State::AwaitsHello,
            inbox: Inbox::default(),
            out,
            started: now,
            last_heard: now,
            echo_sent_at: now,
            unanswered: 0,
            queue: VecDeque::new(),
            running: None,
            next_operation: 1,
            next_bundle: 1,
            support: BundleSupport::default(),
            abandoned: VecDeque::new(),
            progress: VecDeque::new(),
            events: EventQueue::new(settings.max_events_size),
            counters: Counters::default(),
        }
    }

    /// Takes bytes from the socket.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        if self.state != State::Closed {
            self.inbox.extend(bytes);
            self.last_heard = now;
            self.unanswered = 0;
        }
    }

    /// Returns the next progress, if there is any. The timeout of an operation that this call starts counts
    /// from `now`.
    pub fn poll(&mut self, now: Time) -> Option<Progress> {
        loop {
            self.pump(now);
            if let Some(progress) = self.progress.pop_front() {
                return Some(progress);
            }
            if self.state == State::Closed {
                return None;
            }
            match self.inbox.next_frame() {
                Ok(frame) => self.take_frame(frame?),
                Err(header) => {
                    let error = ErrorMessage::about(ErrorCode::OFPBRC_BAD_LEN, self.inbox.rest());
                    put(&mut self.out, &Message::Error(error), header.xid);
                    self.close(CloseReason::Framing {
                        length: header.length,
                    });
                }
            }
        }
    }

    /// Returns the next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Returns true if [`Connection::poll_event`] returns an event.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Submits a listing of the switch.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn dump(&mut self, filter: DumpFilter) -> Result<OperationId, SubmitError> {
        let max_size = self.settings.max_dump_size;
        self.submit(Operation::Dump(DumpOperation::new(filter, max_size)))
    }

    /// Submits a commit of flow_mod, group_mod, meter_mod and port_mod messages, in their order.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn commit(&mut self, messages: Vec<Message>) -> Result<OperationId, SubmitError> {
        let bundle = self.next_bundle;
        self.next_bundle = self.next_bundle.wrapping_add(1);
        self.submit(Operation::Commit(Commit::new(messages, bundle)))
    }

    /// Submits a request. The outcome contains the reply, or a BARRIER_REPLY if OpenFlow defines no reply for
    /// the request.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn request(&mut self, message: Message) -> Result<OperationId, SubmitError> {
        let max_size = self.settings.max_dump_size;
        self.submit(Operation::Request(Request::new(message, max_size)))
    }

    fn submit(&mut self, operation: Operation) -> Result<OperationId, SubmitError> {
        match self.state {
            State::Closed => return Err(SubmitError::Closed),
            State::AwaitsHello | State::AwaitsFeatures(_) => return Err(SubmitError::NotReady),
            State::Ready => {}
        }
        if self.queue.len() >= self.settings.max_operations {
            return Err(SubmitError::Busy {
                max: self.settings.max_operations,
            });
        }
        let id = OperationId(self.next_operation);
        self.next_operation += 1;
        self.queue.push_back((id, operation));
        Ok(id)
    }

    /// Sends a message without waiting for an answer, such as a packet_out. An error arrives as [`Event::Error`] with the
    /// returned xid.
    ///
    /// # Errors
    /// [`SubmitError::Congested`] while the switch does not read, [`SubmitError::TooLong`].
    pub fn send(&mut self, message: &Message) -> Result<Xid, SubmitError> {
        match self.state {
            State::Closed => return Err(SubmitError::Closed),
            State::AwaitsHello | State::AwaitsFeatures(_) => return Err(SubmitError::NotReady),
            State::Ready => {}
        }
        if self.out.len() > self.settings.max_output {
            return Err(SubmitError::Congested);
        }
        let xid = self.out.xid();
        self.out.put(message, xid).map_err(|_| SubmitError::TooLong)?;
        Ok(xid)
    }

    /// Lets the running operation write requests. When that operation is complete, starts the next one.
    fn pump(&mut self, now: Time) {
        while self.state == State::Ready {
            if self.running.is_none() {
                let Some((id, operation)) = self.queue.pop_front() else {
                    return;
                };
                let deadline = now + self.settings.operation_timeout;
                self.running = Some(Running {
                    id,
                    operation,
                    deadline,
                });
            }
            let Some(running) = &mut self.running else {
                return;
            };
            match running.operation.pump(&mut self.support, &mut self.out) {
                Some(outcome) => self.complete(outcome),
                None => return,
            }
        }
    }

    /// Completes the running operation with this outcome.
    fn complete(&mut self, outcome: Outcome) {
        if let Some(running) = self.running.take() {
            let is_failed = matches!(&outcome, Outcome::Dump(Err(_)) | Outcome::Reply(Err(_)));
            if is_failed && let Some(xid) = running.operation.open_multipart() {
                self.abandoned.push_back(xid);
                if self.abandoned.len() > ABANDONED_LEN {
                    self.abandoned.pop_front();
                }
            }
            self.progress.push_back(Progress::Done(running.id, outcome));
        }
    }

    /// Handles the message at `frame` in the inbox.
    fn take_frame(&mut self, frame: core::ops::Range<usize>) {
        let bytes = self.inbox.bytes(frame);
        let size = bytes.len();
        let Some(header) = Header::parse(bytes) else {
            return;
        };
        let decoded = decode(bytes).map(|(_, message)| message);
        match self.state {
            State::AwaitsHello => self.negotiate(header, decoded.ok()),
            State::AwaitsFeatures(xid) => match decoded {
                Ok(Message::FeaturesReply(features)) if header.xid == xid => self.identify(features),
                Ok(Message::Error(error)) if header.xid == xid => {
                    self.close(CloseReason::Refused { code: error.code });
                }
                Ok(message) => self.take_async(header.xid, message),
                Err(_) => self.counters.undecodable += 1,
            },
            State::Ready => match decoded {
                Ok(message) => self.take_message(header.xid, message, size),
                Err(error) if self.is_own_xid(header.xid) && header.message_type().is_some_and(is_reply) => {
                    self.deliver(header.xid, Received::Malformed(error));
                }
                Err(_) => self.counters.undecodable += 1,
            },
            State::Closed => {}
        }
    }

    /// Handles the first message of the switch (OpenFlow 1.3.5, section 6.3.1).
    fn negotiate(&mut self, header: Header, message: Option<Message>) {
        match message {
            Some(Message::Hello(hello)) if hello.agrees(header.version) => {
                let xid = self.out.xid();
                put(&mut self.out, &Message::FeaturesRequest, xid);
                self.state = State::AwaitsFeatures(xid);
            }
            Some(Message::Hello(_)) => {
                let text = "this controller speaks OpenFlow 1.3 (version 0x04) only";
                let error = ErrorMessage {
                    code: ErrorCode::OFPHFC_INCOMPATIBLE,
                    data: text.as_bytes().into(),
                };
                put(&mut self.out, &Message::Error(error), header.xid);
                self.close(CloseReason::Incompatible {
                    version: header.version,
                });
            }
            Some(Message::Error(error)) => self.close(CloseReason::Refused { code: error.code }),
            _ => self.close(CloseReason::NotHello { type_: header.type_ }),
        }
    }

    fn identify(&mut self, features: SwitchFeatures) {
        if features.auxiliary_id != 0 {
            self.close(CloseReason::Auxiliary {
                id: features.auxiliary_id,
            });
            return;
        }
        self.state = State::Ready;
        self.progress.push_back(Progress::Ready(features));
    }

    fn is_own_xid(&self, xid: Xid) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.operation.owns(xid))
    }

    /// Passes a message to the running operation, to which the xid belongs.
    fn deliver(&mut self, xid: Xid, received: Received) {
        let Some(running) = &mut self.running else { return };
        let outcome = running.operation.receive(xid, received, &mut self.support);
        if let Some(ports) = running.operation.take_ports() {
            self.events.push(Event::PortsListed(ports));
        }
        if let Some(outcome) = outcome {
            self.complete(outcome);
        }
    }

    fn take_message(&mut self, xid: Xid, message: Message, size: usize) {
        let type_ = message.type_();
        let message = match message {
            Message::MultipartReply(reply) => match self.take_updates(xid, reply) {
                Some(reply) => Message::MultipartReply(reply),
                None => return,
            },
            other => other,
        };
        if self.is_own_xid(xid) && (is_reply(type_) || type_ == MessageType::EchoReply) {
            let received = match message {
                Message::Error(error) => Received::Error(error),
                other => Received::Message(other, size),
            };
            return self.deliver(xid, received);
        }
        match message {
            Message::MultipartReply(_) if self.abandoned.contains(&xid) => self.counters.late += 1,
            Message::MultipartReply(reply) => {
                self.counters.unexpected += 1;
                let error = AssemblyError::UnexpectedXid {
                    xid: xid.0,
                    found: reply.body.type_(),
                };
                let outcome = self
                    .running
                    .as_ref()
                    .and_then(|running| running.operation.unexpected(error));
                if let Some(outcome) = outcome {
                    self.complete(outcome);
                }
            }
            other => self.take_async(xid, other),
        }
    }

    /// Turns flow updates into an event. Returns the reply for an operation that requested monitors; `None`
    /// for updates that follow later.
    fn take_updates(&mut self, xid: Xid, reply: MultipartReply) -> Option<MultipartReply> {
        let MultipartReply { more, body } = reply;
        let ReplyBody::Experimenter(body) = body else {
            return Some(MultipartReply { more, body });
        };
        if (body.experimenter, body.exp_type) != (Experimenter::ONF, FLOW_MONITOR) {
            let body = ReplyBody::Experimenter(body);
            return Some(MultipartReply { more, body });
        }
        match FlowUpdate::decode_all(&body.data) {
            Ok(updates) if updates.is_empty() => {}
            Ok(updates) => self.events.push(Event::FlowUpdates(updates)),
            Err(_) => {
                self.counters.undecodable += 1;
                self.events.push_lost_state();
            }
        }
        let body = ReplyBody::Experimenter(Experimenter {
            data: Box::default(),
            ..body
        });
        // The switch chooses the xid of updates that answer no request.
        self.is_own_xid(xid).then_some(MultipartReply { more, body })
    }

    /// Handles a message that answers no operation.
    fn take_async(&mut self, xid: Xid, message: Message) {
        match message {
            Message::EchoRequest(data) => {
                if self.out.len() > self.settings.max_output {
                    self.close(CloseReason::NotReading);
                } else {
                    put(&mut self.out, &Message::EchoReply(data), xid);
                }
            }
            // A second HELLO is ignored. An ECHO_REPLY needs no handling: `receive` has already recorded that
            // the switch is alive.
            Message::Hello(_) | Message::EchoReply(_) => {}
            Message::PortStatus(status) => self.events.push(Event::PortStatus(status)),
            Message::FlowRemoved(removed) => self.events.push(Event::FlowRemoved(removed)),
            Message::PacketIn(packet) => self.events.push(Event::PacketIn(packet)),
            Message::Error(error) => self.events.push(Event::Error { xid, error }),
            Message::Experimenter(message) => match flow_monitor::is_pause(&message) {
                Some(is_paused) => self.events.push(Event::MonitorPaused(is_paused)),
                None => self.counters.unexpected += 1,
            },
            _ => self.counters.unexpected += 1,
        }
    }

    /// Returns the bytes to write to the socket.
    pub fn output(&self) -> &[u8] {
        self.out.bytes()
    }

    /// Records that the first `size` bytes of [`Connection::output`] were written. A switch counts as alive
    /// while it reads, even if it sends nothing.
    pub fn wrote(&mut self, size: usize, now: Time) {
        self.out.wrote(size);
        if size > 0 && self.out.len() > 0 {
            self.last_heard = now;
            self.unanswered = 0;
        }
    }

    /// Returns true if the handshake is complete and the connection is open.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Returns the counters of messages that had no effect.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the time at which [`Connection::tick`] is due; `None` if never.
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::AwaitsHello | State::AwaitsFeatures(_) => {
                Some(self.started + self.settings.handshake_timeout)
            }
            State::Ready => {
                let operation = self.running.as_ref().map(|running| running.deadline);
                match (operation, self.echo_deadline()) {
                    (Some(operation), Some(echo)) => Some(operation.min(echo)),
                    (operation, echo) => operation.or(echo),
                }
            }
            State::Closed => None,
        }
    }

    fn echo_deadline(&self) -> Option<Time> {
        let interval = self.settings.echo_interval?;
        let since = if self.unanswered == 0 {
            self.last_heard
        } else {
            self.echo_sent_at
        };
        Some(since + interval)
    }

    /// Handles time-outs at `now`; [`Connection::poll`] returns the outcome.
    pub fn tick(&mut self, now: Time) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state {
            State::AwaitsHello | State::AwaitsFeatures(_) => {
                return self.close(CloseReason::HandshakeTimeout);
            }
            State::Ready | State::Closed => {}
        }
        if let Some(running) = self.running.as_ref().filter(|running| running.deadline <= now) {
            let operation = running.operation.name();
            return self.close(CloseReason::OperationTimeout { operation });
        }
        if self.unanswered >= self.settings.echo_misses {
            return self.close(CloseReason::EchoTimeout);
        }
        self.unanswered += 1;
        self.echo_sent_at = now;
        let xid = self.out.xid();
        put(&mut self.out, &Message::EchoRequest(Box::default()), xid);
    }

    /// Closes the connection. Every incomplete operation gets its outcome.
    pub fn close(&mut self, reason: CloseReason) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        let queued = core::mem::take(&mut self.queue);
        let running = self.running.take().map(|running| (running.id, running.operation));
        for (id, operation) in running.into_iter().chain(queued) {
            let outcome = operation.closed(reason.clone());
            self.progress.push_back(Progress::Done(id, outcome));
        }
        self.progress.push_back(Progress::Closed(reason));
    }
}

/// Returns true for messages that answer a request.
const fn is_reply(type_: MessageType) -> bool {
    matches!(
        type_,
        MessageType::Error
            | MessageType::Experimenter
            | MessageType::FeaturesReply
            | MessageType::GetConfigReply
            | MessageType::MultipartReply
            | MessageType::BarrierReply
            | MessageType::QueueGetConfigReply
            | MessageType::RoleReply
            | MessageType::GetAsyncReply
    )
}

/// Appends a message that is known to be short enough.
fn put(out: &mut Outgoing, message: &Message, xid: Xid) {
    let encoded = out.put(message, xid);
    debug_assert!(encoded.is_ok(), "{encoded:?}");
}
