//! PostgreSQL (PostgreSQL 17, chapter 53, "Frontend/Backend Protocol"): each message is a transaction.

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::framed::{self, Framed, Size, fields, number};
use super::parser::{Outcome, Parser};
use super::record::Fields;
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Codes in place of the version (section 53.7).
const SSL_REQUEST: u32 = 80_877_103;
const CANCEL: u32 = 80_877_102;
const GSS_REQUEST: u32 = 80_877_104;
/// The major version of the protocol.
const VERSION: u32 = 3;
/// Largest size of a message in bytes.
const MESSAGE_SIZE: usize = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// The next message of the client has no type.
    #[default]
    Startup,
    /// The server answers a request for encryption with one byte.
    AsksEncryption,
    Messages,
}

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Pgsql {
    framed: Framed,
    state: State,
}

heap!(Pgsql { framed });

/// Returns true if the bytes begin a connection.
pub(super) fn is_startup(bytes: &[u8]) -> Option<bool> {
    let Some(header) = bytes.first_chunk::<8>() else {
        return if bytes.starts_with(&[0, 0]) || bytes.len() < 2 {
            None
        } else {
            Some(false)
        };
    };
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (size, code) = (word(0), word(4));
    Some(
        (8..=10_000).contains(&size)
            && (matches!(code, SSL_REQUEST | CANCEL | GSS_REQUEST) || code >> 16 == VERSION),
    )
}

fn without_type(bytes: &[u8]) -> Size {
    match bytes.first_chunk::<4>() {
        None => Size::Incomplete,
        Some(size) => match u32::from_be_bytes(*size) as usize {
            size if (8..=10_000).contains(&size) => Size::Known(size),
            _ => Size::Invalid,
        },
    }
}

fn with_type(bytes: &[u8]) -> Size {
    match bytes.first_chunk::<5>() {
        None => Size::Incomplete,
        Some([_, size @ ..]) => match u32::from_be_bytes(*size) as usize {
            size if (4..=MESSAGE_SIZE).contains(&size) => Size::Known(1 + size),
            _ => Size::Invalid,
        },
    }
}

/// Returns a text up to its zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn startup(bytes: &[u8], out: &mut Fields) -> Option<State> {
    let mut rest = bytes.get(4..)?;
    let code = number(&mut rest, 4)? as u32;
    match code {
        SSL_REQUEST => {
            out.text("message", b"SSL Request");
            return Some(State::AsksEncryption);
        }
        GSS_REQUEST => {
            out.text("message", b"GSS Request");
            return Some(State::AsksEncryption);
        }
        CANCEL => {
            out.text("message", b"cancel_request");
            return Some(State::Startup);
        }
        _ => {}
    }
    out.text(
        "protocol_version",
        format!("{}.{}", code >> 16, code & 0xffff).as_bytes(),
    );
    let mut parts = rest.split(|byte| *byte == 0);
    out.object("startup_parameters", |out| {
        let mut optional = Vec::new();
        while let (Some(name), Some(value)) = (parts.next().filter(|name| !name.is_empty()), parts.next()) {
            match name {
                b"user" => {
                    out.text("user", value);
                }
                name if optional.len() < super::record::FIELD_LIST => {
                    let mut one = Fields::default();
                    one.text("name", name).text("value", value);
                    optional.push(one);
                }
                _ => {}
            }
        }
        out.objects("optional_parameters", optional);
    });
    Some(State::Messages)
}

/// Names of messages of the client, by their type.
fn request_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        b'Q' => "simple_query",
        b'p' => "password",
        b'X' => "termination_message",
        b'P' => "parse",
        b'B' => "bind",
        b'E' => "execute",
        b'D' => "describe",
        b'C' => "close",
        b'S' => "sync",
        b'H' => "flush",
        b'F' => "function_call",
        b'd' => "copy_data",
        b'c' => "copy_done",
        b'f' => "copy_fail",
        _ => return None,
    })
}

/// Names of messages of the server, by their type.
fn response_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        b'R' => "authentication",
        b'S' => "parameter_status",
        b'K' => "backend_key_data",
        b'Z' => "ready_for_query",
        b'T' => "row_description",
        b'D' => "data_row",
        b'C' => "command_completed",
        b'E' => "error_response",
        b'N' => "notice_response",
        b'A' => "notification_response",
        b'1' => "parse_complete",
        b'2' => "bind_complete",
        b'3' => "close_complete",
        b'n' => "no_data",
        b'I' => "empty_query_response",
        b's' => "portal_suspended",
        b't' => "parameter_description",
        b'G' => "copy_in_response",
        b'H' => "copy_out_response",
        b'd' => "copy_data_out",
        b'c' => "copy_done",
        b'v' => "negotiate_protocol_version",
        _ => return None,
    })
}

