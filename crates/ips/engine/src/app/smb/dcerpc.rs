//! DCE/RPC (C706, chapter 12): calls over TCP, and inside SMB pipes. A call and its answer are a transaction; the stub
//! data of its fragments are joined.

pub(in crate::app) mod connectionless;
mod resynchronize;

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use crate::app::AppProtocol;
use crate::app::heap::heap;
use crate::app::interfaces::{Interface, Interfaces};
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{DcerpcCall, Record, SmbRecord};
use crate::app::transaction::{Progress, Transaction, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use resynchronize::resynchronize;

/// Size in bytes of the header that all PDUs have.
const HEADER: usize = 16;
/// The major version of the protocol.
const VERSION: u8 = 5;
/// Largest size in bytes of the joined stub data that are kept.
const STUB_SIZE: usize = 1 << 20;
/// Largest number of calls whose answers are expected, and of calls in fragments in a direction.
const CALLS: usize = 256;
/// Largest number of interfaces that are kept, over all contexts of a connection or pipe.
const CONTEXTS_MAX: usize = 1024;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const FAULT: u8 = 3;
const BIND: u8 = 11;
const BIND_ACK: u8 = 12;
const ALTER_CONTEXT: u8 = 14;
const ALTER_CONTEXT_RESPONSE: u8 = 15;
/// Largest number of results of a bind that are kept.
const RESULTS: usize = 16;
/// Types of the PDUs that begin, accept, refuse or change a context (C706, section 12.6.3).
const CONTEXTS: core::ops::RangeInclusive<u8> = 11..=15;
const FIRST_FRAGMENT: u8 = 1;
const LAST_FRAGMENT: u8 = 2;
const HAS_OBJECT: u8 = 0x80;

/// A PDU: the fields of its headers, and its stub data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pdu<'a> {
    kind: u8,
    /// The minor version of the protocol.
    minor: u8,
    flags: u8,
    is_little: bool,
    call: u32,
    /// The bytes after the header that all PDUs have.
    body: &'a [u8],
    stub: &'a [u8],
    size: usize,
}

/// The result of looking for a PDU.
enum Found<'a> {
    Pdu(Pdu<'a>),
    Incomplete,
    Invalid,
}

/// Returns the number of two bytes.
fn short(bytes: [u8; 2], is_little: bool) -> u16 {
    match is_little {
        true => u16::from_le_bytes(bytes),
        false => u16::from_be_bytes(bytes),
    }
}

/// Returns the number of two bytes at an offset.
fn short_at(data: &[u8], at: usize, is_little: bool) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(short(*bytes, is_little))
}

/// Returns the PDU at the beginning of the data.
fn pdu(data: &[u8]) -> Found<'_> {
    let version = data.first().copied();
    if version.is_some_and(|version| version != VERSION) {
        return Found::Invalid;
    }
    let Some(header) = data.first_chunk::<HEADER>() else {
        return Found::Incomplete;
    };
    let is_little = header[4] & 0x10 != 0;
    let number = |at: usize| usize::from(short([header[at], header[at + 1]], is_little));
    let (size, auth) = (number(8), number(10));
    if size < HEADER {
        return Found::Invalid;
    }
    let Some(whole) = data.get(..size) else {
        return Found::Incomplete;
    };
    let (minor, kind, flags) = (header[1], header[2], header[3]);
    let start = HEADER
        + 8
        + if kind == REQUEST && flags & HAS_OBJECT != 0 {
            16
        } else {
            0
        };
    // The verifier of authentication has a header of eight bytes.
    let end = size.saturating_sub(if auth > 0 { auth + 8 } else { 0 });
    let call = [header[12], header[13], header[14], header[15]];
    Found::Pdu(Pdu {
        kind,
        minor,
        flags,
        is_little,
        call: match is_little {
            true => u32::from_le_bytes(call),
            false => u32::from_be_bytes(call),
        },
        body: &whole[HEADER..],
        stub: whole.get(start..end).unwrap_or_default(),
        size,
    })
}

/// Calls `found` with the contexts of a bind (C706, section 12.6.4.3): the number of each, and its interface.
fn contexts(pdu: &Pdu<'_>, mut found: impl FnMut(u16, Interface)) -> Option<()> {
    let mut data = pdu.body.get(8..)?;
    let count = *data.first()?;
    data = data.get(4..)?;
    for _ in 0..count {
        let id = short_at(data, 0, pdu.is_little)?;
        let syntaxes = usize::from(*data.get(2)?);
        let uuid = data.get(4..)?.first_chunk::<16>()?;
        let halves = [
            short_at(data, 20, pdu.is_little)?,
            short_at(data, 22, pdu.is_little)?,
        ];
        // The major version is in the lower half of the number.
        let [major, minor] = match pdu.is_little {
            true => halves,
            false => [halves[1], halves[0]],
        };
        found(id, (uuid_text(uuid, pdu.is_little), [major, minor]));
        data = data.get(24 + 20 * syntaxes..)?;
    }
    Some(())
}

