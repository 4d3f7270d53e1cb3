//! One connection to a controller, as seen by the switch, without sockets and without a clock.
//!
//! The owner feeds bytes with [`Connection::receive`], takes [`Event`]s with [`Connection::poll`], sends
//! with [`Connection::send`] or [`Connection::send_encoded`], writes [`Connection::output`] to its socket,
//! and calls [`Connection::tick`] when [`Connection::deadline`] is reached.
//!
//! Guarantees:
//! - The version is negotiated first. Before that, no other message is answered.
//! - Every request that cannot be decoded becomes an event with the error of the specification, which the owner sends in
//!   its turn, and the next one is read. A request of several messages is answered with one error, and none of its
//!   messages is carried out. Only bytes that cannot be split into messages end the connection.
//! - A peer that sends and does not read is not served: while more than [`Settings::max_output`] bytes wait to be written,
//!   [`Connection::poll`] returns nothing, [`Connection::wants_input`] is false, and [`Connection::is_congested`] tells the
//!   owner to keep asynchronous messages back.
//! - A silent peer is sent an ECHO_REQUEST, and the connection is closed if it stays silent.
//! - Over datagrams ([`Settings::is_datagram`]) HELLO is repeated until a message arrives. Any message of version 1.3
//!   counts as HELLO. A datagram that cannot be split into messages is dropped, and only the messages that the
//!   specification allows there are accepted.

mod inbox;
mod reassembly;
mod request_prefix;

use millrace_types::{Duration, Time, Xid};
use thiserror::Error;

use crate::decode_error::DecodeError;
use crate::error_code::ErrorCode;
use crate::error_message::{ERROR_DATA_SIZE, ErrorMessage};
use crate::header::{HEADER_SIZE, Header, MessageType, VERSION};
use crate::hello::Hello;
use crate::message::{EncodeError, Message, decode, encode};
pub use inbox::Inbox;
use reassembly::{AddOutcome, MultipartReassembly};
pub use request_prefix::RequestPrefix;

/// Time-outs and limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The time that the peer has to send HELLO.
    pub hello_timeout: Duration,
    /// The time without received bytes after which an ECHO_REQUEST is sent; the peer has the same time to
    /// answer. `None` sends no ECHO_REQUEST.
    pub echo_interval: Option<Duration>,
    /// The number of ECHO_REQUESTs that may stay unanswered.
    pub echo_misses: u32,
    /// While more than this number of bytes wait to be written, no more requests are accepted.
    pub max_output: usize,
    /// True if messages are datagrams, which may be lost: an auxiliary connection over UDP (OpenFlow 1.3.5, section 6.3.5).
    pub is_datagram: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hello_timeout: Duration::from_secs(10),
            echo_interval: Some(Duration::from_secs(5)),
            echo_misses: 3,
            max_output: 1 << 20,
            is_datagram: false,
        }
    }
}

/// A request for the switch to carry out.
#[derive(Clone, Debug)]
pub struct Request {
    /// The transaction id of replies and errors.
    pub xid: Xid,
    /// The first bytes of the request as received, for an error reply.
    pub head: RequestPrefix,
    /// Size of the request, in bytes.
    pub size: u16,
    pub message: Message,
}

impl Request {
    /// Returns the error reply for a request that fails.
    pub fn error(&self, code: ErrorCode) -> Message {
        Message::Error(ErrorMessage::about(code, self.head.bytes()))
    }
}

/// A request that cannot be decoded or reassembled.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The header of the request.
    pub header: Header,
    /// The first bytes of the request as received, for the error reply.
    pub head: RequestPrefix,
    pub error: DecodeError,
}

impl Rejection {
    /// Returns the error reply.
    pub fn reply(&self) -> Message {
        Message::Error(ErrorMessage::about(self.error.error_code(), self.head.bytes()))
    }
}