impl Pgsql {
    fn request(&mut self, bytes: &[u8], out: &mut Transactions) -> bool {
        let direction = Direction::ToServer;
        if self.state == State::Startup {
            let mut record = Fields::default();
            let Some(state) = startup(bytes, &mut record) else {
                return false;
            };
            self.state = state;
            let transaction = framed::message(AppProtocol::Pgsql, direction, out);
            fields(transaction, |out| {
                out.object("request", |out| *out = record);
            });
            return true;
        }
        let Some((name, body)) = bytes
            .first()
            .and_then(|kind| Some((request_name(*kind)?, bytes.get(5..)?)))
        else {
            return false;
        };
        let transaction = framed::message(AppProtocol::Pgsql, direction, out);
        if name == "simple_query" {
            transaction.publish(Buffer::PgsqlQuery, direction, text(body));
        }
        fields(transaction, |out| {
            out.object("request", |out| {
                match name {
                    "simple_query" => out.text("simple_query", text(body)),
                    "password" => out.flag("password_redacted", true),
                    name => out.text("message", name.as_bytes()),
                };
            });
        });
        true
    }

    fn response(&mut self, bytes: &[u8], out: &mut Transactions) -> bool {
        let found = bytes
            .first()
            .and_then(|kind| Some((response_name(*kind)?, bytes.get(5..)?)));
        let Some((name, body)) = found else {
            return false;
        };
        let transaction = framed::message(AppProtocol::Pgsql, Direction::ToClient, out);
        fields(transaction, |out| {
            out.object("response", |out| match name {
                "error_response" | "notice_response" => {
                    for field in body.split(|byte| *byte == 0).take(32) {
                        match field {
                            [b'S', value @ ..] => out.text("severity_localizable", value),
                            [b'V', value @ ..] => out.text("severity_non_localizable", value),
                            [b'C', value @ ..] => out.text("code", value),
                            [b'M', value @ ..] => out.text("message", value),
                            _ => out,
                        };
                    }
                }
                "command_completed" => {
                    out.text("command_completed", text(body));
                }
                "row_description" => {
                    let mut body = body;
                    out.number("field_count", number(&mut body, 2).unwrap_or(0));
                }
                name => {
                    out.text("message", name.as_bytes());
                }
            });
        });
        true
    }
}

impl Parser for Pgsql {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let mut chunk = chunk;
        if chunk.direction == Direction::ToClient && self.state == State::AsksEncryption {
            match chunk.bytes.split_first() {
                Some((b'S' | b'G', rest)) => {
                    let bytes = [self.framed.rest(Direction::ToServer), rest.to_vec()];
                    let mut rest: [Vec<u8>; 2] = Default::default();
                    let [client, server] = bytes;
                    rest[Direction::ToServer.index()] = client;
                    rest[Direction::ToClient.index()] = server;
                    return Outcome::Switch { rest };
                }
                Some((_, rest)) => {
                    self.state = State::Startup;
                    chunk.bytes = rest;
                }
                None => {}
            }
        }
        let mut framed = core::mem::take(&mut self.framed);
        let is_startup = self.state == State::Startup && chunk.direction == Direction::ToServer;
        let size = if is_startup { without_type } else { with_type };
        // The type of messages changes with the first one: its chunk is split behind it.
        let outcome = match chunk.direction {
            Direction::ToServer if is_startup => {
                let mut pending = framed.rest(chunk.direction);
                pending.extend_from_slice(chunk.bytes);
                match size(&pending) {
                    Size::Invalid => Outcome::Failed,
                    Size::Known(known) if known <= pending.len() => {
                        let rest = pending.split_off(known);
                        if !self.request(&pending, out) {
                            return Outcome::Failed;
                        }
                        self.framed = framed;
                        if rest.is_empty() {
                            return Outcome::Continue;
                        }
                        let chunk = StreamChunk {
                            bytes: &rest,
                            gap_before: 0,
                            ..chunk
                        };
                        return match self.state {
                            // Bytes behind a request for encryption before its answer wait.
                            State::AsksEncryption => self.framed.add(chunk, |_| Size::Incomplete, |_| true),
                            _ => self.data(chunk, out),
                        };
                    }
                    _ => {
                        let chunk = StreamChunk {
                            bytes: &pending,
                            ..chunk
                        };
                        framed.add(chunk, |_| Size::Incomplete, |_| true)
                    }
                }
            }
            Direction::ToServer => framed.add(chunk, size, |message| self.request(message, out)),
            Direction::ToClient => framed.add(chunk, size, |message| self.response(message, out)),
        };
        self.framed = framed;
        outcome
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}
