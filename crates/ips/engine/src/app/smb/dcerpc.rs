//! DCE/RPC (C706, chapter 12): calls over TCP, and inside SMB pipes. A call and its answer are a transaction; the stub
//! data of its fragments are joined.

use millrace_ips_rules::buffers::Buffer;

use crate::app::AppProtocol;
use crate::app::heap::heap;
use crate::app::parser::{Outcome, Parser};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Size in bytes of the header that all PDUs have.
const HEADER: usize = 16;
/// Largest size in bytes of the joined stub data that are kept.
const STUB_SIZE: usize = 1 << 20;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
/// Types of the PDUs that begin, accept, refuse or change a context (C706, section 12.6.3).
const CONTEXTS: core::ops::RangeInclusive<u8> = 11..=15;
const LAST_FRAGMENT: u8 = 2;
const HAS_OBJECT: u8 = 0x80;

/// A PDU: its type, flags, and stub data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pdu<'a> {
    kind: u8,
    is_last: bool,
    stub: &'a [u8],
    size: usize,
}

/// The result of looking for a PDU.
enum Found<'a> {
    Pdu(Pdu<'a>),
    Incomplete,
    Invalid,
}

/// Returns the PDU that data begin with.
fn pdu(data: &[u8]) -> Found<'_> {
    let version = data.first().copied();
    if version.is_some_and(|version| version != 5) {
        return Found::Invalid;
    }
    let Some(header) = data.first_chunk::<HEADER>() else {
        return Found::Incomplete;
    };
    let number = |at: usize| {
        let bytes = [header[at], header[at + 1]];
        let is_little = header[4] & 0x10 != 0;
        usize::from(if is_little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    };
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
    let stub = whole.get(start..end).unwrap_or_default();
    Found::Pdu(Pdu {
        kind,
        is_last: flags & LAST_FRAGMENT != 0,
        stub,
        size,
    })
}

/// The calls of one connection or pipe.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The bytes of an incomplete PDU, by direction.
    pending: [Vec<u8>; 2],
    /// The transaction of the newest call.
    call: Option<u64>,
    /// The transaction and the stub buffer to which fragments are appended, by direction. A client may begin a call before the
    /// last fragment of the previous answer.
    open: [Option<(u64, usize)>; 2],
    has_failed: [bool; 2],
    /// True if a PDU of a context ended since the parser was asked.
    has_context: bool,
}

heap!(Calls { pending });

impl Calls {
    /// Forgets the incomplete or invalid PDU of a direction: the next bytes begin a PDU.
    pub(super) fn restart(&mut self, direction: Direction) {
        self.pending[direction.index()].clear();
        self.has_failed[direction.index()] = false;
    }

    /// Takes the next bytes of a direction; returns false if they are not PDUs.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        direction: Direction,
        app: AppProtocol,
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
                    self.add(pdu, direction, app, out);
                    at += pdu.size;
                }
                Found::Incomplete => break,
                Found::Invalid => {
                    self.has_failed[side] = true;
                    return false;
                }
            }
        }
        // Nothing is copied while a PDU is incomplete: its bytes may come one by one.
        pending.drain(..at);
        self.pending[side] = pending;
        true
    }

    fn add(&mut self, pdu: Pdu<'_>, direction: Direction, app: AppProtocol, out: &mut Transactions) {
        if pdu.kind != REQUEST && pdu.kind != RESPONSE {
            self.has_context |= CONTEXTS.contains(&pdu.kind);
            return;
        }
        let side = direction.index();
        let (id, buffer) = match self.open[side] {
            Some(open) => open,
            None => self.begin(pdu.kind, direction, app, out),
        };
        self.open[side] = Some((id, buffer)).filter(|_| !pdu.is_last);
        let Some(transaction) = out.by_id(id) else {
            self.open[side] = None;
            return;
        };
        transaction.advance(direction, Progress::Body);
        transaction.append(buffer, pdu.stub, STUB_SIZE);
        if pdu.is_last {
            transaction.close(buffer);
            transaction.advance(direction, Progress::Complete);
        }
    }

    /// Opens the stub buffer of a call, or of the answer to the newest call. Returns its transaction and its index.
    fn begin(
        &mut self,
        kind: u8,
        direction: Direction,
        app: AppProtocol,
        out: &mut Transactions,
    ) -> (u64, usize) {
        let known = self
            .call
            .filter(|id| kind == RESPONSE && out.by_id(*id).is_some());
        let id = known.unwrap_or_else(|| out.start(app).id);
        self.call = Some(id);
        let Some(transaction) = out.by_id(id) else {
            return (id, usize::MAX);
        };
        if kind == RESPONSE && known.is_none() {
            transaction.advance(direction.reverse(), Progress::Complete);
        }
        (id, transaction.open(Buffer::DceStubData, None, direction, 0))
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
        self.calls
            .data(chunk.bytes, chunk.direction, AppProtocol::Dcerpc, out);
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
            assert!(calls.data(&bytes, direction, AppProtocol::Dcerpc, &mut out));
        }
        let stub = |index: usize, direction| out.list[index].buffer(Buffer::DceStubData, direction);
        assert_eq!(stub(0, Direction::ToClient), Some(&b"answer"[..]));
        assert_eq!(stub(1, Direction::ToServer), Some(&b"second"[..]));
        assert_eq!(stub(1, Direction::ToClient), None);
    }

    #[test]
    fn other_bytes_are_no_call() {
        let mut out = Transactions::default();
        assert!(!Calls::default().data(
            b"GET / HTTP/1.1",
            Direction::ToServer,
            AppProtocol::Dcerpc,
            &mut out
        ));
        assert!(out.list.is_empty());
    }
}
