//! DCE/RPC (C706, chapter 12): calls over TCP, and inside SMB pipes. A call and its answer are a transaction; the stub
//! data of its fragments are joined.

use millrace_ips_rules::buffers::Buffer;

use crate::app::AppProtocol;
use crate::app::parser::{Outcome, Parser};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Size of the header that all PDUs have.
const HEADER: usize = 16;
/// Largest size of joined stub data that are kept.
const STUB_SIZE: usize = 1 << 20;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
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
    pending: [Vec<u8>; 2],
    /// The call in progress, and its stub buffers by direction.
    call: Option<u64>,
    buffers: [Option<usize>; 2],
    has_failed: [bool; 2],
}

impl Calls {
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
        self.pending[side] = pending[at..].to_vec();
        true
    }

    fn add(&mut self, pdu: Pdu<'_>, direction: Direction, app: AppProtocol, out: &mut Transactions) {
        if pdu.kind != REQUEST && pdu.kind != RESPONSE {
            return;
        }
        let side = direction.index();
        if self.buffers[side].is_none() {
            let known = self.call.filter(|_| pdu.kind == RESPONSE);
            let transaction = match known.and_then(|id| out.by_id(id)) {
                Some(_) => known.and_then(|id| out.by_id(id)),
                None => Some(out.start(app)),
            };
            let Some(transaction) = transaction else { return };
            if pdu.kind == RESPONSE && known.is_none() {
                transaction.advance(direction.reverse(), Progress::Complete);
            }
            self.call = Some(transaction.id);
            self.buffers[side] = Some(transaction.open(Buffer::DceStubData, None, direction, 0));
        }
        let Some((transaction, buffer)) = self.call.and_then(|id| out.by_id(id)).zip(self.buffers[side])
        else {
            self.buffers[side] = None;
            return;
        };
        transaction.advance(direction, Progress::Body);
        transaction.append(buffer, pdu.stub, STUB_SIZE);
        if pdu.is_last {
            transaction.close(buffer);
            transaction.advance(direction, Progress::Complete);
            self.buffers[side] = None;
        }
    }
}

/// The parser of a connection that carries DCE/RPC itself.
#[derive(Debug, Default)]
pub(in crate::app) struct Dcerpc {
    calls: Calls,
}

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
                    dcerpc.data(
                        StreamChunk {
                            direction,
                            offset: 0,
                            bytes,
                            gap_before: 0,
                            is_end: false,
                        },
                        &mut out,
                    );
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
