//! Modbus over TCP (Modbus Messaging on TCP/IP Implementation Guide V1.0b): the header, the function and its data.
//!
//! ```text
//!  0            2           4        6      7          8
//!  | transaction | protocol 0 | length | unit | function | data … |     length counts from the unit on
//! ```

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::parser::{Outcome, Parser};
use super::record::{ModbusMessage, ModbusRecord, Record};
use super::transaction::{AppEvent, Progress, Transaction, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Size of the header without the unit.
const HEADER: usize = 6;
/// Largest value of the length: a unit and a protocol data unit of 253 bytes.
const LENGTH: usize = 254;
/// Largest number of requests that wait for their answer.
const REQUESTS: usize = 64;

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Modbus {
    pending: [Vec<u8>; 2],
    /// Requests without answer: transaction identifier, and the transaction.
    requests: Vec<(u16, u64)>,
    has_failed: [bool; 2],
}

heap!(Modbus { pending, requests });

impl Modbus {
    /// Handles a message: header, unit, function and data.
    fn message(&mut self, direction: Direction, message: &[u8], out: &mut Transactions) {
        let identifier = u16::from_be_bytes([message[0], message[1]]);
        let protocol = u16::from_be_bytes([message[2], message[3]]);
        let (unit, function) = (message[6], message[7]);
        let data = &message[8..];
        let known = self.requests.iter().position(|(known, _)| *known == identifier);
        let id = match (direction, known) {
            (Direction::ToClient, Some(at)) => self.requests.remove(at).1,
            _ => {
                let transaction = out.start(AppProtocol::Modbus);
                transaction.record = Record::Modbus(Box::default());
                if direction == Direction::ToClient {
                    transaction.raise("modbus.unsolicited_response");
                    transaction.advance(Direction::ToServer, Progress::Complete);
                }
                transaction.id
            }
        };
        if direction == Direction::ToServer {
            if self.requests.len() >= REQUESTS {
                self.requests.remove(0);
                out.raise("modbus.flooded");
            }
            self.requests.push((identifier, id));
        }
        let Some(transaction) = out.by_id(id) else { return };
        for problem in problems(direction, (unit, function), data, transaction) {
            transaction.raise(problem);
        }
        // Some servers do not check the protocol identifier, so the message is inspected all the same.
        if protocol != 0 {
            transaction.raise("modbus.invalid_protocol_id");
        }
        transaction.publish(Buffer::ModbusData, direction, data);
        transaction.advance(direction, Progress::Complete);
        // An answer with the high bit is an exception (Modbus Application Protocol V1.1b3, section 7).
        if direction == Direction::ToClient && function & 0x80 != 0 {
            transaction.raise("modbus.exception");
        }
        let message = ModbusMessage {
            protocol,
            unit,
            function,
            data: data.to_vec(),
        };
        let mut record = match core::mem::take(&mut transaction.record) {
            Record::Modbus(record) => record,
            _ => Box::<ModbusRecord>::default(),
        };
        record.identifier = identifier;
        record.messages[direction.index()] = Some(message);
        transaction.record = Record::Modbus(record);
    }
}

/// Returns the anomalies of a message with its unit, function and data (Modbus Application Protocol V1.1b3, sections 6 and 7).
fn problems(
    direction: Direction,
    (unit, function): (u8, u8),
    data: &[u8],
    transaction: &Transaction,
) -> Vec<AppEvent> {
    /// Functions that write a value, which the answer repeats: a coil, a register, several of either, and a mask.
    const ECHOED: &[u8] = &[5, 6, 15, 16, 22];
    let word = |at: usize| {
        data.get(at..at + 2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let mut found = Vec::new();
    // Modbus Messaging on TCP/IP Implementation Guide V1.0b, section 4.4.2.1: addresses above 247 are reserved, but for 255.
    if (248..=254).contains(&unit) {
        found.push("modbus.invalid_unit_identifier");
    }
    let is_answer = direction == Direction::ToClient;
    if function == 0 || function & 0x80 != 0 && !is_answer {
        found.push("modbus.invalid_function_code");
    }
    if is_answer && function & 0x80 != 0 {
        if !matches!(data.first(), Some(1..=6 | 8 | 10 | 11)) {
            found.push("modbus.invalid_exception_code");
        }
        return found;
    }
    // The quantity, and the value of a coil, are in the second word.
    let most = match function {
        1 | 2 => 2000,
        3 | 4 => 125,
        15 => 1968,
        16 => 123,
        _ => u16::MAX,
    };
    let is_valid = match (function, is_answer) {
        (5, _) => matches!(word(2), Some(0 | 0xff00)),
        (1..=4, false) | (15 | 16, _) => word(2).is_some_and(|count| (1..=most).contains(&count)),
        _ => true,
    };
    if !is_valid {
        found.push("modbus.invalid_value");
    }
    if is_answer
        && ECHOED.contains(&function)
        && let Some(request) = transaction.buffer(Buffer::ModbusData, Direction::ToServer)
        && !request.starts_with(data)
    {
        found.push("modbus.value_mismatch");
    }
    found
}

impl Parser for Modbus {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = chunk.direction.index();
        self.has_failed[side] |= chunk.gap_before > 0;
        if self.has_failed[side] {
            return Outcome::Continue;
        }
        let mut data = core::mem::take(&mut self.pending[side]);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        while let Some(header) = data[at..].first_chunk::<HEADER>() {
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            if !(2..=LENGTH).contains(&length) {
                // The beginning of the next message is unknown.
                out.raise("modbus.invalid_length");
                return Outcome::Failed;
            }
            let Some(message) = data.get(at..at + HEADER + length) else {
                break;
            };
            self.message(chunk.direction, message, out);
            at += HEADER + length;
        }
        data.drain(..at);
        self.pending[side] = data;
        Outcome::Continue
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}

    fn is_strict(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of Modbus Application Protocol V1.1b3, section 6.3, after a header, and an exception to function 6.
    const REQUEST: &[u8] = b"\x00\x07\x00\x00\x00\x06\x01\x03\x00\x6b\x00\x03";
    const RESPONSE: &[u8] = b"\x00\x07\x00\x00\x00\x09\x01\x03\x06\x02\x2b\x00\x00\x00\x64";
    const EXCEPTION: &[u8] = b"\x00\x08\x00\x00\x00\x03\x01\x86\x02";

    fn run(messages: &[(Direction, &[u8])], step: usize) -> Transactions {
        let (mut modbus, mut out) = (Modbus::default(), Transactions::default());
        for (direction, bytes) in messages {
            for bytes in bytes.chunks(step) {
                let chunk = StreamChunk::of(*direction, bytes);
                assert_eq!(modbus.data(chunk, &mut out), Outcome::Continue);
            }
        }
        out
    }

    #[test]
    fn a_request_and_its_answer_are_a_transaction() {
        let messages = [
            (Direction::ToServer, REQUEST),
            (Direction::ToClient, RESPONSE),
            (Direction::ToClient, EXCEPTION),
        ];
        for step in 1..RESPONSE.len() {
            let out = run(&messages, step);
            assert_eq!(out.list.len(), 2);
            let first = &out.list[0];
            assert!(first.is_complete());
            assert_eq!(
                first.buffer(Buffer::ModbusData, Direction::ToServer),
                Some(&b"\x00\x6b\x00\x03"[..])
            );
            let Record::Modbus(record) = &first.record else {
                panic!("a record of Modbus")
            };
            let [request, answer] = record.messages.clone().map(Option::unwrap);
            assert_eq!(
                (request.unit, request.function, request.data),
                (1, 3, b"\0\x6b\0\x03".to_vec())
            );
            assert_eq!(
                (answer.unit, answer.function, &answer.data[..1]),
                (1, 3, &[6][..])
            );
            assert_eq!(
                out.list[1].events,
                ["modbus.unsolicited_response", "modbus.exception"]
            );
        }
    }

    #[test]
    fn a_message_of_another_protocol_is_an_event_and_hides_neither_itself_nor_the_next() {
        let other = b"\0\x06\0\x01\0\x06\x01\x05\0\xac\xff\0";
        let out = run(&[(Direction::ToServer, &[other, REQUEST].concat())], 5);
        assert_eq!(out.list[0].events, ["modbus.invalid_protocol_id"]);
        let data = |at: usize| out.list[at].buffer(Buffer::ModbusData, Direction::ToServer);
        assert_eq!(data(0), Some(&b"\0\xac\xff\0"[..]));
        assert_eq!(data(1), Some(&b"\x00\x6b\x00\x03"[..]));
    }

    #[test]
    fn a_length_that_no_message_has_is_an_error_of_the_protocol() {
        for length in [[0, 0], [0, 1], [0, 255], [1, 0]] {
            let (mut modbus, mut out) = (Modbus::default(), Transactions::default());
            let bytes = [&[0, 1, 0, 0][..], &length, REQUEST].concat();
            let outcome = modbus.data(StreamChunk::of(Direction::ToServer, &bytes), &mut out);
            assert_eq!((outcome, modbus.is_strict()), (Outcome::Failed, true));
            assert_eq!(out.events, ["modbus.invalid_length"]);
        }
    }
}
