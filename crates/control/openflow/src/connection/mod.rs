//! One connection to a controller, as seen by the switch, without sockets and without a clock.
//!
//! The owner feeds bytes with [`Connection::receive`], takes [`Event`]s with [`Connection::poll`], sends
//! with [`Connection::send`] or [`Connection::send_encoded`], writes [`Connection::output`] to its socket,
//! and calls [`Connection::tick`] when [`Connection::deadline`] is reached.
//!
//! What it promises:
//! - Versions are agreed on first; nothing else is answered before.
//! - Every request that cannot be decoded is answered with the error of the specification, and the next
//!   one is read. Only bytes that cannot be cut into messages end the connection.
//! - A peer that sends and does not read is not served: [`Connection::poll`] yields nothing while more
//!   than [`Settings::max_output`] bytes wait to be written, and [`Connection::wants_input`] is false.
//!   What the owner sends unasked is counted and dropped then ([`Connection::send_async`]).
//! - A silent peer is asked for an echo, and the connection is given up when it stays silent.
//! - Over datagrams ([`Settings::is_datagram`]) HELLO is repeated until something comes, what comes instead of HELLO
//!   stands for it, a datagram that cannot be cut into messages is forgotten, and only the messages that the
//!   specification allows there are taken.

mod inbox;
mod parts;

use millrace_types::{Duration, Time, Xid};
use thiserror::Error;

use crate::decode_error::DecodeError;
use crate::error_code::ErrorCode;
use crate::error_message::{ERROR_DATA_SIZE, ErrorMessage};
use crate::header::{HEADER_SIZE, Header, MessageType, VERSION};
use crate::hello::Hello;
use crate::message::{EncodeError, Message, decode, encode};
use inbox::Inbox;
use parts::{Assembled, Parts};

/// How patient a connection is, and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long the peer may take to say HELLO.
    pub hello_timeout: Duration,
    /// After how much silence an echo is asked for, and how long an answer may take; `None` never asks.
    pub echo_interval: Option<Duration>,
    /// How many echoes may stay unanswered.
    pub echo_misses: u32,
    /// Bytes that may wait to be written before no more requests are taken.
    pub max_output: usize,
    /// Whether messages travel in datagrams, which may be lost: an auxiliary connection over UDP (section 6.3.5).
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

/// The first bytes of a request, kept for an error that may have to be answered later.
#[derive(Clone, Copy)]
pub struct RequestHead {
    bytes: [u8; ERROR_DATA_SIZE],
    size: u8,
}

impl RequestHead {
    /// The head of this request.
    pub fn new(request: &[u8]) -> RequestHead {
        let mut bytes = [0; ERROR_DATA_SIZE];
        let size = request.len().min(ERROR_DATA_SIZE);
        bytes[..size].copy_from_slice(&request[..size]);
        RequestHead {
            bytes,
            size: size as u8,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }
}

impl core::fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "RequestHead({} bytes)", self.size)
    }
}

/// A request for the switch to carry out.
#[derive(Clone, Debug)]
pub struct Request {
    /// What a reply or an error must carry.
    pub xid: Xid,
    /// The head of the request as it came, for an error.
    pub head: RequestHead,
    /// Bytes of the request.
    pub size: u16,
    /// What is asked.
    pub message: Message,
}

impl Request {
    /// The error to answer when the request cannot be carried out.
    pub fn error(&self, code: ErrorCode) -> Message {
        Message::Error(ErrorMessage::about(code, self.head.bytes()))
    }
}

/// Why a connection is over.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CloseReason {
    /// No version in common.
    #[error("the peer speaks no OpenFlow 1.3 (its HELLO has version {version:#04x})")]
    Incompatible {
        /// Version in the header of the peer's HELLO.
        version: u8,
    },
    /// Something came before HELLO.
    #[error("the first message has type {type_}, expected HELLO")]
    NotHello {
        /// Type of the message.
        type_: u8,
    },
    /// The peer refused our HELLO.
    #[error("the peer refused: {code}")]
    Refused {
        /// Its error.
        code: ErrorCode,
    },
    /// A length too small for a header: nothing after it can be trusted.
    #[error("a message has length {length}, expected at least 8")]
    Framing {
        /// As found.
        length: u16,
    },
    /// No HELLO in time.
    #[error("no HELLO in time")]
    HelloTimeout,
    /// No answer to any echo.
    #[error("no answer to echo requests")]
    EchoTimeout,
}

