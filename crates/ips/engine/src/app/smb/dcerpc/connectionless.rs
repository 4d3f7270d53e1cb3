//! DCE/RPC over UDP (C706, section 12.5): each datagram is a PDU of version 4. A call and its answer are a transaction; the client
//! names it by an activity and a sequence number.
//!
//! ```text
//!   0        1      2       3       4                       8        24          40          56
//!  | version | type | flags1 | flags2 | representation, serial | object | interface | activity | server boot time |
//!
//!   60                  64         68           70      72      74     76         78              79
//!  | interface version | sequence | operation | hints         | size | fragment | authentication | serial |
//! ```

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::{CALLS, FAULT, REQUEST, RESPONSE, STUB_SIZE, call_of, short_at, uuid_text};
use crate::app::AppProtocol;
use crate::app::heap::heap;
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{DcerpcCall, Record, SmbRecord};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Size of the header in bytes.
const HEADER: usize = 80;
const VERSION: u8 = 4;
/// Largest type of a PDU.
const LAST_TYPE: u8 = 10;
/// Types of PDUs that refuse a call.
const NO_CALL: u8 = 5;
const REJECT: u8 = 6;
/// Bits of the first byte of flags.
const LAST_FRAGMENT: u8 = 0x02;
const FRAGMENT: u8 = 0x04;

/// The header of a PDU.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u8,
    is_little: bool,
    /// True unless further fragments follow.
    is_last: bool,
    interface: [u8; 16],
    /// Major and minor version of the interface.
    version: [u16; 2],
    activity: [u8; 16],
    sequence: u32,
    operation: u16,
    /// Size of the stub data in bytes.
    size: usize,
}

impl Header {
    /// Reads the header of a datagram; `None` if it is no PDU.
    fn read(data: &[u8]) -> Option<Header> {
        let head = data.first_chunk::<HEADER>()?;
        let [version, kind, flags, more_flags, integers, floats, ..] = *head;
        // The representation names the byte order and the form of characters, and that of floating-point numbers (section 14.1).
        let is_valid = version == VERSION
            && kind <= LAST_TYPE
            && more_flags & 0xfc == 0
            && integers & 0xee == 0
            && floats <= 3;
        let is_little = integers & 0x10 != 0;
        let uuid = |at: usize| head[at..].first_chunk::<16>().copied();
        let number = |at: usize| {
            let bytes = *head[at..].first_chunk::<4>()?;
            Some(match is_little {
                true => u32::from_le_bytes(bytes),
                false => u32::from_be_bytes(bytes),
            })
        };
        let version = number(60)?;
        let header = Header {
            kind,
            is_little,
            is_last: flags & FRAGMENT == 0 || flags & LAST_FRAGMENT != 0,
            interface: uuid(24)?,
            // The minor version is in the upper half.
            version: [(version & 0xffff) as u16, (version >> 16) as u16],
            activity: uuid(40)?,
            sequence: number(64)?,
            operation: short_at(head, 68, is_little)?,
            size: usize::from(short_at(head, 74, is_little)?),
        };
        (is_valid && data.len() >= HEADER + header.size).then_some(header)
    }
}

/// Returns true if a datagram is a call, or for the other direction its answer.
pub(in crate::app) fn is_message(data: &[u8], direction: Direction) -> bool {
    let kind = match direction {
        Direction::ToServer => REQUEST,
        Direction::ToClient => RESPONSE,
    };
    Header::read(data).is_some_and(|header| header.kind == kind)
}

/// A call whose last fragment, or that of its answer, is missing.
#[derive(Debug)]
struct Call {
    activity: [u8; 16],
    sequence: u32,
    transaction: u64,
    /// The stub buffer of the request and of the answer, once they began.
    buffers: [Option<usize>; 2],
    is_done: [bool; 2],
}

heap!(Call {});

/// The parser of a flow.
#[derive(Debug, Default)]
pub(in crate::app) struct Connectionless {
    /// The newest calls, oldest first.
    calls: VecDeque<Call>,
}

heap!(Connectionless { calls });