/// Returns the results of the contexts that a bind proposed (C706, section 12.6.4.4), behind the secondary address.
fn results(pdu: &Pdu<'_>) -> Option<Vec<u16>> {
    const RESULT: usize = 24;
    let address = usize::from(short_at(pdu.body, 8, pdu.is_little)?);
    // The list begins at a multiple of four bytes of the PDU, as its header does.
    let at = (10 + address).next_multiple_of(4);
    let count = usize::from(*pdu.body.get(at)?);
    let list = pdu.body.get(at + 4..)?.chunks_exact(RESULT);
    let result = |result: &[u8]| short_at(result, 0, pdu.is_little);
    list.take(count.min(RESULTS)).map(result).collect()
}

/// Returns the call of a transaction.
fn call_of(transaction: &mut Transaction) -> Option<&mut DcerpcCall> {
    match &mut transaction.record {
        Record::Smb(record) => record.dcerpc.as_mut(),
        _ => None,
    }
}

/// Returns a UUID in the form of RFC 9562, section 4. Its first three fields have the byte order of the PDU.
fn uuid_text(uuid: &[u8; 16], is_little: bool) -> Vec<u8> {
    let mut bytes = *uuid;
    if is_little {
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
    }
    let mut text = Vec::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push(b'-');
        }
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text
}

/// The protocol that carries calls, and the name of its command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carrier {
    pub(super) app: AppProtocol,
    pub(super) command: &'static [u8],
    /// True if binds are transactions for records, in SMB. Those over TCP are always.
    pub(super) is_recorded: bool,
}

impl Carrier {
    /// Returns the record of a call.
    fn record(self, call: DcerpcCall) -> Record {
        Record::Smb(Box::new(SmbRecord {
            command: self.command.to_vec(),
            dcerpc: Some(call),
            ..SmbRecord::default()
        }))
    }
}

/// The contexts of a connection or pipe, in the order of their numbers. If the client proposes several interfaces for
/// one number, all are kept: the parser does not know which one the server accepted.
#[derive(Debug, Default)]
struct Contexts {
    list: Vec<(u16, Interfaces)>,
    /// Number of the interfaces of all contexts.
    len: usize,
    /// True once an interface was not kept.
    has_overflowed: bool,
}

heap!(Contexts { list });

impl Contexts {
    /// Adds the interface that a client proposes for a context, unless it is known or there are too many.
    fn add(&mut self, id: u16, interface: Interface) {
        if self.len >= CONTEXTS_MAX {
            self.has_overflowed = true;
            return;
        }
        let at = match self.list.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => at,
            Err(at) => {
                self.list.insert(at, (id, Interfaces::default()));
                at
            }
        };
        let (_, interfaces) = &mut self.list[at];
        if !interfaces.iter().any(|known| *known == interface) {
            interfaces.add(interface);
            self.len += 1;
        }
    }

    /// Returns the interfaces of a context.
    fn of(&self, id: u16) -> Interfaces {
        let at = self.list.binary_search_by_key(&id, |(id, _)| *id).ok();
        at.map(|at| self.list[at].1.clone()).unwrap_or_default()
    }
}

/// The calls of one connection or pipe.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The bytes of an incomplete PDU, by direction.
    pending: [Vec<u8>; 2],
    /// The newest calls, oldest first: the identifier and the transaction.
    calls: VecDeque<(u32, u64)>,
    /// The calls whose last fragment is missing, by direction: the identifier, the transaction, and the stub buffer to which
    /// fragments are appended. A client may begin a call before the last fragment of another.
    open: [VecDeque<(u32, u64, usize)>; 2],
    /// The contexts that the client proposed.
    contexts: Contexts,
    has_failed: [bool; 2],
    /// True by [`Direction::index`] once bytes were lost: what then is no PDU does not end parsing.
    has_gaps: [bool; 2],
    /// True by [`Direction::index`] while the next PDU is looked for.
    is_lost: [bool; 2],
    /// True if a PDU about a context ended since the last call of `Parser::ends_message`.
    has_context: bool,
}

heap!(Calls {
    pending,
    calls,
    open,
    contexts
});

impl Calls {
    /// Returns true if the beginning of a PDU waits for its rest.
    pub(super) fn waits(&self, direction: Direction) -> bool {
        !self.pending[direction.index()].is_empty()
    }

    /// Parses the next bytes of a pipe. After an invalid PDU, the next bytes are parsed as the beginning of a
    /// PDU.
    pub(super) fn pipe(
        &mut self,
        bytes: &[u8],
        direction: Direction,
        carrier: Carrier,
        out: &mut Transactions,
    ) {
        if !self.data(bytes, direction, carrier, out) {
            self.has_failed[direction.index()] = false;
        }
    }