/// The reason why a connection was closed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CloseReason {
    /// The peer does not support version 1.3.
    #[error("the controller does not support OpenFlow 1.3: its HELLO has version {version:#04x}")]
    Incompatible {
        /// Version in the header of the peer's HELLO.
        version: u8,
    },
    /// The first message was not HELLO.
    #[error("the controller's first message has type {type_}: expected 0 (HELLO)")]
    NotHello {
        /// Type of the message.
        type_: u8,
    },
    /// The peer's HELLO cannot be decoded.
    #[error("the controller's HELLO is malformed: {0}")]
    MalformedHello(DecodeError),
    /// The peer refused our HELLO.
    #[error("the controller rejected our HELLO: {code}")]
    Refused {
        /// The error of the peer.
        code: ErrorCode,
    },
    /// The length in a header is smaller than the header, so the following bytes cannot be split into
    /// messages.
    #[error("a message header has length {length}: expected at least 8, the size of the header")]
    Framing {
        /// The value in the message.
        length: u16,
    },
    /// HELLO did not arrive in time.
    #[error("the controller sent no HELLO before the timeout")]
    HelloTimeout,
    /// No ECHO_REQUEST was answered.
    #[error("the controller answered no echo request before the timeout")]
    EchoTimeout,
}

/// An event on a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// Version 1.3 was negotiated.
    Ready,
    /// A request to carry out.
    Request(Request),
    /// A request to answer with [`Rejection::reply`], after the replies to earlier requests: an error must not overtake
    /// the reply to a barrier (OpenFlow 1.3.5, section 6.2).
    Rejected(Rejection),
    /// The controller sent an ERROR.
    PeerError(ErrorMessage),
    /// The connection is closed. The bytes in [`Connection::output`] are to be written before the socket is closed.
    Closed(CloseReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitsHello,
    Ready,
    Closed,
}

/// One connection, on the side of the switch.
#[derive(Debug)]
pub struct Connection {
    settings: Settings,
    state: State,
    inbox: Inbox,
    reassembly: MultipartReassembly,
    output: Vec<u8>,
    written: usize,
    opened: Time,
    last_heard: Time,
    /// The time of the last ECHO_REQUEST.
    echo_sent_at: Time,
    unanswered: u32,
    next_xid: u32,
    pending: Option<Event>,
}

impl Connection {
    /// Returns a connection that was just opened, with its HELLO to be written.
    pub fn new(settings: Settings, now: Time) -> Connection {
        let mut connection = Connection {
            settings,
            state: State::AwaitsHello,
            inbox: Inbox::default(),
            reassembly: MultipartReassembly::default(),
            output: Vec::new(),
            written: 0,
            opened: now,
            last_heard: now,
            echo_sent_at: now,
            unanswered: 0,
            next_xid: FIRST_XID,
            pending: None,
        };
        let xid = connection.xid();
        connection.put(&Message::Hello(Hello::OURS), xid);
        connection
    }

