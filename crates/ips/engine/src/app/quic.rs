//! QUIC. The parser reads only the version of Google's QUIC, which precedes RFC 9000.

use super::parser::{Outcome, Parser};
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The first version of Google's QUIC without a byte of private flags between header and frames.
const WITHOUT_PRIVATE_FLAGS: u8 = 34;

/// Bits of the public header of Google's QUIC: a version follows; the connection has a number of eight bytes.
const HAS_VERSION: u8 = 0x01;
const HAS_CONNECTION_ID: u8 = 0x08;
/// Bits that are clear in this header: the long header, and a reset.
const OTHERS: u8 = 0x82;

/// Returns the version of Google's QUIC that a client's datagram names, as 43 for "Q043".
pub(super) fn google_version(data: &[u8]) -> Option<u8> {
    if data[0] & (HAS_VERSION | HAS_CONNECTION_ID | OTHERS) != HAS_VERSION | HAS_CONNECTION_ID {
        return None;
    }
    match data.get(9..13)? {
        [b'Q', b'0', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Some((tens - b'0') * 10 + ones - b'0'),
        _ => None,
    }
}

/// The parser of a flow of Google's QUIC.
#[derive(Debug, Default)]
pub(super) struct Quic;

heap!(Quic {});

impl Parser for Quic {
    fn data(&mut self, chunk: StreamChunk<'_>, _out: &mut Transactions) -> Outcome {
        let version = chunk.bytes.first().and_then(|_| google_version(chunk.bytes));
        match version {
            // The reference was observed to drop flows of Q024 and Q033 in mode `ips`, and none of later versions. Q024 and
            // Q033 have been out of use since 2017.
            Some(version) if version < WITHOUT_PRIVATE_FLAGS => Outcome::Failed,
            _ => Outcome::Continue,
        }
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}

    fn is_strict(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(version: &[u8]) -> Outcome {
        let bytes = [&[0x0d, 1, 2, 3, 4, 5, 6, 7, 8], version, &[1; 32]].concat();
        let chunk = StreamChunk::of(Direction::ToServer, &bytes);
        Quic.data(chunk, &mut Transactions::default())
    }

    #[test]
    fn versions_with_private_flags_are_refused() {
        for version in [b"Q024", b"Q033"] {
            assert_eq!(outcome(version), Outcome::Failed);
        }
        for version in [b"Q034", b"Q043", b"T051"] {
            assert_eq!(outcome(version), Outcome::Continue);
        }
    }

    #[test]
    fn other_datagrams_have_no_version_of_google() {
        for data in [&[0x0d][..], &[0xc3; 40], &[0x09; 12], b"\x0bxxxxxxxxQ024"] {
            assert_eq!(google_version(data), None);
        }
    }
}
