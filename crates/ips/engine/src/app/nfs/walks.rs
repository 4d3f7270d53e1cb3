//! The walks over the operations of a COMPOUND, and what the results of a reply are for.

use super::bytes::Bytes;
use super::handles::{Handle, Name};
use super::rpc::Protection;
use crate::app::heap::{Heap, heap};
use crate::app::record::Fields;

/// The purpose of the result of an operation.
#[derive(Debug, Clone)]
pub(super) enum Note {
    /// It is the handle of a name, which had a temporary handle.
    Handle(Handle, Name),
    /// It has bytes of the file from this offset on.
    Read(Handle, u64, Name),
    /// The file is closed.
    Close(Handle),
    /// The bytes that were written are stable.
    Commit(Handle),
}

/// An operation of a call whose result is expected, by its position.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) position: u32,
    pub(super) note: Note,
}

impl Heap for Expected {
    fn heap(&self) -> usize {
        match &self.note {
            Note::Handle(_, name) | Note::Read(_, _, name) => name.heap(),
            Note::Close(_) | Note::Commit(_) => 0,
        }
    }
}

/// The current file of an operation.
#[derive(Debug, Clone, Default)]
pub(super) struct Current {
    pub(super) handle: Option<Handle>,
    pub(super) name: Name,
}

impl Current {
    /// Returns the handle, or one for the file that is not known.
    pub(super) fn handle(&self) -> Handle {
        self.handle.unwrap_or_else(|| Handle::named(None, b""))
    }
}

/// The walk over the operations of a call.
#[derive(Debug)]
pub(super) struct CallWalk {
    pub(super) transaction: u64,
    pub(super) identifier: u32,
    pub(super) protection: Protection,
    pub(super) rpc: Fields,
    /// The number of operations that follow, and the position of the next.
    pub(super) left: u32,
    pub(super) position: u32,
    pub(super) current: Current,
    pub(super) saved: Current,
    pub(super) expected: Vec<Expected>,
    /// The bit of each operation that the transaction has as a number.
    pub(super) seen: u128,
    /// The operation that the record names, with its rank.
    pub(super) main: Option<(u8, u32)>,
    pub(super) main_file: Current,
    pub(super) names: [Name; 2],
}

heap!(CallWalk { rpc, expected });

/// The walk over the results of a reply.
#[derive(Debug)]
pub(super) struct ReplyWalk {
    pub(super) transaction: Option<u64>,
    pub(super) rpc: Fields,
    pub(super) left: u32,
    pub(super) position: u32,
    pub(super) expected: Vec<Expected>,
}

heap!(ReplyWalk { rpc, expected });

/// How far a part of a message was read.
pub(super) enum Read {
    /// The operations are read, or the others have no known form.
    Whole,
    /// The bytes of a file follow, and then the other operations.
    Bytes(Bytes),
}