    /// Parses bytes as complete PDUs, without the incomplete PDU that waits for its rest.
    pub(super) fn parse_separately(
        &mut self,
        bytes: &[u8],
        direction: Direction,
        carrier: Carrier,
        out: &mut Transactions,
    ) {
        let mut separate = Calls {
            calls: core::mem::take(&mut self.calls),
            contexts: core::mem::take(&mut self.contexts),
            ..Calls::default()
        };
        separate.data(bytes, direction, carrier, out);
        (self.calls, self.contexts) = (separate.calls, separate.contexts);
    }

    /// Parses the next bytes of a direction; returns false if they are not PDUs.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        direction: Direction,
        carrier: Carrier,
        out: &mut Transactions,
    ) -> bool {
        let side = direction.index();
        if self.has_failed[side] {
            return false;
        }
        let mut pending = core::mem::take(&mut self.pending[side]);
        pending.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            if self.is_lost[side] {
                let (skipped, is_found) = resynchronize(&pending[at..]);
                at += skipped;
                if !is_found {
                    break;
                }
                self.is_lost[side] = false;
            }
            match pdu(&pending[at..]) {
                Found::Pdu(pdu) => {
                    self.add(pdu, direction, carrier, out);
                    at += pdu.size;
                }
                Found::Incomplete => break,
                Found::Invalid if self.has_gaps[side] => {
                    at += 1;
                    self.is_lost[side] = true;
                }
                Found::Invalid => {
                    self.has_failed[side] = true;
                    return false;
                }
            }
        }
        // The bytes of an incomplete PDU stay where they are: a copy for each chunk would be slow if they
        // come one by one.
        pending.drain(..at);
        self.pending[side] = pending;
        true
    }

    /// Handles lost bytes of a direction: the calls in progress end, and parsing continues with the next PDU.
    fn lose(&mut self, direction: Direction, out: &mut Transactions) {
        let side = direction.index();
        (self.has_gaps[side], self.is_lost[side]) = (true, true);
        self.pending[side] = Vec::new();
        for open in self.open[side].drain(..) {
            close(open, direction, out);
        }
    }

    fn add(&mut self, pdu: Pdu<'_>, direction: Direction, carrier: Carrier, out: &mut Transactions) {
        if matches!(pdu.kind, BIND | ALTER_CONTEXT) {
            contexts(&pdu, |id, interface| self.contexts.add(id, interface));
        }
        if pdu.kind != REQUEST && pdu.kind != RESPONSE {
            out.has_lost |= self.contexts.has_overflowed;
            self.has_context |= CONTEXTS.contains(&pdu.kind);
            if carrier.app == AppProtocol::Dcerpc || carrier.is_recorded {
                self.add_other(&pdu, direction, carrier, out);
            }
            return;
        }
        let open = &mut self.open[direction.index()];
        let known = open.iter().position(|(call, ..)| *call == pdu.call);
        let mut known = known.and_then(|at| open.remove(at));
        if pdu.flags & FIRST_FRAGMENT != 0
            && let Some(ended) = known.take()
        {
            close(ended, direction, out);
        }
        let (id, buffer) = match known {
            Some((_, id, buffer)) => (id, buffer),
            None => self.begin(&pdu, direction, carrier, out),
        };
        let Some(transaction) = out.by_id(id) else { return };
        transaction.advance(direction, Progress::Body);
        transaction.append(buffer, pdu.stub, STUB_SIZE);
        if let Some(call) = call_of(transaction) {
            call.fragments[direction.index()] += 1;
            call.stub_sizes[direction.index()] += pdu.stub.len() as u64;
            call.answer = (pdu.kind == RESPONSE).then_some(RESPONSE).or(call.answer);
        }
        if pdu.flags & LAST_FRAGMENT != 0 {
            close((pdu.call, id, buffer), direction, out);
            return;
        }
        let open = &mut self.open[direction.index()];
        open.push_back((pdu.call, id, buffer));
        if open.len() > CALLS
            && let Some(oldest) = open.pop_front()
        {
            // The other fragments of this call would be another call.
            out.has_lost = true;
            close(oldest, direction, out);
        }
    }

    /// Handles a PDU without stub data: a bind begins a transaction, and an answer ends one. Only events show them.
    fn add_other(&mut self, pdu: &Pdu<'_>, direction: Direction, carrier: Carrier, out: &mut Transactions) {
        if matches!(pdu.kind, BIND | ALTER_CONTEXT) {
            let mut proposed = Vec::new();
            contexts(pdu, |_, interface| proposed.push(interface));
            proposed.truncate(Interfaces::RECORDED);
            let transaction = out.start(carrier.app);
            transaction.record = carrier.record(DcerpcCall {
                // The newest is the first.
                interfaces: proposed.into_iter().rev().collect(),
                request: Some(pdu.kind),
                identifier: pdu.call,
                minor_version: pdu.minor,
                ..DcerpcCall::default()
            });
            transaction.advance(direction, Progress::Complete);
            let id = transaction.id;
            self.remember(pdu.call, id);
            return;
        }
        if !matches!(pdu.kind, FAULT | BIND_ACK..=ALTER_CONTEXT_RESPONSE) {
            return;
        }
        let Some(id) = self
            .call_of_answer(pdu.call, out)
            .or_else(|| begin_lost(pdu, direction, carrier, out))
        else {
            return;
        };
        let Some(transaction) = out.by_id(id) else { return };
        if let Some(call) = call_of(transaction) {
            call.answer = Some(pdu.kind);
            if matches!(pdu.kind, BIND_ACK | ALTER_CONTEXT_RESPONSE) {
                call.results = results(pdu).unwrap_or_default();
            }
        }
        transaction.advance(direction, Progress::Complete);
    }

    /// Returns the newest transaction of a call that is kept.
    fn call_of_answer(&self, call: u32, out: &mut Transactions) -> Option<u64> {
        let is_it = |(known, id): &&(u32, u64)| *known == call && out.by_id(*id).is_some();
        self.calls.iter().rev().find(is_it).map(|(_, id)| *id)
    }

    /// Remembers the transaction of a call until its answer comes.
    fn remember(&mut self, call: u32, id: u64) {
        if self.calls.len() >= CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((call, id));
    }

    /// Opens the stub buffer of a call or of its answer. Returns its transaction, and the index of the buffer.
    fn begin(
        &mut self,
        pdu: &Pdu<'_>,
        direction: Direction,
        carrier: Carrier,
        out: &mut Transactions,
    ) -> (u64, usize) {
        let known = match pdu.kind {
            RESPONSE => self
                .call_of_answer(pdu.call, out)
                .or_else(|| begin_lost(pdu, direction, carrier, out)),
            _ => None,
        };
        let id = known.unwrap_or_else(|| out.start(carrier.app).id);
        let Some(transaction) = out.by_id(id) else {
            return (id, usize::MAX);
        };
        if pdu.kind == REQUEST {
            let number = |at| short_at(pdu.body, at, pdu.is_little).unwrap_or_default();
            let (context, operation) = (number(4), number(6));
            let call = DcerpcCall {
                interfaces: self.contexts.of(context),
                operation,
                request: Some(REQUEST),
                identifier: pdu.call,
                minor_version: pdu.minor,
                ..DcerpcCall::default()
            };
            transaction.record = carrier.record(call);
        } else if known.is_none() {
            transaction.advance(direction.reverse(), Progress::Complete);
        }
        // The byte order of the first fragment applies to the whole call.
        let buffer = transaction.open(Buffer::DceStubData, None, direction, 0);
        transaction.set_big_endian(buffer, !pdu.is_little);
        if pdu.kind == REQUEST {
            self.remember(pdu.call, id);
        }
        (id, buffer)
    }
}

