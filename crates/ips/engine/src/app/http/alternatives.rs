//! The parsers of the further readings of messages.
//!
//! Each alternative is a parser of its own, with transactions of its own: the rules see what each recipient would see. It
//! begins with the first byte of the message, and gets all later bytes of the direction. An alternative with other lines may
//! fork once more where its message ends.
//!
//! A parser stops at a fork, and while there are alternatives, all parsers of a direction take the same bytes in turn: runs
//! without line ends, and line ends one by one. Forks happen between these, so that the transactions, their order, and the
//! alternatives that make room for others are the same for any segmentation.

use super::pairing::{Pairing, Waiting};
use super::readings::{Fork, Forks, Position};
use super::request::RequestSide;
use super::response::ResponseSide;
use crate::app::AppProtocol;
use crate::app::AppSettings;
use crate::app::heap::Heap;
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;

/// Largest number of alternatives of a direction at a time. Those of a later message replace the oldest.
const ALTERNATIVES_MAX: usize = 12;

#[derive(Debug)]
enum Side {
    Request(Box<RequestSide>),
    Response(Box<ResponseSide>),
}

/// The parser of one further reading.
#[derive(Debug)]
struct Alternative {
    side: Side,
    pairing: Pairing,
}

impl Heap for Alternative {
    fn heap(&self) -> usize {
        let side = match &self.side {
            Side::Request(side) => size_of::<RequestSide>() + side.heap(),
            Side::Response(side) => size_of::<ResponseSide>() + side.heap(),
        };
        side + self.pairing.heap()
    }
}

impl Alternative {
    /// Parses the next bytes, and returns the forks among them.
    fn data(&mut self, bytes: &[u8], out: &mut Transactions, settings: &AppSettings) -> Vec<Fork> {
        let mut all = Vec::new();
        let mut held = Vec::new();
        loop {
            let bytes = if all.is_empty() { bytes } else { &held };
            let (forks, pending) = match &mut self.side {
                Side::Request(side) => {
                    side.data(bytes, &mut self.pairing, out, settings);
                    (&mut side.forks, &mut side.pending)
                }
                Side::Response(side) => {
                    side.data(bytes, &mut self.pairing, out, settings);
                    (&mut side.forks, &mut side.pending)
                }
            };
            if forks.is_empty() {
                return all;
            }
            // The parser has stopped: it continues with the bytes behind the fork, as the further readings do.
            held = core::mem::take(pending);
            forks.follow(&held);
            all.append(&mut forks.list);
        }
    }

    fn end(mut self, out: &mut Transactions, settings: &AppSettings) {
        match &mut self.side {
            Side::Request(side) => side.end(&mut self.pairing, out, settings),
            Side::Response(side) => side.end(&mut self.pairing, out, settings),
        }
    }
}

/// The further readings of a connection, by [`Direction::index`].
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    lists: [Vec<Alternative>; 2],
    /// True if the last byte was no line end.
    is_in_run: [bool; 2],
    /// True once an alternative made room for another one.
    #[cfg(test)]
    pub(super) has_replaced: bool,
}

impl Heap for Alternatives {
    fn heap(&self) -> usize {
        self.lists.iter().map(Heap::heap).sum()
    }
}

impl Alternatives {
    /// Returns true if a direction has no alternatives.
    pub(super) fn is_empty(&self, direction: Direction) -> bool {
        self.lists[direction.index()].is_empty()
    }

    /// Returns the number of bytes that all parsers of a direction take before the next ones: all without alternatives,
    /// otherwise a line end, the first byte behind one, or bytes up to the next one.
    pub(super) fn turn(&self, direction: Direction, bytes: &[u8]) -> usize {
        let side = direction.index();
        if self.is_empty(direction) || bytes.is_empty() {
            return bytes.len();
        }
        let run = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
        if self.is_in_run[side] && run > 0 { run } else { 1 }
    }

    /// Passes bytes of a direction to its alternatives.
    pub(super) fn data(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        if let Some(last) = bytes.last() {
            self.is_in_run[direction.index()] = !b"\r\n".contains(last);
        }
        let mut nested = Vec::new();
        for alternative in &mut self.lists[direction.index()] {
            nested.append(&mut alternative.data(bytes, out, settings));
        }
        for fork in nested {
            self.add_fork(direction, &fork, out, settings);
        }
    }

    /// Handles lost bytes of a direction: an alternative begins with a whole message, so it ends here.
    pub(super) fn gap(&mut self, direction: Direction, out: &mut Transactions, settings: &AppSettings) {
        self.end(direction, out, settings);
    }

    /// Ends the alternatives of a direction.
    pub(super) fn end(&mut self, direction: Direction, out: &mut Transactions, settings: &AppSettings) {
        for alternative in self.lists[direction.index()].drain(..) {
            alternative.end(out, settings);
        }
    }

    /// Adds the readings of messages.
    #[cold]
    pub(super) fn add(
        &mut self,
        direction: Direction,
        forks: &mut Forks,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        for fork in core::mem::take(&mut forks.list) {
            self.add_fork(direction, &fork, out, settings);
        }
    }

    fn add_fork(
        &mut self,
        direction: Direction,
        fork: &Fork,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        let mut nested = Vec::new();
        let list = &mut self.lists[direction.index()];
        let position = Position {
            next: fork.at.saturating_sub(fork.head.len() as u64),
            first: Some(fork.begin),
            ..Position::default()
        };
        for reading in &fork.readings {
            if list.len() >= ALTERNATIVES_MAX {
                list.remove(0).end(out, settings);
                #[cfg(test)]
                {
                    self.has_replaced = true;
                }
            }
            let mut pairing = Pairing::default();
            let side = match direction {
                Direction::ToServer => Side::Request(Box::new(RequestSide::reading(*reading, position))),
                Direction::ToClient => {
                    let transaction = out.start(AppProtocol::Http);
                    transaction.is_reading = true;
                    transaction.advance(Direction::ToServer, Progress::Complete);
                    pairing.push(Waiting {
                        transaction: transaction.id,
                        ..fork.waiting.clone().unwrap_or_default()
                    });
                    Side::Response(Box::new(ResponseSide::reading(*reading, position)))
                }
            };
            let mut alternative = Alternative { side, pairing };
            let whole = [&fork.head[..], &fork.rest].concat();
            nested.append(&mut alternative.data(&whole, out, settings));
            list.push(alternative);
        }
        for fork in nested {
            self.add_fork(direction, &fork, out, settings);
        }
    }
}
