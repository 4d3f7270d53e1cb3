//! The boundaries of a protocol's units, and the frames that begin in a unit.

use millrace_ips_rules::buffers::Buffer;

use super::set::FrameSet;
use super::view::FrameView;
use crate::app::AppProtocol;
use crate::app::heap::Heap;
use crate::app::transaction::{Progress, Transaction};
use crate::flow::Direction;

/// Largest number of bytes that wait for the size of a unit.
pub(super) const HEAD: usize = 1024;

/// Largest number of bytes that wait for the other direction.
pub(super) const AHEAD: usize = 32 << 10;

/// Largest number of frames of a direction that are incomplete at a time. Frames nest at most five times.
const OPEN: usize = 8;

/// The unit that begins at a position of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// More bytes are needed, at most [`HEAD`].
    More,
    /// The message of the other direction comes first; at most [`AHEAD`] bytes wait for it.
    Turn,
    /// The number of bytes up to the next unit, which may be more than have come.
    Unit(u64),
    /// The bytes are not of the protocol, or no more frames follow.
    Stop,
}

/// The boundaries of a protocol.
pub(super) trait Units: core::fmt::Debug + Send + Heap {
    /// Finds the unit that begins with the bytes, and the frames that begin in it. A unit whose frames have no known size may be
    /// as long as the bytes: the next call then goes on.
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step;

    /// Returns true if bytes of a direction may wait for those of the other.
    fn takes_turns(&self) -> bool {
        false
    }
}

/// The frames that a unit begins and ends.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) wanted: FrameSet,
    pub(super) open: &'a mut Vec<Open>,
    /// Offset in the stream of the first byte of the unit.
    pub(super) at: u64,
    pub(super) next: Next<'a>,
    /// True if the bytes are a datagram.
    pub(super) is_datagram: bool,
}

impl Found<'_> {
    /// Adds a frame from an offset in the unit on; without a size, until [`Found::close`] ends it.
    pub(super) fn frame(&mut self, kind: Buffer, from: u64, size: impl Into<Option<u64>>) {
        if !self.wanted.has(kind) || self.open.len() >= OPEN {
            return;
        }
        let begin = self.at + from;
        let mut open = self.next.frame(kind, begin, size.into());
        if let Some(view) = open.transaction.frame.as_mut().filter(|_| self.is_datagram) {
            view.begin = None;
        }
        self.open.push(open);
    }

    /// Ends the frames of a kind that have no size, a number of bytes behind the beginning of the unit.
    pub(super) fn close(&mut self, kind: Buffer, behind: u64) {
        let end = self.at + behind;
        for open in self.open.iter_mut() {
            if let Some(frame) = &mut open.transaction.frame
                && frame.kind == kind
            {
                frame.size.get_or_insert(end.saturating_sub(open.begin));
            }
        }
    }
}

/// The numbers of the next frames of a direction.
#[derive(Debug)]
pub(super) struct Next<'a> {
    pub(super) id: &'a mut u64,
    pub(super) direction: Direction,
    pub(super) app: AppProtocol,
}

impl Next<'_> {
    /// Returns a frame that begins at an offset of the stream.
    pub(super) fn frame(&mut self, kind: Buffer, begin: u64, size: Option<u64>) -> Open {
        *self.id += 1;
        let mut transaction = Transaction::new(*self.id, self.app);
        let side = self.direction.index();
        transaction.open(kind, None, self.direction, 0);
        transaction.progress[side] = Progress::Started;
        transaction.is_inspected[1 - side] = true;
        transaction.frame = Some(FrameView {
            id: *self.id,
            kind,
            direction: self.direction,
            begin: Some(begin),
            size,
            is_complete: false,
        });
        Open { transaction, begin }
    }
}

/// A frame that has not all its bytes.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) transaction: Transaction,
    /// Offset in the stream of the first byte.
    pub(super) begin: u64,
}