impl Connectionless {
    fn message(&mut self, direction: Direction, header: &Header, stub: &[u8], out: &mut Transactions) {
        let is_it = |call: &Call| (call.activity, call.sequence) == (header.activity, header.sequence);
        let side = match header.kind {
            REQUEST => 0,
            RESPONSE => 1,
            FAULT | NO_CALL | REJECT => {
                let known = self.calls.iter().position(is_it);
                let at = known.unwrap_or_else(|| self.begin(direction, header, out));
                if let Some(call) = self.calls.remove(at) {
                    refuse(&call, header.kind, out);
                }
                return;
            }
            // Pings and acknowledgments.
            _ => return,
        };
        let known = self
            .calls
            .iter()
            .position(|call| is_it(call) && !call.is_done[side]);
        let at = known.unwrap_or_else(|| self.begin(direction, header, out));
        let Some(call) = self.calls.get_mut(at) else {
            return;
        };
        let Some(transaction) = out.by_id(call.transaction) else {
            self.calls.remove(at);
            return;
        };
        let buffer = *call.buffers[side].get_or_insert_with(|| {
            // The byte order of the first fragment applies to the whole call.
            let buffer = transaction.open(Buffer::DceStubData, None, direction, 0);
            transaction.set_big_endian(buffer, !header.is_little);
            buffer
        });
        transaction.advance(direction, Progress::Body);
        transaction.append(buffer, stub, STUB_SIZE);
        if let Some(record) = call_of(transaction) {
            record.fragments[side] += 1;
            record.stub_sizes[side] += stub.len() as u64;
            match header.kind {
                REQUEST => describe(header, record),
                _ => record.answer = Some(RESPONSE),
            }
        }
        if !header.is_last {
            return;
        }
        call.is_done[side] = true;
        transaction.close(buffer);
        transaction.advance(direction, Progress::Complete);
        if header.kind == RESPONSE {
            // No request follows its answer.
            transaction.advance(direction.reverse(), Progress::Complete);
            self.calls.remove(at);
        }
    }

    /// Begins the transaction of a call, or of an answer without one; returns the place of the call.
    fn begin(&mut self, direction: Direction, header: &Header, out: &mut Transactions) -> usize {
        if self.calls.len() >= CALLS
            && let Some(oldest) = self.calls.pop_front()
        {
            // The other fragments of this call would be another call.
            out.has_lost |= oldest.is_done == [false; 2];
            end(&oldest, out);
        }
        let transaction = out.start(AppProtocol::Dcerpc);
        if header.kind != REQUEST {
            transaction.advance(direction.reverse(), Progress::Complete);
        }
        transaction.record = Record::Smb(Box::new(SmbRecord {
            dcerpc: Some(DcerpcCall {
                // In records the UUID has the byte order that Suricata assumes, whatever the representation says.
                activity: Some(uuid_text(&header.activity, true)),
                sequence: header.sequence,
                ..DcerpcCall::default()
            }),
            ..SmbRecord::default()
        }));
        self.calls.push_back(Call {
            activity: header.activity,
            sequence: header.sequence,
            transaction: transaction.id,
            buffers: [None; 2],
            is_done: [false; 2],
        });
        self.calls.len() - 1
    }
}

/// Writes the interface and the operation of a request into its record.
fn describe(header: &Header, record: &mut DcerpcCall) {
    if record.interfaces.iter().next().is_none() {
        let uuid = uuid_text(&header.interface, header.is_little);
        record.interfaces.add((uuid, header.version));
    }
    (record.request, record.operation) = (Some(REQUEST), header.operation);
}

/// Ends a call that a PDU without stub data answers.
fn refuse(call: &Call, kind: u8, out: &mut Transactions) {
    if let Some(record) = out.by_id(call.transaction).and_then(call_of) {
        record.answer = Some(kind);
    }
    end(call, out);
}

/// Ends both directions of a call.
fn end(call: &Call, out: &mut Transactions) {
    let Some(transaction) = out.by_id(call.transaction) else {
        return;
    };
    for buffer in call.buffers.into_iter().flatten() {
        transaction.close(buffer);
    }
    for direction in Direction::BOTH {
        transaction.advance(direction, Progress::Complete);
    }
}

