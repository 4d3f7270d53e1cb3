//! RFB (RFC 6143): the handshake, up to the name of the desktop. A connection is one transaction.
//!
//! ```text
//!  server   version   security types         challenge           result   parameters, name
//!  client            version         choice           response          shared flag
//! ```

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::framed::{fields, hex};
use super::parser::{Outcome, Parser};
use super::record::{Fields, Record};
use super::transaction::{Progress, Transaction, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest size of a name or a reason in bytes.
const TEXT: usize = 16 << 10;
/// Security types: a failure, none, and VNC authentication (section 7.1.2).
const INVALID: u32 = 0;
const NONE: u32 = 1;
const VNC: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    ServerVersion,
    ClientVersion,
    SecurityTypes,
    Choice,
    Challenge,
    Response,
    Result,
    Reason,
    Shared,
    Parameters,
    Name(usize),
    /// The rest of the connection is not parsed.
    Done,
}

impl State {
    /// Returns the direction of the bytes that the state expects.
    fn direction(self) -> Option<Direction> {
        match self {
            State::ClientVersion | State::Choice | State::Response | State::Shared => {
                Some(Direction::ToServer)
            }
            State::Done => None,
            _ => Some(Direction::ToClient),
        }
    }
}

/// The order of the messages of a handshake, and their sizes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Handshake {
    state: State,
    /// The minor version: 3, 7 or 8.
    minor: u8,
}

impl Handshake {
    /// Returns the direction of the next message; `None` after the last one.
    pub(super) fn direction(&self) -> Option<Direction> {
        self.state.direction()
    }

    /// Returns the number of bytes of the next message, of which `data` is the beginning; that of its head, if this is more than
    /// `data` has.
    pub(super) fn size(&self, data: &[u8]) -> usize {
        match self.state {
            State::ServerVersion | State::ClientVersion => 12,
            State::SecurityTypes if self.minor < 7 => 4,
            State::SecurityTypes => 1 + data.first().map_or(0, |count| usize::from(*count)),
            State::Choice | State::Shared => 1,
            State::Challenge | State::Response => 16,
            State::Result => 4,
            State::Reason => match data.first_chunk::<4>() {
                Some(size) => 4 + (u32::from_be_bytes(*size) as usize).min(TEXT),
                None => 4,
            },
            State::Parameters => 24,
            State::Name(size) => size,
            State::Done => 0,
        }
    }

    /// Returns the size of the name, which ends the message with the parameters, if it is next; no message follows.
    pub(super) fn take_name(&mut self) -> Option<usize> {
        match self.state {
            State::Name(size) => {
                self.state = State::Done;
                Some(size)
            }
            _ => None,
        }
    }