/// What happened on a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// Both sides speak 1.3.
    Ready,
    /// Something to carry out.
    Request(Request),
    /// A request that could not be decoded; it has been answered.
    Rejected {
        /// Its header.
        header: Header,
        /// What was wrong.
        error: DecodeError,
    },
    /// The controller reports an error of ours.
    PeerError(ErrorMessage),
    /// It is over; what is still in [`Connection::output`] should be written before the socket is closed.
    Closed(CloseReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitsHello,
    Ready,
    Closed,
}

/// One connection, on the switch's side.
#[derive(Debug)]
pub struct Connection {
    settings: Settings,
    state: State,
    inbox: Inbox,
    parts: Parts,
    output: Vec<u8>,
    written: usize,
    last_heard: Time,
    /// When an echo was asked for last.
    asked: Time,
    unanswered: u32,
    next_xid: u32,
    pending: Option<Event>,
    dropped: u64,
}

impl Connection {
    /// A connection that has just been opened; its HELLO is ready to be written.
    pub fn new(settings: Settings, now: Time) -> Connection {
        let mut connection = Connection {
            settings,
            state: State::AwaitsHello,
            inbox: Inbox::default(),
            parts: Parts::default(),
            output: Vec::new(),
            written: 0,
            last_heard: now,
            asked: now,
            unanswered: 0,
            next_xid: 1,
            pending: None,
            dropped: 0,
        };
        let xid = connection.xid();
        connection.put(&Message::Hello(Hello::OURS), xid);
        connection
    }

