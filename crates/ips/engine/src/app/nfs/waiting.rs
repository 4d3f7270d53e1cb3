//! Calls that wait for their replies.

use super::handles::{Handle, Name};
use super::rpc::Protection;
use super::walks::Expected;
use crate::app::heap::{Heap, heap};

/// The procedure that has operations (RFC 8881, section 16.2).
pub(super) const COMPOUND: u64 = 1;

/// The purpose of the answer to a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// It has the handle of the name.
    Handle(Name),
    /// It has bytes of the file from this offset on.
    Bytes(Handle, u64, Name),
    /// The bytes that were written are stable.
    Commit(Handle),
    Compound(Vec<Expected>),
    Other,
}

impl Heap for Answer {
    fn heap(&self) -> usize {
        match self {
            Answer::Handle(name) | Answer::Bytes(_, _, name) => name.heap(),
            Answer::Compound(expected) => expected.heap(),
            Answer::Commit(_) | Answer::Other => 0,
        }
    }
}

/// A call without a reply.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) identifier: u32,
    /// The transaction of the call, or of the file that it writes.
    pub(super) transaction: Option<u64>,
    pub(super) protection: Protection,
    /// Version and procedure.
    pub(super) procedure: (u64, u64),
    pub(super) answer: Answer,
}

heap!(Waiting { answer });
