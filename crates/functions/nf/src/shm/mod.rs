//! The way between a switch and a function in another process: memory that both map.
//!
//! # The protocol
//! A window is an array of places for packets, used one after another, round and round. Two numbers only grow: how many
//! packets the switch has *given*, and with how many the function is *done*. The packet of number n is in place n modulo
//! their count, and so is the answer to it. Between given and done a place is the function's; else it is the switch's. So
//! nothing is allocated, nothing can be freed twice, and an answer says nothing but what becomes of the packet that was
//! given so many ago: there is no index to lie about.
//!
//! A window of places of no size describes packets that stay where they are, in memory of the switch that the function's
//! process maps, too (class `ring`): then no byte is copied, and the function is trusted not to write elsewhere.
//!
//! What one side writes and the other reads goes from core to core by cache lines, and that is most of what a packet
//! costs here: from 50 to 200 ns each, by which cores they are. So four descriptions share a line, and what most functions
//! say of most packets, that they go on as they are, takes a byte, the *note*, which is not even written where it says
//! that already. Only where a note says more there is an *answer* of 16 bytes to be read. What the other end says of how
//! far it is, is read again only when what it said last is used up, and lines to be read are asked for ahead.
//!
//! Stores become visible one after another: one to a line that the other core has holds up all that follow. But of those
//! that wait (64 or so) the lines are fetched side by side; so the switch describes a burst by one store a packet and
//! nothing between them, which takes a third of the time. To ask for these lines as one's own (`prefetchw`) helps less,
//! and only shortly before; stores past the caches cost the same near and far, but more than these where cores are near.
//!
//! # What is believed
//! The function believes the switch. The switch believes nothing: `done` that goes back, or beyond what was given, is a
//! [`Lie`], and so is an answer whose bytes are not within its place. The switch keeps the packet itself all the while.

mod function;
mod region;
mod switch;

pub use function::FunctionEnd;
pub use region::{PacketMemory, Region};
pub use switch::{Answer, Place, SwitchEnd};

use thiserror::Error;

use crate::function::Direction;
use crate::slot::BURST;

/// What is at the beginning: tells a window of this version from other memory.
const MAGIC: u64 = 0x6d69_6c6c_7261_6333;

/// Places of the numbers that both sides know.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const PLACES: usize = 8;
    pub(super) const PLACE_SIZE: usize = 16;
    /// Not zero: the function is to end.
    pub(super) const STOP: usize = 24;
    /// Written by the switch.
    pub(super) const GIVEN: usize = 128;
    /// Written by the function.
    pub(super) const DONE: usize = 256;
    /// Written by the function: grows as long as it lives. Not in the line before, which the switch reads all the time.
    pub(super) const HEARTBEAT: usize = 384;
    /// Written by the function: its counters.
    pub(super) const COUNTERS: usize = 512;
    /// Descriptions of packets; then notes, answers, and places.
    pub(super) const DESCRIPTIONS: usize = 4096;
}

/// Counters that a function can show.
const COUNTERS_MAX: usize = 64;
/// Bytes of a description: what it is ([`Given`]), and the address of its place, where that is not in the window.
const DESCRIPTION_SIZE: usize = 16;
/// Bytes that go from core to core together.
const LINE: usize = 64;
/// Bytes of an answer: where the packet begins in its place and its size, and the verdict.
const ANSWER_SIZE: usize = 16;
/// The note of a packet that goes on to the next hop, and begins and ends where it did.
const AS_IT_WAS: u8 = 0;
/// That of one of which the answer tells.
const CHANGED: u8 = 1;
/// Free bytes in front of a packet.
const HEADROOM: usize = 128;

/// The process at the other end does not keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Lie {
    /// It is done with packets that it was not given, or no longer done with some.
    #[error("done with {done} packets, of {given} given and {taken} taken back")]
    Done {
        /// What it says.
        done: u64,
        /// Packets given.
        given: u64,
        /// Packets taken back.
        taken: u64,
    },
    /// The packet would not lie within its place.
    #[error("a packet of {size} bytes at {start} in a place of {place_size}")]
    Bytes {
        /// Where it would begin.
        start: u64,
        /// Its size.
        size: u64,
        /// Bytes of the place.
        place_size: usize,
    },
}

/// The two halves of a number.
const fn halves(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// How a window is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// A power of two.
    places: usize,
    place_size: usize,
}

impl Layout {
    fn size(self) -> usize {
        self.first_place() + self.places * self.place_size
    }

    /// Notes take as many lines as they need, so that what follows begins with one.
    const fn notes_size(self) -> usize {
        self.places.next_multiple_of(64)
    }

    const fn first_note(self) -> usize {
        at::DESCRIPTIONS + self.places * DESCRIPTION_SIZE
    }

    const fn first_answer(self) -> usize {
        self.first_note() + self.notes_size()
    }

    const fn first_place(self) -> usize {
        self.first_answer() + self.places * ANSWER_SIZE
    }

    /// The place of a packet in the array, which is of a power of two: both sides see to that, and a mask costs nothing,
    /// while a division costs more than all else that is done with a description.
    #[inline]
    fn index(self, number: u64) -> usize {
        number as usize & (self.places - 1)
    }

    #[inline]
    fn description(self, number: u64) -> usize {
        at::DESCRIPTIONS + self.index(number) * DESCRIPTION_SIZE
    }

    /// The places of the lines with the descriptions of so many packets from one on, of a burst at most.
    #[inline]
    fn description_lines(self, number: u64, packets: usize) -> impl Iterator<Item = usize> {
        let (first, size) = (
            self.index(number) * DESCRIPTION_SIZE,
            self.places * DESCRIPTION_SIZE,
        );
        let last = first + packets.min(BURST) * DESCRIPTION_SIZE;
        (first & !(LINE - 1)..last)
            .step_by(LINE)
            .map(move |at| at::DESCRIPTIONS + (at & (size - 1)))
    }

    #[inline]
    fn note(self, number: u64) -> usize {
        self.first_note() + self.index(number)
    }

    #[inline]
    fn answer(self, number: u64) -> usize {
        self.first_answer() + self.index(number) * ANSWER_SIZE
    }

    #[inline]
    fn place(self, number: u64) -> usize {
        self.first_place() + self.index(number) * self.place_size
    }
}

/// What is said of a packet that is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Given {
    /// Where it begins in its place.
    start: u16,
    /// Its size there.
    size: u16,
    /// Its size in all segments: 31 bits.
    total: u32,
    direction: Direction,
}

impl Given {
    const BACKWARD: u64 = 1 << 63;

    #[inline]
    fn to_word(self) -> u64 {
        let backward = if self.direction == Direction::Backward {
            Given::BACKWARD
        } else {
            0
        };
        u64::from(self.start)
            | u64::from(self.size) << 16
            | (u64::from(self.total) << 32 & !Given::BACKWARD)
            | backward
    }

    #[inline]
    fn from_word(word: u64) -> Given {
        Given {
            start: word as u16,
            size: (word >> 16) as u16,
            total: (word >> 32) as u32 & (u32::MAX >> 1),
            direction: match word & Given::BACKWARD {
                0 => Direction::Forward,
                _ => Direction::Backward,
            },
        }
    }
}

#[cfg(test)]
mod tests;
