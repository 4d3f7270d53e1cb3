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
    /// The framing of the first message.
    pub(super) framing: Option<Framing>,
}

/// A message with several readings: its bytes so far, and the further readings.
#[derive(Debug, Default)]
struct Fork {
    /// The bytes of the message that the parser has consumed.
    head: Vec<u8>,
    /// The bytes that follow, once they are known.
    rest: Option<Vec<u8>>,
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

heap!(Fork { head });
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

    /// Adds readings of the message in progress, which differ from `own` in what they have. `head` has the bytes of the message that were consumed before this step, and
    /// those of this step.
    pub(super) fn add(
        &mut self,
        own: Reading,
        kind: Kind,
        head: &[&[u8]],
        waiting: Option<&Waiting>,
        readings: impl IntoIterator<Item = Reading>,
    ) {
        if core::mem::replace(&mut self.has[kind as usize], true) {
            return;
        }
        self.list.push(Fork {
            head: head.concat(),
            rest: None,
            readings: readings
                .into_iter()
                .map(|reading| Reading {
                    framing: reading.framing.or(own.framing),
                    lines: reading.lines.or(own.lines),
                    blank_ends_headers: reading.blank_ends_headers || own.blank_ends_headers,
                    skips_lines: reading.skips_lines || own.skips_lines,
                })
                .collect(),
            waiting: waiting.cloned(),
        });
    }

    /// Gives the messages that were forked since the last call the bytes that follow.
    pub(super) fn follow(&mut self, rest: &[u8]) {
        for fork in self.list.iter_mut().filter(|fork| fork.rest.is_none()) {
            fork.rest = Some(rest.to_vec());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
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
    fn forks(&mut self) -> &mut Forks {
        match &mut self.side {
            Side::Request(side) => &mut side.forks,
            Side::Response(side) => &mut side.forks,
        }
    }

    fn data(&mut self, bytes: &[u8], out: &mut Transactions, settings: &AppSettings) {
        match &mut self.side {
            Side::Request(side) => side.data(bytes, &mut self.pairing, out, settings),
            Side::Response(side) => side.data(bytes, &mut self.pairing, out, settings),
        }
    }
}

/// The further readings of a connection, by [`Direction::index`].
#[derive(Debug, Default)]
pub(super) struct Alternatives([Vec<Alternative>; 2]);

impl Heap for Alternatives {
    fn heap(&self) -> usize {
        self.0.iter().map(Heap::heap).sum()
    }
}

impl Alternatives {
    /// Passes bytes of a direction to its alternatives.
    pub(super) fn data(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        let mut nested = Vec::new();
        for alternative in &mut self.0[direction.index()] {
            alternative.data(bytes, out, settings);
            nested.append(&mut alternative.forks().list);
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
        for mut alternative in self.0[direction.index()].drain(..) {
            match &mut alternative.side {
                Side::Request(side) => side.end(&mut alternative.pairing, out, settings),
                Side::Response(side) => side.end(&mut alternative.pairing, out, settings),
            }
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
        let list = &mut self.0[direction.index()];
        for reading in &fork.readings {
            if list.len() >= ALTERNATIVES_MAX {
                list.remove(0);
            }
            let mut pairing = Pairing::default();
            let side = match direction {
                Direction::ToServer => Side::Request(Box::new(RequestSide::reading(*reading))),
                Direction::ToClient => {
                    let transaction = out.start(AppProtocol::Http);
                    transaction.advance(Direction::ToServer, Progress::Complete);
                    pairing.push(Waiting {
                        transaction: transaction.id,
                        ..fork.waiting.clone().unwrap_or_default()
                    });
                    Side::Response(Box::new(ResponseSide::reading(*reading)))
                }
            };
            let mut alternative = Alternative { side, pairing };
            let whole = [&fork.head[..], fork.rest.as_deref().unwrap_or_default()].concat();
            alternative.data(&whole, out, settings);
            let forks = core::mem::take(&mut alternative.forks().list);
            list.push(alternative);
            nested.extend(forks);
        }
        for fork in nested {
            self.add_fork(direction, &fork, out, settings);
        }
    }
}
