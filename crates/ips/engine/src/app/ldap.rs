//! LDAP (RFC 4511): the messages of a connection, by the framing of BER. Their contents are not parsed.

use super::parser::{Outcome, Parser};
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest size of a message; longer ones are refused, as directory servers do.
const MESSAGE_SIZE: usize = 16 << 20;
/// Largest size of the header of a message: the tag, and a length of up to four bytes with its count.
const HEADER_SIZE: usize = 6;

/// The first byte of a record of TLS with a handshake message (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// The parse position in the messages of a direction.
#[derive(Debug, Default)]
struct Side {
    /// Bytes of a header that is not complete.
    header: Vec<u8>,
    /// Bytes of the message in progress that are still to come.
    left: usize,
}

heap!(Side { header });

/// The parser of a connection.
#[derive(Debug)]
pub(super) struct Ldap {
    sides: [Side; 2],
    transport: Transport,
}

heap!(Ldap { sides });

/// The header of a message.
#[derive(Debug, PartialEq, Eq)]
enum Header {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are no message.
    Invalid,
    /// The size of the header and the size of the body, in bytes.
    Complete(usize, usize),
}

/// Reads the header of a message: the tag of a sequence, and a length (ITU-T X.690, section 8.1.3).
fn header(bytes: &[u8]) -> Header {
    match *bytes {
        [] | [0x30] => Header::Incomplete,
        [0x30, size @ 0..=0x7f, ..] => Header::Complete(2, usize::from(size)),
        [0x30, count @ 0x81..=0x84, ref rest @ ..] => {
            let count = usize::from(count & 0x7f);
            let Some(digits) = rest.get(..count) else {
                return Header::Incomplete;
            };
            let size = digits
                .iter()
                .fold(0, |size, digit| size << 8 | usize::from(*digit));
            match size <= MESSAGE_SIZE {
                true => Header::Complete(2 + count, size),
                false => Header::Invalid,
            }
        }
        _ => Header::Invalid,
    }
}

impl Ldap {
    pub(super) fn new(transport: Transport) -> Ldap {
        Ldap {
            sides: Default::default(),
            transport,
        }
    }

    /// Adds the transaction of a complete message.
    fn complete(direction: Direction, out: &mut Transactions) {
        let transaction = out.start(AppProtocol::Ldap);
        for side in Direction::BOTH {
            transaction.advance(side, Progress::Complete);
        }
        // A message has one direction, so the other direction counts as inspected.
        transaction.is_inspected[direction.reverse().index()] = true;
    }
}

impl Parser for Ldap {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = &mut self.sides[chunk.direction.index()];
        if chunk.gap_before > 0 {
            if chunk.gap_before > side.left as u64 {
                return Outcome::Failed;
            }
            side.left -= chunk.gap_before as usize;
            if side.left == 0 {
                Ldap::complete(chunk.direction, out);
            }
        }
        let mut bytes = chunk.bytes;
        while !bytes.is_empty() {
            if side.left > 0 {
                let size = side.left.min(bytes.len());
                side.left -= size;
                bytes = &bytes[size..];
                if side.left == 0 {
                    Ldap::complete(chunk.direction, out);
                }
                continue;
            }
            let known = side.header.len();
            side.header
                .extend_from_slice(&bytes[..bytes.len().min(HEADER_SIZE - known)]);
            match header(&side.header) {
                Header::Incomplete => bytes = &[],
                Header::Invalid if side.header[0] == TLS_HANDSHAKE => {
                    // StartTLS (RFC 4511, section 4.14) was accepted.
                    let mut rest = [Vec::new(), Vec::new()];
                    side.header
                        .extend_from_slice(bytes.get(HEADER_SIZE - known..).unwrap_or_default());
                    rest[chunk.direction.index()] = core::mem::take(&mut side.header);
                    return Outcome::Switch { rest };
                }
                Header::Invalid => return Outcome::Failed,
                Header::Complete(size, body) => {
                    bytes = &bytes[size - known..];
                    side.header.clear();
                    side.left = body;
                    if body == 0 {
                        Ldap::complete(chunk.direction, out);
                    }
                }
            }
        }
        // A datagram holds only complete messages.
        if self.transport == Transport::Udp {
            *side = Side::default();
        }
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

    fn feed(parser: &mut Ldap, out: &mut Transactions, bytes: &[u8], step: usize) -> Outcome {
        for piece in bytes.chunks(step) {
            let chunk = StreamChunk::of(Direction::ToServer, piece);
            if parser.data(chunk, out) == Outcome::Failed {
                return Outcome::Failed;
            }
        }
        Outcome::Continue
    }

    #[test]
    fn messages_are_counted_for_any_segmentation() {
        // A bind request, an unbind request, and a message with a length of two bytes.
        let mut bytes =
            b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00\x30\x05\x02\x01\x02\x42\x00".to_vec();
        bytes.extend(b"\x30\x82\x01\x00");
        bytes.resize(bytes.len() + 256, 0);
        for step in 1..bytes.len() {
            let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
            assert_eq!(feed(&mut parser, &mut out, &bytes, step), Outcome::Continue);
            assert_eq!(out.list.len(), 3, "{step}");
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [
            &b"\x31\x00"[..],
            b"\x30\x80",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x00\x00",
        ] {
            let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
            assert_eq!(feed(&mut parser, &mut out, bytes, 2), Outcome::Failed);
        }
    }
}