    /// Continues behind a message of the size that [`Handshake::size`] has.
    pub(super) fn advance(&mut self, message: &[u8]) {
        let number = || {
            message
                .first_chunk()
                .map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        self.state = match self.state {
            State::ServerVersion | State::ClientVersion => {
                let is_server = self.state == State::ServerVersion;
                match version(message) {
                    None => State::Done,
                    Some((major, minor)) => {
                        // Apple has 3.889, and RealVNC 4.1 and 5.0, whose handshakes are as in 3.8; versions between 3.3 and 3.7
                        // mean 3.3 (section 7.1.1).
                        self.minor = match (major, minor) {
                            (major, _) if major > b"003" => 8,
                            (_, b"007") => 7,
                            (_, minor) if minor >= b"008" => 8,
                            _ => 3,
                        };
                        if is_server {
                            State::ClientVersion
                        } else {
                            State::SecurityTypes
                        }
                    }
                }
            }
            State::SecurityTypes if self.minor < 7 => self.chosen(number()),
            State::SecurityTypes if message.len() == 1 => State::Reason,
            State::SecurityTypes => State::Choice,
            State::Choice => self.chosen(message.first().map_or(0, |security| u32::from(*security))),
            State::Challenge => State::Response,
            State::Response => State::Result,
            State::Result => match number() {
                0 => State::Shared,
                1 if self.minor >= 8 => State::Reason,
                _ => State::Done,
            },
            State::Shared => State::Parameters,
            State::Parameters => {
                let size = message.get(20..).and_then(|size| size.first_chunk());
                match size.map_or(0, |size| u32::from_be_bytes(*size) as usize) {
                    size @ 1..=TEXT => State::Name(size),
                    _ => State::Done,
                }
            }
            State::Reason | State::Name(_) | State::Done => State::Done,
        };
    }

    /// Returns the state after the choice of a security type; [`State::Done`] if what follows is not known.
    fn chosen(self, security: u32) -> State {
        match security {
            INVALID if self.minor < 7 => State::Reason,
            NONE if self.minor >= 8 => State::Result,
            NONE => State::Shared,
            VNC => State::Challenge,
            _ => State::Done,
        }
    }
}

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Rfb {
    handshake: Handshake,
    pending: [Vec<u8>; 2],
    transaction: Option<u64>,
}

heap!(Rfb { pending });

/// Returns the version of "RFB 003.008\n" as texts.
fn version(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(b"RFB ")?.strip_suffix(b"\n")?;
    let (major, minor) = (rest.get(..3)?, rest.get(4..7)?);
    let is_number = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    (rest.get(3) == Some(&b'.') && is_number(major) && is_number(minor)).then_some((major, minor))
}

impl Rfb {
    fn transaction<'a>(&mut self, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        if self.transaction.is_none() {
            let transaction = out.start(AppProtocol::Rfb);
            transaction.record = Record::Fields(Box::default());
            self.transaction = Some(transaction.id);
        }
        self.transaction.and_then(|id| out.by_id(id))
    }

    /// Ends the parsing with an anomaly.
    fn fail(&mut self, event: &'static str, out: &mut Transactions) -> usize {
        if let Some(transaction) = self.transaction(out) {
            transaction.raise(event);
        }
        self.finish(out);
        0
    }

    fn finish(&mut self, out: &mut Transactions) {
        self.handshake.state = State::Done;
        self.pending = Default::default();
        if let Some(transaction) = self.transaction(out) {
            for side in Direction::BOTH {
                transaction.advance(side, Progress::Complete);
            }
        }
    }

    /// Consumes bytes of the state's direction, and returns their number; 0 if more are needed.
    fn step(&mut self, data: &[u8], out: &mut Transactions) -> usize {
        let state = self.handshake.state;
        let Some(direction) = state.direction() else {
            return 0;
        };
        let needed = self.handshake.size(data);
        let Some(bytes) = data.get(..needed) else {
            return 0;
        };
        let minor = self.handshake.minor;
        self.handshake.advance(bytes);
        match state {
            State::ServerVersion | State::ClientVersion => {
                let Some((major, minor_text)) = version(bytes) else {
                    return self.fail("rfb.malformed_message", out);
                };
                let is_server = state == State::ServerVersion;
                let name = if is_server {
                    "server_protocol_version"
                } else {
                    "client_protocol_version"
                };
                if let Some(transaction) = self.transaction(out) {
                    transaction.advance(direction, Progress::Started);
                    fields(transaction, |out| {
                        out.object(name, |out| {
                            out.text("major", major).text("minor", minor_text);
                        });
                    });
                }
            }
            State::SecurityTypes if minor < 7 => {
                let security = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                self.choose(security, out);
            }
            State::SecurityTypes => {}
            State::Choice => self.choose(u32::from(bytes[0]), out),
            State::Challenge | State::Response => {
                let is_challenge = state == State::Challenge;
                if let Some(transaction) = self.transaction(out) {
                    fields(transaction, |out| {
                        let name = if is_challenge { "challenge" } else { "response" };
                        within(out, "authentication", |out| {
                            within(out, "vnc", |out| {
                                out.text(name, &hex(bytes));
                            });
                        });
                    });
                }
            }
            State::Result => {
                let result = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let name = match result {
                    0 => "OK".to_owned(),
                    1 => "FAIL".to_owned(),
                    2 => "TOOMANY".to_owned(),
                    other => format!("UNKNOWN ({other})"),
                };
                if let Some(transaction) = self.transaction(out) {
                    transaction.number(NumberField::RfbSecResult, direction, result.min(3));
                    if result > 2 {
                        transaction.raise("rfb.unknown_security_result");
                    }
                    fields(transaction, |out| {
                        within(out, "authentication", |out| {
                            out.text("security_result", name.as_bytes());
                        });
                    });
                }
            }
            State::Reason => {
                let reason = bytes.get(4..).unwrap_or_default();
                if let Some(transaction) = self.transaction(out) {
                    fields(transaction, |out| {
                        out.text("server_security_failure_reason", reason);
                    });
                }
            }
            State::Shared => {
                if let Some(transaction) = self.transaction(out) {
                    fields(transaction, |out| {
                        out.flag("screen_shared", bytes[0] != 0);
                    });
                }
            }
            State::Parameters => {
                let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                let size = u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]) as usize;
                if size > TEXT {
                    return self.fail("rfb.malformed_message", out);
                }
                if let Some(transaction) = self.transaction(out) {
                    fields(transaction, |out| {
                        within(out, "framebuffer", |out| {
                            out.number("width", word(0)).number("height", word(2)).object(
                                "pixel_format",
                                |out| {
                                    out.number("bits_per_pixel", bytes[4])
                                        .number("depth", bytes[5])
                                        .flag("big_endian", bytes[6] != 0)
                                        .flag("true_color", bytes[7] != 0)
                                        .number("red_max", word(8))
                                        .number("green_max", word(10))
                                        .number("blue_max", word(12))
                                        .number("red_shift", bytes[14])
                                        .number("green_shift", bytes[15])
                                        .number("blue_shift", bytes[16]);
                                },
                            );
                        });
                    });
                }
            }
            State::Name(_) => {
                if let Some(transaction) = self.transaction(out) {
                    transaction.publish(Buffer::RfbName, direction, bytes);
                    fields(transaction, |out| {
                        within(out, "framebuffer", |out| {
                            out.text("name", bytes);
                        });
                    });
                }
            }
            State::Done => {}
        }
        if self.handshake.state == State::Done {
            self.finish(out);
        }
        needed
    }

    /// Records the choice of a security type.
    fn choose(&mut self, security: u32, out: &mut Transactions) {
        let Some(transaction) = self.transaction(out) else {
            return;
        };
        transaction.number(NumberField::RfbSecType, Direction::ToServer, security);
        transaction.advance(Direction::ToServer, Progress::Headers);
        fields(transaction, |out| {
            within(out, "authentication", |out| {
                out.number("security_type", security);
            });
        });
        if self.handshake.state == State::Done {
            transaction.raise("rfb.unimplemented_security_type");
        }
    }
}

/// Adds to the object with a name, which is made if there is none.
fn within(out: &mut Fields, name: &'static str, write: impl FnOnce(&mut Fields)) {
    match out.value(name) {
        Some(super::record::Value::Object(inner)) => write(inner),
        _ => {
            out.object(name, write);
        }
    }
}

impl Parser for Rfb {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if self.handshake.state == State::Done {
            return Outcome::Continue;
        }
        if chunk.gap_before > 0 {
            self.finish(out);
            return Outcome::Continue;
        }
        self.pending[chunk.direction.index()].extend_from_slice(chunk.bytes);
        while let Some(direction) = self.handshake.direction() {
            let before = self.handshake.state;
            let data = core::mem::take(&mut self.pending[direction.index()]);
            let size = self.step(&data, out);
            if self.handshake.state != State::Done {
                let mut data = data;
                data.drain(..size);
                self.pending[direction.index()] = data;
            }
            if size == 0 && self.handshake.state == before {
                break;
            }
        }
        // A side that is ahead of the handshake has sent something else.
        if self.pending.iter().any(|bytes| bytes.len() > 2 * TEXT) {
            self.fail("rfb.malformed_message", out);
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(direction, Progress::Complete);
        }
    }
}
