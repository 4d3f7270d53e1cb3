//! Further readings of a message that recipients read in different ways.
//!
//! ```text
//!  bytes ─▶ RequestSide, ResponseSide: the tolerant reading ── a place in which recipients differ ──▶ Fork
//!    │                                                                                                 │ replays the message
//!    └──────────────────────────────────────────▶ Alternative, Alternative, …  ◀───────────────────────┘
//! ```
//!
//! Each alternative is a parser of its own, with transactions of its own: the rules see what each recipient would see. It
//! begins with the first byte of the message, and gets all later bytes of the direction. An alternative with other lines may
//! fork once more where its message ends.
//!
//! A parser stops at a fork, and while there are alternatives, all parsers of a direction take the same bytes in turn: runs
//! without line ends, and line ends one by one. Forks happen between these, so that the transactions, their order, and the
//! alternatives that make room for others are the same for any segmentation.

use super::headers::Lines;
use super::request::RequestSide;
use super::response::ResponseSide;
use super::{Pairing, Waiting};
use crate::app::AppProtocol;
use crate::app::AppSettings;
use crate::app::heap::{Heap, heap};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;

/// Largest number of alternatives of a direction at a time. Those of a later message replace the oldest.
const ALTERNATIVES_MAX: usize = 12;

/// The end of a body, if not its headers decide about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// The message ends with its headers.
    None,
    Chunked,
    Sized(u64),
    /// All later bytes are the body, as they are.
    Plain,
}

/// The ways in which a parser differs from the usual one of its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reading {
    /// The ends of lines, if they are not the usual ones.
    pub(super) lines: Option<Lines>,
    /// True if a line of white space ends the headers.
    pub(super) blank_ends_headers: bool,
    /// True if lines before the status line are skipped.
    pub(super) skips_lines: bool,
    /// True if a request without protocol ends with its line.
    pub(super) is_http_09: bool,
    /// The framing of the first message.
    pub(super) framing: Option<Framing>,
}

/// The position of a parser in its stream, as far as it is known: lost bytes end the further readings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    /// Offset of the next byte that is parsed.
    pub(super) next: u64,
    /// Bytes from `next` on that the step in progress takes.
    pub(super) ahead: u64,
    /// Offset of the first byte of the message in progress.
    pub(super) begin: u64,
    /// Offset of the first message, if the parser is that of a further reading, and did not begin.
    first: Option<u64>,
}

impl Position {
    /// Begins a message with the next byte, and returns its offset.
    pub(super) fn start(&mut self) -> u64 {
        self.begin = self.first.take().unwrap_or(self.next);
        self.begin
    }

    /// Moves past the bytes of a step.
    pub(super) fn advance(&mut self, size: usize) {
        self.next += size as u64;
        self.ahead = 0;
    }

    /// Returns the offsets of the message in progress and of the byte behind the step in progress.
    pub(super) fn of_fork(&self) -> (u64, u64) {
        (self.begin, self.next + self.ahead)
    }
}

/// A message with several readings: its bytes so far, and the further readings.
#[derive(Debug, Default)]
struct Fork {
    /// Offset of the first byte of the message in the stream.
    begin: u64,
    /// Offset of the byte behind `head`.
    at: u64,
    /// The bytes of the message up to the fork.
    head: Vec<u8>,
    /// The bytes behind the fork that the parser has consumed, or holds.
    rest: Vec<u8>,
    readings: Vec<Reading>,
    /// The request that a response answers.
    waiting: Option<Waiting>,
}

/// The further readings of the last messages of a direction that are due.
#[derive(Debug, Default)]
pub(super) struct Forks {
    list: Vec<Fork>,
    /// The kinds of readings that the message in progress has.
    has: [bool; Kind::LEN],
}

heap!(Fork { head, rest });
heap!(Forks { list });

/// A kind of place in which recipients differ: each has its readings, once in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The ends of lines.
    Lines,
    /// The end of the message.
    End,
    /// A line between chunks.
    Chunk,
    /// The beginning of the message.
    Start,
}

impl Kind {
    const LEN: usize = 4;
}

impl Forks {
    /// Notes that another message begins.
    pub(super) fn begin(&mut self) {
        self.has = Default::default();
    }

    /// Adds readings of the message in progress, which differ from `own` in what they have. `head` has the bytes of the message
    /// that were consumed before this step, and those of this step; the message begins at offset `begin`, and the next byte
    /// is at offset `at`.
    pub(super) fn add(
        &mut self,
        own: Reading,
        kind: Kind,
        (begin, at): (u64, u64),
        head: &[&[u8]],
        waiting: Option<&Waiting>,
        readings: impl IntoIterator<Item = Reading>,
    ) {
        if core::mem::replace(&mut self.has[kind as usize], true) {
            return;
        }
        self.list.push(Fork {
            begin,
            at,
            head: head.concat(),
            rest: Vec::new(),
            readings: readings
                .into_iter()
                .map(|reading| Reading {
                    framing: reading.framing.or(own.framing),
                    lines: reading.lines.or(own.lines),
                    blank_ends_headers: reading.blank_ends_headers || own.blank_ends_headers,
                    skips_lines: reading.skips_lines || own.skips_lines,
                    is_http_09: reading.is_http_09 || own.is_http_09,
                })
                .collect(),
            waiting: waiting.cloned(),
        });
    }

    /// Gives the forks bytes that follow them.
    pub(super) fn follow(&mut self, bytes: &[u8]) {
        for fork in &mut self.list {
            fork.rest.extend_from_slice(bytes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns true if the message in progress has readings of a kind.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.has[kind as usize]
    }
}

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

/// Returns a reading with another end of the first message.
pub(super) fn framed(framing: Framing) -> Reading {
    Reading {
        framing: Some(framing),
        ..Reading::default()
    }
}

/// Returns the readings in which lines end otherwise than usual, and in which a line of white space ends the headers.
pub(super) fn of_lines(usual: Lines) -> impl Iterator<Item = Reading> {
    let others = [Lines::Lf, Lines::CrOrLf, Lines::CrLf].into_iter();
    let others = others.filter(move |lines| *lines != usual).map(|lines| Reading {
        lines: Some(lines),
        ..Reading::default()
    });
    others.chain([Reading {
        lines: Some(Lines::CrOrLf),
        blank_ends_headers: true,
        ..Reading::default()
    }])
}

/// Returns the readings of chunks from a line on: with other line ends, and with these ends of the message.
pub(super) fn other_chunks(usual: Lines, others: &[Framing]) -> Vec<Reading> {
    let lines = match usual {
        Lines::Lf | Lines::CrLf => Lines::CrOrLf,
        Lines::CrOrLf => Lines::Lf,
    };
    let with_lines = Reading {
        lines: Some(lines),
        ..framed(Framing::Chunked)
    };
    others
        .iter()
        .map(|framing| framed(*framing))
        .chain([with_lines])
        .collect()
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
