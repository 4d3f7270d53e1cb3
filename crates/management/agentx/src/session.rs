//! A session with the master agent, without IO: it opens, registers its subtrees, and answers. Nothing can be written.
//!
//! ```text
//!  opening ── response ──▶ registering (one subtree after another) ── last response ──▶ open
//! ```

use std::collections::VecDeque;

use thiserror::Error;

use crate::objects::{Objects, Value};
use crate::oid::Oid;
use crate::pdu::{Content, HEADER_SIZE, Header, Pdu, PduError, Range};

/// The time in which the master waits for an answer, in seconds.
const TIMEOUT_S: u8 = 5;
/// The priority of registrations, the default of RFC 2741: where another subagent registered the same subtree with a lower number,
/// it answers.
const PRIORITY: u8 = 127;
/// The most bindings of an answer to GetBulk.
const BINDINGS_MAX: usize = 500;

/// Errors of RFC 2741, section 6.2.16, and of SNMP.
const NOT_WRITABLE: u16 = 17;
const PARSE_ERROR: u16 = 266;
const DUPLICATE_REGISTRATION: u16 = 263;
const UNKNOWN_CONTEXT: u16 = 262;

/// The reason why a session ends.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    #[error("the master agent sent no PDU: {0}")]
    Pdu(#[from] PduError),
    #[error("the master agent refused {what}: error {error} (RFC 2741, section 6.2.16)")]
    Refused { what: String, error: u16 },
    #[error(
        "the master agent has {subtree} in this context already: expected a context of its own (`context`), or snmpd without its \
         modules for interfaces (`-I -ifTable,ifXTable`)"
    )]
    Duplicate { subtree: Oid },
    #[error("the master agent closed the session, reason {0} (RFC 2741, section 6.2.2)")]
    Closed(u8),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Opening,
    /// The subtree whose registration was sent.
    Registering(Oid),
    Open,
}

/// The subagent's side of one connection.
#[derive(Debug)]
pub struct Session {
    context: String,
    phase: Phase,
    /// The subtrees that are not registered yet.
    subtrees: VecDeque<Oid>,
    number: u32,
    packet: u32,
    received: Vec<u8>,
    output: Vec<u8>,
}

impl Session {
    /// Returns a session that registers these subtrees in a context; an empty one is the default context.
    pub fn new(description: &str, context: &str, subtrees: &[Oid]) -> Session {
        let mut session = Session {
            context: context.to_owned(),
            phase: Phase::Opening,
            subtrees: subtrees.iter().cloned().collect(),
            number: 0,
            packet: 0,
            received: Vec::new(),
            output: Vec::new(),
        };
        session.send(
            false,
            Content::Open {
                timeout_s: TIMEOUT_S,
                description: description.to_owned(),
            },
        );
        session
    }

