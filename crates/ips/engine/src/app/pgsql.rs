//! PostgreSQL (PostgreSQL 17, chapter 53, "Frontend/Backend Protocol"): each message of the client is a transaction, with all
//! messages of the server up to the next one that ends a response.

mod resynchronize;
mod values;

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::framed::{Framed, Size, fields, number};
use super::parser::{Outcome, Parser};
use super::record::{FIELD_LIST, Fields, Value};
use super::transaction::{Progress, Transaction, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use resynchronize::resynchronize;
use values::{
    Authentication, authentication, columns, copied, count, credentials, parameter, problem, row_size, text,
};

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
    /// The transaction to which messages of the server belong.
    current: Option<u64>,
    /// The rows of its response, and the bytes of their columns.
    rows: (u64, u64),
    /// The contents of the next message of the type `p`.
    authentication: Authentication,
    /// True if the last message of the client was data that it copies.
    copies: bool,
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

/// Reads the message of a client without a type. Returns the state behind it.
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
            if let (Some(process), Some(key)) = (number(&mut rest, 4), number(&mut rest, 4)) {
                out.number("process_id", process).number("secret_key", key);
            }
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
                name if optional.len() < FIELD_LIST => optional.push(parameter(name, value)),
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
    /// Begins the transaction of a message of the client. One whose response has no end ends here.
    fn begin<'a>(&mut self, out: &'a mut Transactions) -> &'a mut Transaction {
        self.end_current(out);
        let transaction = out.start(AppProtocol::Pgsql);
        transaction.advance(Direction::ToServer, Progress::Complete);
        self.current = Some(transaction.id);
        self.rows = (0, 0);
        transaction
    }

    /// Ends the response in progress.
    fn end_current(&mut self, out: &mut Transactions) {
        if let Some(transaction) = self.current.take().and_then(|id| out.by_id(id)) {
            transaction.advance(Direction::ToClient, Progress::Complete);
        }
    }

    fn request(&mut self, bytes: &[u8], out: &mut Transactions) -> bool {
        let direction = Direction::ToServer;
        if self.state == State::Startup {
            let mut record = Fields::default();
            let Some(state) = startup(bytes, &mut record) else {
                return false;
            };
            self.state = state;
            fields(self.begin(out), |out| {
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
        let is_copy = matches!(name, "copy_data" | "copy_done" | "copy_fail");
        let has_response = !matches!(name, "termination_message" | "flush");
        // All data that a client copies are one transaction, with the message that ends them.
        let known = self
            .current
            .filter(|id| is_copy && self.copies && out.by_id(*id).is_some());
        let transaction = match known.and_then(|id| out.by_id(id)) {
            Some(transaction) => transaction,
            None => self.begin(out),
        };
        self.copies = name == "copy_data";
        if is_copy {
            fields(transaction, |out| {
                if out.value("request").is_none() {
                    out.object("request", |_| {});
                }
                let Some(Value::Object(out)) = out.value("request") else {
                    return;
                };
                match name {
                    "copy_data" => copied("copy_data_in", "msg_count", body.len() as u64, out),
                    name => {
                        out.text("message", name.as_bytes());
                    }
                }
            });
            return true;
        }
        let expected = core::mem::take(&mut self.authentication);
        if name == "simple_query" {
            transaction.publish(Buffer::PgsqlQuery, direction, text(body));
        }
        fields(transaction, |out| {
            out.object("request", |out| match name {
                "simple_query" => {
                    out.text("simple_query", text(body));
                }
                "password" => credentials(expected, body, out),
                name => {
                    out.text("message", name.as_bytes());
                }
            });
        });
        if !has_response {
            self.end_current(out);
        }
        true
    }

    fn response(&mut self, bytes: &[u8], out: &mut Transactions) -> bool {
        let found = bytes
            .first()
            .and_then(|kind| Some((response_name(*kind)?, bytes.get(5..)?)));
        let Some((name, body)) = found else {
            return false;
        };
        let known = self.current.filter(|id| out.by_id(*id).is_some());
        let id = match known {
            Some(id) => id,
            None if name == "ready_for_query" => return true,
            None => {
                // The request was not seen, or its response was over.
                let transaction = out.start(AppProtocol::Pgsql);
                transaction.advance(Direction::ToServer, Progress::Complete);
                transaction.is_inspected[Direction::ToServer.index()] = true;
                self.rows = (0, 0);
                *self.current.insert(transaction.id)
            }
        };
        let mut is_over = name == "ready_for_query";
        if name == "data_row" {
            self.rows.0 += 1;
            self.rows.1 += row_size(body);
        }
        let (rows, mut asks) = (self.rows, None);
        let Some(transaction) = out.by_id(id) else {
            return true;
        };
        fields(transaction, |out| {
            let response = match out.list.iter().position(|(known, _)| *known == "response") {
                Some(at) => at,
                None => {
                    out.object("response", |_| {});
                    out.list.len() - 1
                }
            };
            let Some((_, Value::Object(out))) = out.list.get_mut(response) else {
                return;
            };
            if out.list.len() >= FIELD_LIST && !matches!(name, "data_row" | "copy_data_out") {
                return;
            }
            match name {
                "error_response" | "notice_response" => problem(body, out),
                "authentication" => asks = authentication(body, out),
                "copy_in_response" | "copy_out_response" => {
                    columns(name, body, out);
                    // The client sends the data next.
                    is_over |= name == "copy_in_response";
                }
                "copy_data_out" => copied(name, "row_count", body.len() as u64, out),
                "parameter_status" => {
                    let mut parts = body.split(|byte| *byte == 0);
                    let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                    let one = parameter(key, value);
                    match out.value("parameter_status") {
                        Some(Value::Objects(list)) if list.len() < FIELD_LIST => list.push(one),
                        Some(_) => {}
                        None => {
                            out.objects("parameter_status", vec![one]);
                        }
                    }
                }
                "backend_key_data" => {
                    let mut body = body;
                    if let (Some(process), Some(key)) = (number(&mut body, 4), number(&mut body, 4)) {
                        out.number("process_id", process).number("secret_key", key);
                    }
                }
                "notification_response" => {
                    let mut body = body;
                    let process = number(&mut body, 4).unwrap_or(0);
                    let mut parts = body.split(|byte| *byte == 0);
                    out.number("pid", process)
                        .text("channel_name", parts.next().unwrap_or_default())
                        .text("payload", parts.next().unwrap_or_default());
                }
                "command_completed" => {
                    out.text("command_completed", text(body));
                }
                "row_description" => {
                    let mut body = body;
                    count(out, "field_count", number(&mut body, 2).unwrap_or(0));
                }
                "data_row" => {
                    count(out, "data_rows", rows.0);
                    count(out, "data_size", rows.1);
                }
                "ready_for_query" => {}
                name if out.value("message").is_none() => {
                    out.text("message", name.as_bytes());
                }
                _ => {}
            }
        });
        if let Some(asked) = asks {
            self.authentication = asked;
            is_over = true;
        }
        if is_over {
            self.end_current(out);
        }
        true
    }

    /// Adds the answer of one byte to a request for encryption.
    fn answer(&mut self, is_accepted: bool, out: &mut Transactions) {
        if let Some(transaction) = self.current.and_then(|id| out.by_id(id)) {
            fields(transaction, |out| {
                out.object("response", |out| {
                    out.flag("ssl_accepted", is_accepted);
                });
            });
        }
        self.end_current(out);
    }
}

impl Parser for Pgsql {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let mut chunk = chunk;
        if chunk.direction == Direction::ToClient && self.state == State::AsksEncryption {
            match chunk.bytes.split_first() {
                Some((b'S' | b'G', rest)) => {
                    self.answer(true, out);
                    let bytes = [self.framed.rest(Direction::ToServer), rest.to_vec()];
                    let mut rest: [Vec<u8>; 2] = Default::default();
                    let [client, server] = bytes;
                    rest[Direction::ToServer.index()] = client;
                    rest[Direction::ToClient.index()] = server;
                    return Outcome::Switch { rest };
                }
                Some((_, rest)) => {
                    self.answer(false, out);
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
            Direction::ToServer => {
                let find = |bytes: &[u8]| resynchronize(bytes, |kind| request_name(kind).is_some());
                framed.add_searching(chunk, find, size, |message| self.request(message, out))
            }
            Direction::ToClient => {
                let find = |bytes: &[u8]| resynchronize(bytes, |kind| response_name(kind).is_some());
                framed.add_searching(chunk, find, size, |message| self.response(message, out))
            }
        };
        self.framed = framed;
        outcome
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == Direction::ToClient {
            self.end_current(out);
        }
    }
}

#[cfg(test)]
mod tests;
