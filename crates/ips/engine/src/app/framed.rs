//! Messages of a stream that begin with their size: the bytes of each direction are joined to whole messages.

use data_encoding::HEXLOWER;

use super::AppProtocol;
use super::heap::heap;
use super::parser::Outcome;
use super::record::{Fields, Record};
use super::transaction::{Progress, Transaction, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The size of a message, as its first bytes tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are no message.
    Invalid,
    /// The size of the message with its header, in bytes.
    Known(usize),
}

/// Largest number of bytes of a message that are kept and parsed; the rest is skipped.
pub(super) const KEPT: usize = 64 << 10;

#[derive(Debug, Default)]
struct Side {
    pending: Vec<u8>,
    /// Bytes of the message in progress that are skipped.
    left: usize,
    /// True behind lost bytes, until the next message is found.
    is_searching: bool,
}

heap!(Side { pending });

/// The messages of a connection.
#[derive(Debug, Default)]
pub(super) struct Framed {
    sides: [Side; 2],
}

heap!(Framed { sides });

impl Framed {
    /// Adds bytes, and calls `take` for each whole message, and for the first [`KEPT`] bytes of a longer one. `size` returns the
    /// size of the message that begins with the given bytes; it is called with at least one byte, and works on a header of fixed
    /// size. `take` returns false if the bytes are no message.
    ///
    /// Each byte is copied at most twice, whatever the segmentation.
    pub(super) fn add(
        &mut self,
        chunk: StreamChunk<'_>,
        size: impl Fn(&[u8]) -> Size,
        take: impl FnMut(&[u8]) -> bool,
    ) -> Outcome {
        // Behind lost bytes, the next message cannot be found.
        self.add_searching(chunk, |bytes| (bytes.len(), false), size, take)
    }

    /// Adds bytes as [`Framed::add`] does, and looks for the next message behind lost bytes: `find` returns its position and true, or
    /// the position from which on more bytes may show one and false.
    pub(super) fn add_searching(
        &mut self,
        chunk: StreamChunk<'_>,
        find: impl Fn(&[u8]) -> (usize, bool),
        size: impl Fn(&[u8]) -> Size,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Outcome {
        let side = &mut self.sides[chunk.direction.index()];
        let mut bytes = chunk.bytes;
        if chunk.gap_before > side.left as u64 {
            *side = Side {
                is_searching: true,
                ..Side::default()
            };
        } else {
            side.left -= chunk.gap_before as usize;
        }
        if side.is_searching {
            side.pending.extend_from_slice(bytes);
            let (at, is_found) = find(&side.pending);
            side.pending.drain(..at.min(side.pending.len()));
            if !is_found {
                return Outcome::Continue;
            }
            side.is_searching = false;
            bytes = &[];
        }
        let skipped = side.left.min(bytes.len());
        side.left -= skipped;
        bytes = &bytes[skipped..];
        if side.pending.is_empty() {
            let used = match consume(side, bytes, &size, &mut take) {
                Some(used) => used,
                None => return Outcome::Failed,
            };
            side.pending.extend_from_slice(&bytes[used.min(bytes.len())..]);
            return Outcome::Continue;
        }
        let mut pending = core::mem::take(&mut side.pending);
        pending.extend_from_slice(bytes);
        let used = match consume(side, &pending, &size, &mut take) {
            Some(used) => used,
            None => return Outcome::Failed,
        };
        pending.drain(..used.min(pending.len()));
        side.pending = pending;
        Outcome::Continue
    }

    /// Returns the bytes of a direction that belong to no whole message.
    pub(super) fn waiting(&self, direction: Direction) -> &[u8] {
        &self.sides[direction.index()].pending
    }

    /// Removes and returns the bytes of a direction that belong to no whole message.
    pub(super) fn rest(&mut self, direction: Direction) -> Vec<u8> {
        core::mem::take(&mut self.sides[direction.index()].pending)
    }
}

/// Takes the messages at the beginning of the bytes, and returns their size; `None` if the bytes are no message.
fn consume(
    side: &mut Side,
    bytes: &[u8],
    size: &impl Fn(&[u8]) -> Size,
    take: &mut impl FnMut(&[u8]) -> bool,
) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let size = match size(rest) {
            Size::Incomplete => return Some(at),
            Size::Invalid => return None,
            Size::Known(size) => size.max(1),
        };
        let kept = size.min(KEPT);
        let Some(message) = rest.get(..kept) else {
            return Some(at);
        };
        if !take(message) {
            return None;
        }
        let skipped = size.min(rest.len());
        side.left = size - skipped;
        at += skipped;
    }
    Some(at)
}

