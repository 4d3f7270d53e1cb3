//! DCE/RPC (C706, chapter 12): calls over TCP, and inside SMB pipes. A call and its answer are a transaction; the stub
//! data of its fragments are joined.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use crate::app::AppProtocol;
use crate::app::heap::heap;
use crate::app::interfaces::{Interface, Interfaces};
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{DcerpcCall, Record, SmbRecord};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Size in bytes of the header that all PDUs have.
const HEADER: usize = 16;
/// Largest size in bytes of the joined stub data that are kept.
const STUB_SIZE: usize = 1 << 20;
/// Largest number of calls whose answers are expected, and of calls in fragments in a direction.
const CALLS: usize = 256;
/// Largest number of interfaces that are kept, over all contexts of a connection or pipe.
const CONTEXTS_MAX: usize = 1024;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const BIND: u8 = 11;
const ALTER_CONTEXT: u8 = 14;
/// Types of the PDUs that begin, accept, refuse or change a context (C706, section 12.6.3).
const CONTEXTS: core::ops::RangeInclusive<u8> = 11..=15;
const FIRST_FRAGMENT: u8 = 1;
const LAST_FRAGMENT: u8 = 2;
const HAS_OBJECT: u8 = 0x80;

/// A PDU: the fields of its headers, and its stub data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pdu<'a> {
    kind: u8,
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
    if version.is_some_and(|version| version != 5) {
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
    let (kind, flags) = (header[2], header[3]);
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
        let version = short_at(data, 20, pdu.is_little)?;
        found(id, (uuid_text(uuid, pdu.is_little), version));
        data = data.get(24 + 20 * syntaxes..)?;
    }
    Some(())
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
            match pdu(&pending[at..]) {
                Found::Pdu(pdu) => {
                    self.add(pdu, direction, carrier, out);
                    at += pdu.size;
                }
                Found::Incomplete => break,
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

    fn add(&mut self, pdu: Pdu<'_>, direction: Direction, carrier: Carrier, out: &mut Transactions) {
        if matches!(pdu.kind, BIND | ALTER_CONTEXT) {
            contexts(&pdu, |id, interface| self.contexts.add(id, interface));
        }
        if pdu.kind != REQUEST && pdu.kind != RESPONSE {
            out.has_lost |= self.contexts.has_overflowed;
            self.has_context |= CONTEXTS.contains(&pdu.kind);
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

    /// Opens the stub buffer of a call or of its answer. Returns its transaction, and the index of the buffer.
    fn begin(
        &mut self,
        pdu: &Pdu<'_>,
        direction: Direction,
        carrier: Carrier,
        out: &mut Transactions,
    ) -> (u64, usize) {
        let is_it = |(call, id): &&(u32, u64)| *call == pdu.call && out.by_id(*id).is_some();
        let known = match pdu.kind {
            RESPONSE => self.calls.iter().rev().find(is_it).map(|(_, id)| *id),
            _ => None,
        };
        let id = known.unwrap_or_else(|| out.start(carrier.app).id);
        let Some(transaction) = out.by_id(id) else {
            return (id, usize::MAX);
        };
        if pdu.kind == REQUEST {
            if self.calls.len() >= CALLS {
                self.calls.pop_front();
            }
            self.calls.push_back((pdu.call, id));
            let number = |at| short_at(pdu.body, at, pdu.is_little).unwrap_or_default();
            let (context, operation) = (number(4), number(6));
            let call = DcerpcCall {
                interfaces: self.contexts.of(context),
                operation,
            };
            transaction.record = Record::Smb(Box::new(SmbRecord {
                command: carrier.command.to_vec(),
                dcerpc: Some(call),
                ..SmbRecord::default()
            }));
        } else if known.is_none() {
            transaction.advance(direction.reverse(), Progress::Complete);
        }
        // The byte order of the first fragment applies to the whole call.
        let buffer = transaction.open(Buffer::DceStubData, None, direction, 0);
        transaction.set_big_endian(buffer, !pdu.is_little);
        (id, buffer)
    }
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
        self.calls.has_failed[chunk.direction.index()] |= chunk.gap_before > 0;
        let carrier = Carrier {
            app: AppProtocol::Dcerpc,
            command: b"",
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
pub(super) mod tests {
    use super::*;
    use crate::app::heap::Heap;
    use crate::app::transaction::Transaction;

    const TCP: Carrier = Carrier {
        app: AppProtocol::Dcerpc,
        command: b"",
    };

    /// Returns a PDU of a request or response.
    pub(in crate::app::smb) fn message(kind: u8, flags: u8, stub: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + 8 + stub.len()).unwrap().to_le_bytes();
        let mut out = vec![
            5, 0, kind, flags, 0x10, 0, 0, 0, size[0], size[1], 0, 0, 1, 0, 0, 0,
        ];
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(stub);
        out
    }

    #[test]
    fn fragments_of_a_call_join_in_any_segmentation() {
        let call = [message(REQUEST, 1, b"one"), message(REQUEST, 2, b"two")].concat();
        let answer = message(RESPONSE, 3, b"three");
        for step in [1, 7, 1000] {
            let mut dcerpc = Dcerpc::default();
            let mut out = Transactions::default();
            for (direction, bytes) in [(Direction::ToServer, &call), (Direction::ToClient, &answer)] {
                for bytes in bytes.chunks(step) {
                    dcerpc.data(StreamChunk::of(direction, bytes), &mut out);
                }
            }
            assert_eq!(out.list.len(), 1);
            let transaction = &out.list[0];
            assert_eq!(
                transaction.buffer(Buffer::DceStubData, Direction::ToServer),
                Some(&b"onetwo"[..])
            );
            assert_eq!(
                transaction.buffer(Buffer::DceStubData, Direction::ToClient),
                Some(&b"three"[..])
            );
            assert!(transaction.is_complete());
        }
    }

    #[test]
    fn a_pdu_of_a_context_ends_a_message_and_a_call_does_not() {
        let mut dcerpc = Dcerpc::default();
        for (kind, ends) in [(11, true), (12, true), (REQUEST, false), (14, true)] {
            let bytes = message(kind, 3, b"");
            let chunk = StreamChunk::of(Direction::ToServer, &bytes);
            dcerpc.data(chunk, &mut Transactions::default());
            assert_eq!((dcerpc.ends_message(), dcerpc.ends_message()), (ends, false));
        }
    }

    #[test]
    fn a_call_before_the_end_of_an_answer_takes_none_of_the_answer() {
        let mut calls = Calls::default();
        let mut out = Transactions::default();
        for (direction, bytes) in [
            (Direction::ToServer, message(REQUEST, 3, b"first")),
            (Direction::ToClient, message(RESPONSE, 1, b"an")),
            (Direction::ToServer, message(REQUEST, 3, b"second")),
            (Direction::ToClient, message(RESPONSE, 2, b"swer")),
        ] {
            assert!(calls.data(&bytes, direction, TCP, &mut out));
        }
        let stub = |index: usize, direction| out.list[index].buffer(Buffer::DceStubData, direction);
        assert_eq!(stub(0, Direction::ToClient), Some(&b"answer"[..]));
        assert_eq!(stub(1, Direction::ToServer), Some(&b"second"[..]));
        assert_eq!(stub(1, Direction::ToClient), None);
    }

    /// Returns a PDU of a request or response of a call.
    fn of_call(call: u8, kind: u8, flags: u8, stub: &[u8]) -> Vec<u8> {
        let mut out = message(kind, flags, stub);
        out[12] = call;
        out
    }

    #[test]
    fn fragments_of_calls_with_other_numbers_do_not_mix_and_a_first_fragment_begins_a_call() {
        let mut calls = Calls::default();
        let mut out = Transactions::default();
        for (direction, bytes) in [
            (Direction::ToServer, of_call(1, REQUEST, 1, b"one ")),
            (Direction::ToServer, of_call(2, REQUEST, 1, b"two ")),
            (Direction::ToServer, of_call(1, REQUEST, 2, b"ends")),
            (Direction::ToServer, of_call(2, REQUEST, 1, b"again ")),
            (Direction::ToServer, of_call(2, REQUEST, 2, b"ends")),
            (Direction::ToClient, of_call(2, RESPONSE, 3, b"second")),
            (Direction::ToClient, of_call(1, RESPONSE, 3, b"first")),
        ] {
            assert!(calls.data(&bytes, direction, TCP, &mut out));
        }
        let stub = |index: usize, direction| {
            let stub = out.list[index].buffer(Buffer::DceStubData, direction);
            String::from_utf8_lossy(stub.unwrap_or_default()).into_owned()
        };
        let stubs: Vec<_> = Direction::BOTH
            .iter()
            .flat_map(|side| (0..3).map(|at| stub(at, *side)))
            .collect();
        assert_eq!(stubs, ["one ends", "two ", "again ends", "first", "", "second"]);
    }

    /// Returns a bind with contexts: number, and first byte of the interface.
    pub(in crate::app) fn bind(contexts: &[(u8, u8)]) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend([contexts.len() as u8, 0, 0, 0]);
        for (id, interface) in contexts {
            body.extend([*id, 0, 1, 0, 0x78, 0x56, 0x34, *interface, 0x34, 0x12, 0xcd, 0xab]);
            body.extend([0xef, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xac, 3, 0, 0, 0]);
            body.extend([0; 20]);
        }
        let size = (HEADER + body.len()) as u8;
        [
            &[5, 0, BIND, 3, 0x10, 0, 0, 0, size, 0, 0, 0, 1, 0, 0, 0][..],
            &body,
        ]
        .concat()
    }

    #[test]
    fn a_call_has_the_interface_of_its_context() {
        let mut call = message(REQUEST, 3, b"");
        (call[20], call[22]) = (1, 15);
        let mut calls = Calls::default();
        let mut out = Transactions::default();
        for bytes in [bind(&[(0, 0x11), (1, 0x12)]), call] {
            assert!(calls.data(&bytes, Direction::ToServer, TCP, &mut out));
        }
        let Record::Smb(record) = &out.list[0].record else {
            panic!("a record of a call")
        };
        let expected = DcerpcCall {
            interfaces: [(b"12345678-1234-abcd-ef00-0123456789ac".to_vec(), 3)]
                .into_iter()
                .collect(),
            operation: 15,
        };
        assert_eq!(record.dcerpc, Some(expected));
    }

    #[test]
    fn calls_share_the_interfaces_that_were_proposed_for_their_context() {
        let mut calls = Calls::default();
        let mut out = Transactions::default();
        let mut feed = |bytes: &[u8], out: &mut Transactions| {
            assert!(calls.data(bytes, Direction::ToServer, TCP, out));
            calls.heap()
        };
        for first in (0..200).step_by(4) {
            let contexts = [0, 1, 2, 3].map(|at| (0, first + at));
            feed(&bind(&contexts), &mut out);
        }
        let before = feed(&[], &mut out);
        feed(&message(REQUEST, 3, b""), &mut out);
        feed(&bind(&[(0, 255)]), &mut out);
        let after = feed(&message(REQUEST, 3, b""), &mut out);
        let of = |at: usize| match &out.list[at].record {
            Record::Smb(record) => record.dcerpc.clone().unwrap().interfaces,
            other => panic!("{other:?}"),
        };
        assert_eq!((of(0).iter().count(), of(1).iter().count()), (200, 201));
        assert!(of(0).iter().eq(of(1).iter().skip(1)));
        // The calls themselves hold none.
        assert!(after - before < 400, "{before} {after}");
        assert!(out.heap() < 4 * size_of::<Transaction>() + 2000, "{}", out.heap());
    }

    #[test]
    fn other_bytes_are_no_call() {
        let mut out = Transactions::default();
        assert!(!Calls::default().data(b"GET / HTTP/1.1", Direction::ToServer, TCP, &mut out));
        assert!(out.list.is_empty());
    }
}