    /// Takes bytes from the socket; over datagrams, one whole datagram.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        if self.state != State::Closed {
            if self.settings.is_datagram {
                // No message spans two datagrams.
                self.inbox.clear();
            }
            self.inbox.extend(bytes);
            self.last_heard = now;
            self.unanswered = 0;
        }
    }

    /// Returns true if the owner should read from the socket.
    pub fn wants_input(&self) -> bool {
        self.state != State::Closed && !self.is_congested()
    }

    /// Returns true if the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the next event, if there is one.
    pub fn poll(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.take() {
                return Some(event);
            }
            if self.state == State::Closed || self.is_congested() {
                return None;
            }
            let frame = match self.inbox.next_frame() {
                Ok(frame) => frame?,
                Err(_) if self.settings.is_datagram => {
                    self.inbox.clear();
                    return None;
                }
                Err(header) => return Some(self.close_for_framing(header)),
            };
            if let Some(event) = self.take_frame(frame) {
                return Some(event);
            }
        }
    }

    fn close_for_framing(&mut self, header: Header) -> Event {
        let reason = CloseReason::Framing {
            length: header.length,
        };
        let error = ErrorMessage::about(ErrorCode::OFPBRC_BAD_LEN, self.inbox.rest());
        self.close(reason, Some((error, header.xid)))
    }

    /// Handles the message at `frame` in the inbox.
    fn take_frame(&mut self, frame: core::ops::Range<usize>) -> Option<Event> {
        let bytes = self.inbox.bytes(frame);
        let head = RequestPrefix::new(bytes);
        let decoded = decode(bytes);
        let header = Header::parse(head.bytes())?;
        if self.state == State::AwaitsHello {
            let is_hello = matches!(decoded, Ok((_, Message::Hello(_))));
            if !self.settings.is_datagram || is_hello || header.version != VERSION {
                return Some(self.negotiate(header, head, decoded));
            }
            // The peer's HELLO was lost. The header of this message gives the peer's version.
            self.state = State::Ready;
            self.pending = self.take_decoded(header, head, decoded);
            return Some(Event::Ready);
        }
        self.take_decoded(header, head, decoded)
    }

    /// Handles a message of a connection that is ready.
    fn take_decoded(
        &mut self,
        header: Header,
        head: RequestPrefix,
        decoded: Result<(Header, Message), DecodeError>,
    ) -> Option<Event> {
        let decoded = match decoded {
            Ok((_, message)) if self.settings.is_datagram && !message.may_be_lost() => {
                Err(DecodeError::Type { type_: header.type_ })
            }
            decoded => decoded,
        };
        let wrong_way = header.message_type().is_some_and(|type_| !type_.is_for_switch());
        let message = match decoded {
            Ok(_) if wrong_way => Err(DecodeError::Type { type_: header.type_ }),
            Ok((_, message)) => Ok(message),
            Err(_) if wrong_way && header.version == VERSION => {
                Err(DecodeError::Type { type_: header.type_ })
            }
            // An ERROR is never answered with an ERROR, because such an exchange might never end.
            Err(_) if header.message_type() == Some(MessageType::Error) => return None,
            Err(error) => Err(error),
        };
        // Over datagrams, each message of a multipart request is refused separately.
        let is_part = header.version == VERSION
            && header.message_type() == Some(MessageType::MultipartRequest)
            && !self.settings.is_datagram;
        if is_part && self.reassembly.ignores(header.xid, &head) {
            return None;
        }
        match message {
            Ok(message) => self.take_message(header, head, message),
            Err(error) => {
                if is_part {
                    self.reassembly.refuse(header.xid, &head);
                }
                Some(Event::Rejected(Rejection { header, head, error }))
            }
        }
    }

    /// Handles the first message of the peer (OpenFlow 1.3.5, section 6.3.1).
    fn negotiate(
        &mut self,
        header: Header,
        head: RequestPrefix,
        decoded: Result<(Header, Message), DecodeError>,
    ) -> Event {
        match decoded {
            Ok((_, Message::Hello(hello))) if hello.agrees(header.version) => {
                self.state = State::Ready;
                Event::Ready
            }
            Ok((_, Message::Hello(_))) => {
                let text = "this switch speaks OpenFlow 1.3 (version 0x04) only";
                let error = ErrorMessage {
                    code: ErrorCode::OFPHFC_INCOMPATIBLE,
                    data: text.as_bytes().into(),
                };
                let reason = CloseReason::Incompatible {
                    version: header.version,
                };
                self.close(reason, Some((error, header.xid)))
            }
            Ok((_, Message::Error(error))) => self.close(CloseReason::Refused { code: error.code }, None),
            Err(error) if header.message_type() == Some(MessageType::Hello) => {
                let answer = ErrorMessage::about(error.error_code(), head.bytes());
                self.close(CloseReason::MalformedHello(error), Some((answer, header.xid)))
            }
            _ => {
                let error = ErrorMessage::about(ErrorCode::OFPBRC_BAD_TYPE, head.bytes());
                let reason = CloseReason::NotHello { type_: header.type_ };
                self.close(reason, Some((error, header.xid)))
            }
        }
    }

    fn take_message(&mut self, header: Header, head: RequestPrefix, message: Message) -> Option<Event> {
        let xid = header.xid;
        let message = match message {
            // A second HELLO is ignored. An ECHO_REPLY needs no handling: `receive` has already recorded that
            // the peer is alive.
            Message::Hello(_) | Message::EchoReply(_) => return None,
            Message::EchoRequest(data) => {
                self.put(&Message::EchoReply(data), xid);
                return None;
            }
            Message::Error(error) => return Some(Event::PeerError(error)),
            Message::MultipartRequest(request) => {
                match self.reassembly.add(xid, head, request, header.length) {
                    AddOutcome::Complete(request) => Message::MultipartRequest(request),
                    AddOutcome::Waiting => return None,
                    AddOutcome::Refused(head) => {
                        let header = Header::parse(head.bytes())?;
                        let error = DecodeError::Reassembly;
                        return Some(Event::Rejected(Rejection { header, head, error }));
                    }
                }
            }
            other => other,
        };
        Some(Event::Request(Request {
            xid,
            head,
            size: header.length,
            message,
        }))
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// [`EncodeError`] if it is too long to be sent.
    pub fn send(&mut self, message: &Message, xid: Xid) -> Result<(), EncodeError> {
        if self.state == State::Closed {
            return Ok(());
        }
        encode(message, xid, &mut self.output)
    }

    /// Sends encoded messages.
    pub fn send_encoded(&mut self, bytes: &[u8]) {
        if self.state != State::Closed {
            self.output.extend_from_slice(bytes);
        }
    }

    /// Returns the bytes to write to the socket.
    pub fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Records that the first `size` bytes of [`Connection::output`] were written. A congested peer counts as
    /// alive while it reads, even if it sends nothing.
    pub fn wrote(&mut self, size: usize, now: Time) {
        self.written = (self.written + size).min(self.output.len());
        if size > 0 && self.written < self.output.len() {
            self.last_heard = now;
            self.unanswered = 0;
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
            // Frees the memory of a long reply.
            self.output.shrink_to(KEEP_OUTPUT);
        } else if self.written > KEEP_OUTPUT {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Returns true if so many bytes wait to be written that no more requests are accepted.
    pub fn is_congested(&self) -> bool {
        self.output.len() - self.written > self.settings.max_output
    }

    /// Returns true if the version is negotiated and the connection is open.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Returns the time at which [`Connection::tick`] is due; `None` if never.
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::AwaitsHello if self.settings.is_datagram => {
                let repeat = self.last_heard + HELLO_INTERVAL.saturating_mul(self.unanswered + 1);
                Some(repeat.min(self.hello_deadline()))
            }
            State::AwaitsHello => Some(self.hello_deadline()),
            State::Ready => {
                let interval = self.settings.echo_interval?;
                // The interval starts when the ECHO_REQUEST was sent, which may be after its due time.
                let since = if self.unanswered == 0 {
                    self.last_heard
                } else {
                    self.echo_sent_at
                };
                Some(since + interval)
            }
            State::Closed => None,
        }
    }

    /// Bytes that do not complete a HELLO do not defer this.
    fn hello_deadline(&self) -> Time {
        self.opened + self.settings.hello_timeout
    }

    /// Handles time-outs at `now`; [`Connection::poll`] returns the events.
    pub fn tick(&mut self, now: Time) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let is_late = now >= self.hello_deadline();
        if self.state == State::AwaitsHello && self.settings.is_datagram && !is_late {
            self.unanswered += 1;
            let xid = self.xid();
            self.put(&Message::Hello(Hello::OURS), xid);
        } else if self.state == State::AwaitsHello {
            self.pending = Some(self.close(CloseReason::HelloTimeout, None));
        } else if self.unanswered >= self.settings.echo_misses {
            self.pending = Some(self.close(CloseReason::EchoTimeout, None));
        } else {
            self.unanswered += 1;
            self.echo_sent_at = now;
            let xid = self.xid();
            self.put(&Message::EchoRequest(Box::default()), xid);
        }
    }

    fn close(&mut self, reason: CloseReason, answer: Option<(ErrorMessage, Xid)>) -> Event {
        if let Some((error, xid)) = answer {
            self.put(&Message::Error(error), xid);
        }
        self.state = State::Closed;
        Event::Closed(reason)
    }

    /// Returns a fresh xid for an asynchronous message, from [`FIRST_XID`] on.
    pub fn xid(&mut self) -> Xid {
        let xid = Xid(self.next_xid);
        self.next_xid = self.next_xid.wrapping_add(1);
        xid
    }

    /// Sends a message that is known to be short enough.
    fn put(&mut self, message: &Message, xid: Xid) {
        let encoded = encode(message, xid, &mut self.output);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
    }
}

/// The first xid of the own messages of a connection. Controllers count from 1, and some take any message with the xid of their
/// request for its reply: ovs-ofctl 3.1 fails when an echo request has it.
const FIRST_XID: u32 = 0x8000_0000;

/// The time without messages after which HELLO is repeated over datagrams; the specification asks for less
/// than 5 seconds.
const HELLO_INTERVAL: Duration = Duration::from_secs(2);

/// The size in bytes above which written output is removed from the buffer, and the capacity that an empty
/// buffer keeps.
const KEEP_OUTPUT: usize = 64 * 1024;

const _: () = assert!(HEADER_SIZE <= ERROR_DATA_SIZE);

#[cfg(test)]
mod tests;