/// Adds a transaction that consists of one message.
pub(super) fn message(app: AppProtocol, direction: Direction, out: &mut Transactions) -> &mut Transaction {
    let transaction = out.start(app);
    transaction.record = Record::Fields(Box::<Fields>::default());
    for side in Direction::BOTH {
        transaction.advance(side, Progress::Complete);
    }
    // The message has one direction, so the other direction counts as inspected.
    transaction.is_inspected[direction.reverse().index()] = true;
    transaction
}

/// Adds to the fields of a transaction.
pub(super) fn fields(transaction: &mut Transaction, write: impl FnOnce(&mut Fields)) {
    if !matches!(transaction.record, Record::Fields(_)) {
        transaction.record = Record::Fields(Box::default());
    }
    if let Record::Fields(fields) = &mut transaction.record {
        write(fields);
    }
}

/// Removes a number of bytes from the front of a text.
pub(super) fn take<'a>(bytes: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    Some(front)
}

/// Removes a big-endian number of one to eight bytes from the front.
pub(super) fn number(bytes: &mut &[u8], size: usize) -> Option<u64> {
    let digits = take(bytes, size)?;
    Some(digits.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Removes a little-endian number of one to eight bytes from the front.
pub(super) fn little(bytes: &mut &[u8], size: usize) -> Option<u64> {
    let digits = take(bytes, size)?;
    Some(
        digits
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
    )
}

/// Returns bytes as pairs of hexadecimal digits with colons between them.
pub(super) fn colons(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> Vec<u8> {
    HEXLOWER.encode(bytes).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: &[u8]) -> Size {
        match *bytes {
            [high, low, ..] => Size::Known(2 + usize::from(u16::from_be_bytes([high, low]))),
            _ => Size::Incomplete,
        }
    }

    #[test]
    fn messages_are_whole_in_any_segmentation() {
        let bytes = b"\0\x03abc\0\0\0\x01x\0\x05hello";
        for step in 1..=bytes.len() {
            let mut framed = Framed::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                let chunk = StreamChunk::of(Direction::ToServer, piece);
                framed.add(chunk, size, |message| {
                    found.push(message[2..].to_vec());
                    true
                });
            }
            assert_eq!(found, [&b"abc"[..], b"", b"x", b"hello"], "{step}");
        }
    }

    #[test]
    fn a_long_message_is_cut_and_the_next_one_is_found() {
        let big = |bytes: &[u8]| match bytes.first_chunk::<4>() {
            Some(size) => Size::Known(4 + u32::from_be_bytes(*size) as usize),
            None => Size::Incomplete,
        };
        let mut bytes = 200_000u32.to_be_bytes().to_vec();
        bytes.resize(bytes.len() + 200_000, b'x');
        bytes.extend(b"\0\0\0\x01y");
        for step in [1000, 70_000, bytes.len()] {
            let mut framed = Framed::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                framed.add(StreamChunk::of(Direction::ToClient, piece), big, |message| {
                    found.push(message.len());
                    true
                });
                assert!(framed.sides[1].pending.capacity() <= 2 * (KEPT + step));
            }
            assert_eq!(found, [KEPT, 5], "{step}");
        }
    }

    #[test]
    fn a_gap_inside_a_skipped_part_loses_no_message() {
        let mut framed = Framed::default();
        let mut found = 0;
        let mut add = |bytes: &[u8], gap_before| {
            let chunk = StreamChunk {
                gap_before,
                ..StreamChunk::of(Direction::ToServer, bytes)
            };
            let big = |bytes: &[u8]| match bytes.first_chunk::<4>() {
                Some(size) => Size::Known(4 + u32::from_be_bytes(*size) as usize),
                None => Size::Incomplete,
            };
            framed.add(chunk, big, |_| {
                found += 1;
                true
            });
            found
        };
        let first = [&100_000u32.to_be_bytes()[..], &vec![0; KEPT]].concat();
        assert_eq!(add(&first, 0), 1);
        let left = 100_000 - KEPT as u64;
        assert_eq!(add(b"\0\0\0\0", left), 2);
        assert_eq!(add(b"\0\0\0\0", 1), 2);
    }
}
