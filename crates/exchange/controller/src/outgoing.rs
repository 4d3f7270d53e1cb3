//! Transaction ids, and the bytes that wait to be written to the socket.

use millrace_openflow::{EncodeError, Message, encode};
use millrace_types::Xid;

/// The size of waiting output, in bytes, above which operations write no further requests. One message may
/// exceed it.
const ROOM_SIZE: usize = 64 * 1024;

/// The output of a connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    next_xid: u32,
}

impl Outgoing {
    pub(crate) fn new() -> Outgoing {
        Outgoing {
            bytes: Vec::new(),
            written: 0,
            next_xid: 1,
        }
    }

    /// Returns a new xid. It is never 0, because switches use 0 for asynchronous messages.
    pub(crate) fn xid(&mut self) -> Xid {
        self.reserve(1)
    }

    /// Returns the first of `len` consecutive new xids.
    pub(crate) fn reserve(&mut self, len: u32) -> Xid {
        if self.next_xid.checked_add(len).is_none() {
            self.next_xid = 1;
        }
        let first = self.next_xid;
        self.next_xid += len;
        Xid(first)
    }

    /// Appends a message.
    pub(crate) fn put(&mut self, message: &Message, xid: Xid) -> Result<(), EncodeError> {
        encode(message, xid, &mut self.bytes)
    }

    /// Returns true while operations may write requests.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < ROOM_SIZE
    }

    /// Returns the number of waiting bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    pub(crate) fn wrote(&mut self, size: usize) {
        self.written = (self.written + size).min(self.bytes.len());
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            self.bytes.shrink_to(2 * ROOM_SIZE);
        } else if self.written > ROOM_SIZE {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_are_consecutive_and_never_zero() {
        let mut out = Outgoing::new();
        assert_eq!(out.xid(), Xid(1));
        assert_eq!(out.reserve(10), Xid(2));
        assert_eq!(out.xid(), Xid(12));
        out.next_xid = u32::MAX - 5;
        assert_eq!(out.reserve(6), Xid(1));
        assert_eq!(out.xid(), Xid(7));
    }
}
