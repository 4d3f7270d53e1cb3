//! Application protocols: detection of the protocol, parsers, transactions and their buffers.

use millrace_ips_rules::buffers::Buffer;

use crate::detect;
use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

/// An application protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AppProtocol {
    /// HTTP 1.
    Http,
    /// DNS over UDP or TCP.
    Dns,
    /// TLS.
    Tls,
    /// The bytes are of no known protocol.
    Failed,
}

/// The progress of a transaction in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Progress {
    /// No byte was parsed.
    #[default]
    Idle,
    /// The first line or header is being parsed.
    Started,
    /// The headers are complete.
    Headers,
    /// The body is being parsed.
    Body,
    /// The direction is complete.
    Complete,
}

/// An instance of a buffer of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct BufferView<'a> {
    /// The bytes that are there.
    pub bytes: &'a [u8],
    /// Offset of `bytes[0]` in the whole buffer, if earlier bytes are not kept.
    pub offset: u64,
    /// True if no byte follows.
    pub is_complete: bool,
}

/// One request and its answer, or the unit that a protocol has instead.
#[derive(Debug)]
pub struct Transaction {
    /// Number in the flow, from 0.
    pub id: u64,
    /// The protocol.
    pub app: AppProtocol,
    /// Progress by [`Direction::index`].
    pub progress: [Progress; 2],
    /// State of detection.
    pub detect: detect::TransactionState,
}

impl Transaction {
    /// Returns the instances of a buffer in a direction that exist so far.
    pub fn buffers(&self, _buffer: Buffer, _direction: Direction) -> impl Iterator<Item = BufferView<'_>> {
        core::iter::empty()
    }
}

/// The transactions of a flow that are not finished, or not inspected to their end.
#[derive(Debug, Default)]
pub struct Transactions {
    /// The transactions in the order of their numbers.
    pub list: Vec<Transaction>,
}

/// A parser of one protocol for one flow.
pub trait Parser: core::fmt::Debug + Send {
    /// Parses the next bytes of a direction.
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions);

    /// Ends a direction: no byte follows.
    fn end(&mut self, direction: Direction, out: &mut Transactions);
}

/// State of the application protocol of a flow.
#[derive(Debug, Default)]
pub struct AppState {
    /// The protocol, once it is known.
    pub protocol: Option<AppProtocol>,
    /// The transactions.
    pub transactions: Transactions,
    /// True by [`Direction::index`] if the parser completed a message, so that raw stream data are inspected at once.
    pub flushes_raw: [bool; 2],
}

impl AppState {
    /// Passes in-order bytes of a TCP stream to the parser, or to protocol detection while there is none.
    pub fn stream(&mut self, _key: &FlowKey, _chunk: StreamChunk<'_>) {}

    /// Passes a datagram to the parser, or to protocol detection while there is none.
    pub fn datagram(&mut self, _key: &FlowKey, _direction: Direction, _payload: &[u8]) {}

    /// Frees the transactions that are complete and inspected.
    pub fn retire(&mut self) {}
}