/// Begins the transaction of an answer whose request was not seen; `None` in SMB, where the records are those of commands.
fn begin_lost(pdu: &Pdu<'_>, direction: Direction, carrier: Carrier, out: &mut Transactions) -> Option<u64> {
    if carrier.app != AppProtocol::Dcerpc {
        return None;
    }
    let transaction = out.start(carrier.app);
    transaction.record = carrier.record(DcerpcCall {
        identifier: pdu.call,
        minor_version: pdu.minor,
        ..DcerpcCall::default()
    });
    transaction.advance(direction.reverse(), Progress::Complete);
    Some(transaction.id)
}

/// Ends a call, or its answer, in a direction.
fn close((_, id, buffer): (u32, u64, usize), direction: Direction, out: &mut Transactions) {
    if let Some(transaction) = out.by_id(id) {
        transaction.close(buffer);
        transaction.advance(direction, Progress::Complete);
    }
}

/// The parser of a connection that carries DCE/RPC itself.
#[derive(Debug, Default)]
pub(in crate::app) struct Dcerpc {
    calls: Calls,
}

heap!(Dcerpc { calls });

impl Parser for Dcerpc {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if chunk.gap_before > 0 {
            self.calls.lose(chunk.direction, out);
        }
        let carrier = Carrier {
            app: AppProtocol::Dcerpc,
            command: b"",
            is_recorded: false,
        };
        self.calls.data(chunk.bytes, chunk.direction, carrier, out);
        if self.calls.has_failed == [true; 2] {
            Outcome::Failed
        } else {
            Outcome::Continue
        }
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}

    fn ends_message(&mut self) -> bool {
        core::mem::take(&mut self.calls.has_context)
    }
}

#[cfg(test)]
pub(super) mod tests;
