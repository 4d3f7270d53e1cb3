//! The interface between a flow and the parser of its protocol.

use super::expectation::Expectation;
use super::heap::Heap;
use super::transaction::Transactions;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The result of parsing bytes of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Parsing continues.
    Continue,
    /// The bytes are not of the protocol, or the bytes after them cannot be parsed.
    Failed,
    /// Parsing stops until the transactions so far are inspected: bytes that waited may be thousands of messages. The bytes are
    /// then passed again in this order, slice by slice, before those that follow.
    Paused {
        /// The bytes that were not consumed, with their directions.
        rest: [(Direction, Vec<u8>); 2],
    },
    /// The flow changes its protocol (CONNECT, STARTTLS, Upgrade); detection begins again with the bytes by
    /// [`Direction::index`] that the parser did not consume.
    Switch {
        /// The bytes that were not consumed.
        rest: [Vec<u8>; 2],
    },
}

/// A parser of one protocol for one flow.
pub trait Parser: core::fmt::Debug + Send + Heap {
    /// Parses the next bytes of a direction.
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome;

    /// Ends a direction: no byte follows.
    fn end(&mut self, direction: Direction, out: &mut Transactions);

    /// Removes and returns the connections that the bytes announced.
    fn expected(&mut self) -> Vec<Expectation> {
        Vec::new()
    }

    /// Returns true if bytes that the parser refuses violate the protocol, and false if they may belong to
    /// another protocol.
    fn is_strict(&self) -> bool {
        false
    }

    /// Returns true if bytes since the last call ended a message that is not a transaction. Raw stream data
    /// are then inspected, as at the end of a transaction.
    fn ends_message(&mut self) -> bool {
        false
    }

    /// Returns the offset in the stream from which the bytes of each direction are encrypted, by [`Direction::index`]. The raw
    /// stream is not searched from there on.
    fn encrypted_from(&self) -> [Option<u64>; 2] {
        [None; 2]
    }
}