impl Parser for Connectionless {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if let Some(header) = Header::read(chunk.bytes) {
            let stub = &chunk.bytes[HEADER..HEADER + header.size];
            self.message(chunk.direction, &header, stub, out);
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == Direction::ToClient {
            for call in core::mem::take(&mut self.calls) {
                end(&call, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::transaction::Transaction;

    /// Returns a PDU of sequence number 7: its type, its flags, its byte order and its stub data.
    fn pdu(kind: u8, flags: u8, is_little: bool, stub: &[u8]) -> Vec<u8> {
        let short = |number: u16| match is_little {
            true => number.to_le_bytes(),
            false => number.to_be_bytes(),
        };
        let long = |number: u32| match is_little {
            true => number.to_le_bytes(),
            false => number.to_be_bytes(),
        };
        let mut bytes = vec![4, kind, flags, 0, if is_little { 0x10 } else { 0 }, 0, 0, 0];
        bytes.extend([0; 16]);
        bytes.extend(long(0x0102_0304));
        bytes.extend([short(0x0506), short(0x0708)].concat());
        bytes.extend([9, 10, 11, 12, 13, 14, 15, 16]);
        bytes.extend([0x40; 16]);
        bytes.extend([long(0), long(0x0002_0001), long(7)].concat());
        bytes.extend([short(3), short(0xffff), short(0xffff), short(stub.len() as u16)].concat());
        bytes.extend([0, 0, 0, 0]);
        [bytes, stub.to_vec()].concat()
    }

    fn run(messages: &[(Direction, Vec<u8>)]) -> Transactions {
        let (mut parser, mut out) = (Connectionless::default(), Transactions::default());
        for (direction, bytes) in messages {
            let outcome = parser.data(StreamChunk::of(*direction, bytes), &mut out);
            assert_eq!(outcome, Outcome::Continue);
        }
        out
    }

    fn record_of(out: &mut Transactions, at: usize) -> DcerpcCall {
        call_of(&mut out.list[at]).unwrap().clone()
    }

    #[test]
    fn a_call_in_fragments_and_its_answer_are_a_transaction() {
        for is_little in [true, false] {
            let mut out = run(&[
                (Direction::ToServer, pdu(REQUEST, FRAGMENT, is_little, b"ab")),
                (
                    Direction::ToServer,
                    pdu(REQUEST, FRAGMENT | LAST_FRAGMENT, is_little, b"cd"),
                ),
                (Direction::ToClient, pdu(4, 0, is_little, b"")),
                (Direction::ToClient, pdu(RESPONSE, 0, is_little, b"answer")),
            ]);
            assert_eq!(out.list.len(), 1);
            let stub = |direction| out.list[0].buffer(Buffer::DceStubData, direction);
            assert_eq!(stub(Direction::ToServer), Some(&b"abcd"[..]));
            assert_eq!(stub(Direction::ToClient), Some(&b"answer"[..]));
            assert!(out.list[0].is_complete());
            let call = record_of(&mut out, 0);
            let interface = (b"01020304-0506-0708-090a-0b0c0d0e0f10".to_vec(), [1, 2]);
            assert_eq!(call.interfaces.iter().collect::<Vec<_>>(), [&interface]);
            assert_eq!((call.operation, call.sequence), (3, 7));
            assert_eq!((call.fragments, call.stub_sizes), ([2, 1], [4, 6]));
            assert_eq!((call.request, call.answer), (Some(REQUEST), Some(RESPONSE)));
        }
    }

    #[test]
    fn a_refused_call_ends_and_an_answer_without_a_call_is_a_transaction() {
        let mut out = run(&[
            (Direction::ToServer, pdu(REQUEST, 0, true, b"ab")),
            (Direction::ToClient, pdu(REJECT, 0, true, b"")),
            (Direction::ToClient, pdu(RESPONSE, 0, true, b"x")),
            (Direction::ToClient, pdu(FAULT, 0, true, b"")),
        ]);
        assert_eq!(out.list.len(), 3);
        assert!(out.list.iter().all(Transaction::is_complete));
        assert_eq!(record_of(&mut out, 0).answer, Some(REJECT));
        assert_eq!(record_of(&mut out, 1).fragments, [0, 1]);
        let types = |out: &mut Transactions, at| {
            let call = record_of(out, at);
            (call.request, call.answer)
        };
        assert_eq!(types(&mut out, 0), (Some(REQUEST), Some(REJECT)));
        assert_eq!(types(&mut out, 1), (None, Some(RESPONSE)));
        assert_eq!(types(&mut out, 2), (None, Some(FAULT)));
    }

    #[test]
    fn many_calls_without_answers_are_bounded() {
        let mut parser = Connectionless::default();
        let mut out = Transactions::default();
        for number in 0..1000_u32 {
            let mut bytes = pdu(REQUEST, FRAGMENT, true, b"ab");
            bytes[64..68].copy_from_slice(&number.to_le_bytes());
            parser.data(StreamChunk::of(Direction::ToServer, &bytes), &mut out);
        }
        assert_eq!(parser.calls.len(), CALLS);
        assert!(out.has_lost);
    }

    #[test]
    fn a_datagram_is_a_message_if_its_header_is_valid_and_its_data_are_there() {
        let whole = pdu(REQUEST, 0, true, b"stub");
        assert!(is_message(&whole, Direction::ToServer) && !is_message(&whole, Direction::ToClient));
        for size in 0..whole.len() {
            assert!(!is_message(&whole[..size], Direction::ToServer), "{size}");
        }
        for (at, byte) in [(0, 5), (1, 11), (3, 4), (4, 0x02), (5, 4)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            assert!(!is_message(&wrong, Direction::ToServer), "{at}");
        }
    }
}
