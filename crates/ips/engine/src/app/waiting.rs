//! Bytes of a flow that wait, and the parser of a direction that speaks another protocol than the flow.

use super::AppProtocol;
use super::heap::heap;
use super::parser::Parser;
use crate::flow::Direction;

/// Bytes of a chunk that are not parsed yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) direction: Direction,
    /// Offset in the stream of the first byte of `bytes`.
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    /// Number of bytes of `bytes` that are already parsed.
    pub(super) parsed: usize,
    pub(super) gap_before: u64,
    pub(super) is_end: bool,
}

heap!(Held { bytes });

/// The direction that did not identify the protocol, until its own first bytes are identified.
#[derive(Debug)]
pub(super) struct OtherDirection {
    pub(super) direction: Direction,
    pub(super) bytes: Vec<u8>,
}

heap!(OtherDirection { bytes });

/// The parser of a direction that speaks another protocol than the flow.
#[derive(Debug)]
pub(super) struct SecondParser {
    pub(super) direction: Direction,
    pub(super) protocol: AppProtocol,
    pub(super) parser: Box<dyn Parser>,
}
