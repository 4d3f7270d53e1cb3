//! Further readings of a message that recipients read in different ways.
//!
//! ```text
//!  bytes ─▶ RequestSide, ResponseSide: the tolerant reading ── a place in which recipients differ ──▶ Fork
//!    │                                                                                                 │ replays the message
//!    └──────────────────────────────────────────▶ Alternative, Alternative, …  ◀───────────────────────┘
//! ```
//!
//! This file has the forks and their readings; the parsers of the readings are in `alternatives.rs`.

use super::headers::Lines;
use super::pairing::Waiting;
use crate::app::heap::heap;

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
    pub(super) first: Option<u64>,
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
pub(super) struct Fork {
    /// Offset of the first byte of the message in the stream.
    pub(super) begin: u64,
    /// Offset of the byte behind `head`.
    pub(super) at: u64,
    /// The bytes of the message up to the fork.
    pub(super) head: Vec<u8>,
    /// The bytes behind the fork that the parser has consumed, or holds.
    pub(super) rest: Vec<u8>,
    pub(super) readings: Vec<Reading>,
    /// The request that a response answers.
    pub(super) waiting: Option<Waiting>,
}

/// The further readings of the last messages of a direction that are due.
#[derive(Debug, Default)]
pub(super) struct Forks {
    pub(super) list: Vec<Fork>,
    /// The kinds of readings that the message in progress has.
    pub(super) has: [bool; Kind::LEN],
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
