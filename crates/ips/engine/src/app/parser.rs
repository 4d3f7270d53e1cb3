//! The interface between a flow and the parser of its protocol.

use super::expectation::Expectation;
use super::heap::Heap;
use super::transaction::Transactions;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The result of parsing bytes of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The parser goes on.
    Continue,
    /// The bytes are not of the protocol, or what follows cannot be parsed.
    Failed,
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

    /// Takes the connections that the bytes announce.
    fn expected(&mut self) -> Vec<Expectation> {
        Vec::new()
    }

    /// Returns true if bytes that the parser refuses are an error of the protocol, and no mistake of its detection.
    fn is_strict(&self) -> bool {
        false
    }

    /// Returns true if the bytes ended a message that is no transaction, since the last call: raw stream data are inspected
    /// behind it, as behind a transaction.
    fn ends_message(&mut self) -> bool {
        false
    }

    /// Returns true once the bytes are encrypted, so that contents of the raw stream are not looked for any more.
    fn is_encrypted(&self) -> bool {
        false
    }
}