    /// Returns true if all subtrees are registered.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns the bytes for the master agent.
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.output)
    }

    /// Tells that a link went up or down, if the session is open.
    pub fn notify(&mut self, bindings: Vec<(Oid, Value)>) {
        if self.is_open() {
            self.send(true, Content::Notify(bindings));
        }
    }

    /// Asks the master agent if it is there.
    pub fn ping(&mut self) {
        if self.is_open() {
            self.send(true, Content::Ping);
        }
    }

    fn send(&mut self, has_context: bool, content: Content) {
        self.packet = self.packet.wrapping_add(1);
        let context = if has_context {
            self.context.clone()
        } else {
            String::new()
        };
        let pdu = Pdu {
            session: self.number,
            transaction: 0,
            packet: self.packet,
            context,
            content,
        };
        self.output.extend(pdu.emit());
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// [`SessionError`]; the session has ended then.
    pub fn receive(&mut self, bytes: &[u8], objects: &Objects) -> Result<(), SessionError> {
        self.received.extend_from_slice(bytes);
        while let Some(head) = self.received.first_chunk::<HEADER_SIZE>() {
            let header = Header::parse(head)?;
            let end = HEADER_SIZE + header.size;
            let Some(payload) = self.received.get(HEADER_SIZE..end) else {
                break;
            };
            let pdu = Pdu::parse(header, payload);
            self.received.drain(..end);
            match pdu {
                Ok(pdu) => self.handle(pdu, objects)?,
                Err(error) if header.is_response() => return Err(error.into()),
                // The beginning of the next PDU is known: the request alone fails.
                Err(_) => self.answer(header.transaction, header.packet, PARSE_ERROR, 0, Vec::new()),
            }
        }
        Ok(())
    }

    fn handle(&mut self, pdu: Pdu, objects: &Objects) -> Result<(), SessionError> {
        let (transaction, packet) = (pdu.transaction, pdu.packet);
        let is_known = pdu.context == self.context;
        match pdu.content {
            Content::Response { error, .. } => return self.response(pdu.session, error),
            Content::Close { reason } => return Err(SessionError::Closed(reason)),
            Content::Get(_) | Content::GetNext(_) | Content::GetBulk { .. } if !is_known => {
                self.answer(transaction, packet, UNKNOWN_CONTEXT, 0, Vec::new());
            }
            Content::Get(ranges) => {
                let bindings = ranges
                    .iter()
                    .map(|range| (range.start.clone(), objects.get(&range.start)));
                self.answer(transaction, packet, 0, 0, bindings.collect());
            }
            Content::GetNext(ranges) => {
                let bindings = ranges.iter().map(|range| next(objects, range)).collect();
                self.answer(transaction, packet, 0, 0, bindings);
            }
            Content::GetBulk {
                non_repeaters,
                repetitions,
                ranges,
            } => {
                let bindings = bulk(objects, &ranges, non_repeaters.into(), repetitions.into());
                self.answer(transaction, packet, 0, 0, bindings);
            }
            Content::TestSet => self.answer(transaction, packet, NOT_WRITABLE, 1, Vec::new()),
            // Nothing was tested successfully, so there is nothing to commit or to undo.
            Content::CommitSet | Content::UndoSet => self.answer(transaction, packet, 0, 0, Vec::new()),
            // It has no answer; the others are never sent to a subagent.
            Content::CleanupSet
            | Content::Open { .. }
            | Content::Register { .. }
            | Content::Notify(_)
            | Content::Ping
            | Content::Other(_) => {}
        }
        Ok(())
    }

    fn answer(&mut self, transaction: u32, packet: u32, error: u16, index: u16, bindings: Vec<(Oid, Value)>) {
        let pdu = Pdu {
            session: self.number,
            transaction,
            packet,
            context: String::new(),
            content: Content::Response {
                error,
                index,
                bindings,
            },
        };
        self.output.extend(pdu.emit());
    }

    /// Handles the answer to what this session sent.
    fn response(&mut self, number: u32, error: u16) -> Result<(), SessionError> {
        match (&self.phase, error) {
            (Phase::Opening, 0) => self.number = number,
            (Phase::Registering(subtree), DUPLICATE_REGISTRATION) => {
                return Err(SessionError::Duplicate {
                    subtree: subtree.clone(),
                });
            }
            (Phase::Registering(_), 0) => {}
            // Answers to Notify and Ping.
            (Phase::Open, 0) => return Ok(()),
            (phase, error) => {
                let what = match phase {
                    Phase::Opening => "the session".to_owned(),
                    Phase::Registering(subtree) => format!("the subtree {subtree}"),
                    Phase::Open => "a notification".to_owned(),
                };
                return Err(SessionError::Refused { what, error });
            }
        }
        match self.subtrees.pop_front() {
            Some(subtree) => {
                let content = Content::Register {
                    priority: PRIORITY,
                    subtree: subtree.clone(),
                };
                self.send(true, content);
                self.phase = Phase::Registering(subtree);
            }
            None => self.phase = Phase::Open,
        }
        Ok(())
    }
}

fn next(objects: &Objects, range: &Range) -> (Oid, Value) {
    match objects.next(&range.start, range.includes, &range.end) {
        Some((oid, value)) => (oid.clone(), value.clone()),
        None => (range.start.clone(), Value::EndOfMibView),
    }
}

/// Returns the answer to GetBulk (RFC 2741, section 7.2.3.3): the next object of the first ranges, then rounds over the others.
fn bulk(objects: &Objects, ranges: &[Range], non_repeaters: usize, repetitions: usize) -> Vec<(Oid, Value)> {
    let (single, repeated) = ranges.split_at(non_repeaters.min(ranges.len()));
    let mut bindings: Vec<(Oid, Value)> = single.iter().map(|range| next(objects, range)).collect();
    let mut places = repeated.to_vec();
    for _ in 0..repetitions {
        if places.is_empty() || bindings.len() + places.len() > BINDINGS_MAX {
            break;
        }
        let mut is_over = true;
        for place in &mut places {
            let (oid, value) = next(objects, place);
            is_over &= value == Value::EndOfMibView;
            (place.start, place.includes) = (oid.clone(), false);
            bindings.push((oid, value));
        }
        if is_over {
            break;
        }
    }
    bindings
}