    /// Takes bytes from the socket; a whole datagram, if messages travel in such.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        if self.state != State::Closed {
            if self.settings.is_datagram {
                // No message lies in two of them.
                self.inbox.clear();
            }
            self.inbox.extend(bytes);
            self.last_heard = now;
            self.unanswered = 0;
        }
    }

    /// Whether the owner should read from the socket.
    pub fn wants_input(&self) -> bool {
        self.state != State::Closed && !self.is_congested()
    }

    /// The next thing that happened, if any.
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

    /// Handles the frame that lies at `frame` in the inbox.
    fn take_frame(&mut self, frame: core::ops::Range<usize>) -> Option<Event> {
        let bytes = self.inbox.bytes(frame);
        let head = RequestHead::new(bytes);
        let decoded = decode(bytes);
        let header = Header::parse(head.bytes())?;
        if self.state == State::AwaitsHello {
            let is_hello = matches!(decoded, Ok((_, Message::Hello(_))));
            if !self.settings.is_datagram || is_hello || header.version != VERSION {
                return Some(self.negotiate(header, head, decoded));
            }
            // Its HELLO was lost; its version is that of the message.
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
        head: RequestHead,
        decoded: Result<(Header, Message), DecodeError>,
    ) -> Option<Event> {
        let is_lossless = header.message_type().is_some_and(|type_| !type_.may_be_lost());
        let decoded = match decoded {
            Ok(_) if self.settings.is_datagram && is_lossless => {
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
            // An answer to an error could be answered with an error, for ever.
            Err(_) if header.message_type() == Some(MessageType::Error) => return None,
            Err(error) => Err(error),
        };
        match message {
            Ok(message) => self.take_message(header, head, message),
            Err(error) => {
                self.reject(error.error_code(), header.xid, &head);
                Some(Event::Rejected { header, error })
            }
        }
    }

    fn reject(&mut self, code: ErrorCode, xid: Xid, head: &RequestHead) {
        self.put(&Message::Error(ErrorMessage::about(code, head.bytes())), xid);
    }

    /// The first message of the peer (section 6.3.1).
    fn negotiate(
        &mut self,
        header: Header,
        head: RequestHead,
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
                let reason = CloseReason::Framing {
                    length: header.length,
                };
                self.close(reason, Some((answer, header.xid)))
            }
            _ => {
                let error = ErrorMessage::about(ErrorCode::OFPBRC_BAD_TYPE, head.bytes());
                let reason = CloseReason::NotHello { type_: header.type_ };
                self.close(reason, Some((error, header.xid)))
            }
        }
    }

    fn take_message(&mut self, header: Header, head: RequestHead, message: Message) -> Option<Event> {
        let xid = header.xid;
        let message = match message {
            // A second HELLO says nothing new, and the bytes of an echo were heard already.
            Message::Hello(_) | Message::EchoReply(_) => return None,
            Message::EchoRequest(data) => {
                self.put(&Message::EchoReply(data), xid);
                return None;
            }
            Message::Error(error) => return Some(Event::PeerError(error)),
            Message::MultipartRequest(request) => match self.parts.add(xid, head, request, header.length) {
                Assembled::Whole(request) => Message::MultipartRequest(request),
                Assembled::Waiting => return None,
                Assembled::Refused(xid, head) => {
                    self.reject(ErrorCode::OFPBRC_MULTIPART_BUFFER_OVERFLOW, xid, &head);
                    return None;
                }
            },
            other => other,
        };
        Some(Event::Request(Request {
            xid,
            head,
            size: header.length,
            message,
        }))
    }

    /// Sends a message that the peer asked for.
    ///
    /// # Errors
    /// [`EncodeError`] if it is too long to be sent.
    pub fn send(&mut self, message: &Message, xid: Xid) -> Result<(), EncodeError> {
        if self.state == State::Closed {
            return Ok(());
        }
        encode(message, xid, &mut self.output)
    }

    /// Sends messages that are encoded already.
    pub fn send_encoded(&mut self, bytes: &[u8]) {
        if self.state != State::Closed {
            self.output.extend_from_slice(bytes);
        }
    }

    /// Sends an encoded message that the peer did not ask for, unless the peer does not keep up;
    /// false if it was dropped and counted.
    pub fn send_async(&mut self, bytes: &[u8]) -> bool {
        if self.state != State::Ready || self.is_congested() {
            self.dropped += 1;
            return false;
        }
        self.output.extend_from_slice(bytes);
        true
    }

    /// How many messages [`Connection::send_async`] dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes to write to the socket.
    pub fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Notes that the first `size` bytes of [`Connection::output`] were written. A peer that takes what
    /// was held up is alive, even if it says nothing.
    pub fn wrote(&mut self, size: usize, now: Time) {
        self.written = (self.written + size).min(self.output.len());
        if size > 0 && self.written < self.output.len() {
            self.last_heard = now;
            self.unanswered = 0;
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
            // A long reply should not hold its memory for the rest of the connection.
            self.output.shrink_to(KEEP_OUTPUT);
        } else if self.written > KEEP_OUTPUT {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Whether so much waits to be written that no more requests are taken.
    pub fn is_congested(&self) -> bool {
        self.output.len() - self.written > self.settings.max_output
    }

    /// Whether versions have been agreed on and the connection is not over.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// When [`Connection::tick`] is due, if ever.
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::AwaitsHello if self.settings.is_datagram => {
                Some(self.last_heard + HELLO_INTERVAL.saturating_mul(self.unanswered + 1))
            }
            State::AwaitsHello => Some(self.last_heard + self.settings.hello_timeout),
            State::Ready => {
                let interval = self.settings.echo_interval?;
                // From when the peer was asked, not from when it should have been: the owner may have been late.
                let since = if self.unanswered == 0 {
                    self.last_heard
                } else {
                    self.asked
                };
                Some(since + interval)
            }
            State::Closed => None,
        }
    }

    /// Does what is due at `now`; [`Connection::poll`] tells what came of it.
    pub fn tick(&mut self, now: Time) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let is_late = now >= self.last_heard + self.settings.hello_timeout;
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
            self.asked = now;
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

    /// A fresh xid for a message that nobody asked for.
    pub fn xid(&mut self) -> Xid {
        let xid = Xid(self.next_xid);
        self.next_xid = self.next_xid.wrapping_add(1);
        xid
    }

    /// Sends a message of this module, none of which can be too long.
    fn put(&mut self, message: &Message, xid: Xid) {
        let encoded = encode(message, xid, &mut self.output);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
    }
}

/// After how much silence HELLO is repeated over datagrams; the specification asks for less than 5 seconds.
const HELLO_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes of written output, or of empty output buffer, that are kept.
const KEEP_OUTPUT: usize = 64 * 1024;

const _: () = assert!(HEADER_SIZE <= ERROR_DATA_SIZE);

#[cfg(test)]
mod tests;
