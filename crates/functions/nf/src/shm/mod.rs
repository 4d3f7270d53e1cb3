//! The shared-memory ring between a switch and a function in another process.
//!
//! # Protocol
//! The ring, called the *window*, is an array of slots that are used in order. Two counters only grow: the packets that the
//! switch has *given*, and the packets that the function has *done*. Packet n is in slot n modulo the number of slots, and
//! so is its answer. The function owns the slots between `done` and `given`; the switch owns the others. The protocol
//! therefore allocates nothing, frees nothing twice, and has no index that a function could forge.
//!
//! ```text
//!        taken            done                given         taken + slots
//!  --------+----------------+-------------------+----------------+------
//!  switch  | switch: answers| function: packets | switch: free   |
//!  --------+----------------+-------------------+----------------+------
//! ```
//!
//! With slots of size 0, a window holds only descriptors (class `ring`). Packets stay in memory of the switch
//! that the function's process also maps, and the function is trusted with that memory. The first segment of
//! a packet is not copied. Further segments are copied to a separate area, the *tails*, so that functions of
//! every class can read all bytes of a packet. The upper 16 bits of the packet's address then hold the index,
//! from 1, of the 64-byte unit at which its tail begins.
//!
//! # Memory layout
//! ```text
//! 0        128     256    384         512        4096
//! +--------+-------+------+-----------+----------+-------------+-------+---------+-------+---------+---------+
//! | header | given | done | heartbeat | counters | descriptors | notes | answers | slots | records | notices |
//! +--------+-------+------+-----------+----------+-------------+-------+---------+-------+---------+---------+
//! ```
//! `records` is a ring of the function's messages and of its effects other than verdicts. `notices` is a ring
//! of the switch's reports about ended shuns. The module `records` describes both rings.
//!
//! # Cost
//! Most of the cost is the transfer of cache lines between two cores: 50 to 200 ns for each line, depending on the cores.
//! * Four descriptors share a line.
//! * Most functions forward most packets unchanged. That answer takes one byte, the *note*, which is not written again if
//!   the slot already holds it. Only other answers need 16 more bytes.
//! * Each side reads the other's counter only when it has used up the last value, and prefetches the lines that follow.
//! * Stores become visible in order, and a store to a line of the other core delays those after it. The processor fetches
//!   the lines of pending stores (about 64) in parallel. The switch therefore describes a burst with one store for each
//!   packet and nothing in between, which takes a third of the time. `prefetchw` helps less, and only shortly before the
//!   store. Non-temporal stores cost the same between any two cores; between near cores ordinary stores cost less.
//!
//! # Trust
//! The function trusts the switch. The switch trusts nothing: a `done` that decreases or exceeds `given` is a
//! [`ProtocolViolation`], and so is an answer outside of its slot. The switch keeps the packet itself throughout.

mod function;
mod records;
mod region;
mod switch;
mod unordered;

pub use function::FunctionEnd;
pub use records::{MESSAGE_MAX, Record, RecordKind};
pub use region::{PacketMemory, Region};
pub use switch::{Answer, PacketLocation, SwitchEnd};
pub use unordered::{ReceivedPacket, Unordered};

use thiserror::Error;

use crate::function::Direction;
use crate::slot::BURST;

/// The first number of a window; identifies this version of the layout.
const MAGIC: u64 = 0x6d69_6c6c_7261_6335;

/// Offsets of the numbers in a window.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const SLOTS: usize = 8;
    pub(super) const SLOT_SIZE: usize = 16;
    /// A number other than zero tells the function to end.
    pub(super) const STOP: usize = 24;
    /// The number of packets given; written by the switch.
    pub(super) const GIVEN: usize = 128;
    /// The number of notices written; written by the switch.
    pub(super) const NOTICES_WRITTEN: usize = 136;
    /// The number of bytes of records that the switch has read.
    pub(super) const RECORDS_READ: usize = 144;
    /// The fill level of the chain's entry, from 0 to 255.
    pub(super) const LOAD: usize = 152;
    /// The number of packets done; written by the function.
    pub(super) const DONE: usize = 256;
    /// The number of bytes of records that the function has written. It is in the cache line of `DONE`,
    /// because the switch reads both.
    pub(super) const RECORDS_WRITTEN: usize = 264;
    /// Notices that the function has read.
    pub(super) const NOTICES_READ: usize = 320;
    /// Packets that the function could not send.
    pub(super) const REFUSED: usize = 328;
    /// The heartbeat counter, which the function increments. It is not in the cache line of `DONE`, because
    /// the switch reads that line all the time.
    pub(super) const HEARTBEAT: usize = 384;
    /// The number of the source from which the function's shared value was compiled; 0 without a value.
    pub(super) const VALUE: usize = 392;
    /// The number of the last source that the function's process could not compile; 0 if there is none.
    pub(super) const VALUE_FAILED: usize = 400;
    /// The function's counters.
    pub(super) const COUNTERS: usize = 512;
    /// The descriptors, followed by notes, answers and slots.
    pub(super) const DESCRIPTORS: usize = 4096;
}

/// Counters that a window holds.
const COUNTERS_MAX: usize = 64;
/// Bytes of a descriptor: a [`Descriptor`], and the address of the packet if it is not in the window.
const DESCRIPTOR_SIZE: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of an answer: offset and size of the packet in its slot, and the verdict.
const ANSWER_SIZE: usize = 16;
/// The note of a packet that is forwarded to the next hop with its offset and size unchanged.
const UNCHANGED: u8 = 0;
/// The note of a packet whose answer must be read.
const CHANGED: u8 = 1;
/// Bytes of the tails.
const TAILS_SIZE: usize = 1 << 20;
/// Bytes of the unit in which tails are allocated.
const TAIL_UNIT: usize = 64;
/// The number of low bits of a descriptor's second word that hold the address; the upper bits hold the tail's
/// index.
const ADDRESS_BITS: u32 = 48;
/// Free bytes in front of a packet in a slot.
const HEADROOM: usize = 128;

/// The function's process violates the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolViolation {
    /// The function's counter decreased, or exceeds the packets that it was given.
    #[error("it reports {done} packets done, of {given} given and {taken} taken back")]
    Done {
        /// The reported counter.
        done: u64,
        /// Packets given.
        given: u64,
        /// Packets taken back.
        taken: u64,
    },
    /// The packet of an answer exceeds its slot.
    #[error("it reports a packet of {size} bytes at {start} in a slot of {slot_size} bytes")]
    Bytes {
        /// The reported offset.
        start: u64,
        /// The reported size, in bytes.
        size: u64,
        /// The size of the slot, in bytes.
        slot_size: usize,
    },
    /// The function's counter of bytes of records decreased, or exceeds their ring.
    #[error("it reports {written} bytes of records written, of {read} read")]
    Records {
        /// The reported counter.
        written: u64,
        /// The switch's counter.
        read: u64,
    },
    /// A record is of no known kind, exceeds its ring, or names a packet that was not given.
    #[error("it wrote a record of kind {kind} with {size} bytes after packet {after}")]
    Record {
        kind: u8,
        /// Bytes of the payload.
        size: usize,
        /// The number of packets that the switch must take back before it carries out the record.
        after: u64,
    },
}

/// Returns the 64-bit number with these lower and upper 32 bits.
const fn halves(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The properties that all packets of a burst share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BurstKind {
    pub direction: Direction,
    /// True if functions sent the packets. A function cannot send packets in response to these.
    pub is_sent: bool,
}

impl From<Direction> for BurstKind {
    fn from(direction: Direction) -> BurstKind {
        BurstKind {
            direction,
            is_sent: false,
        }
    }
}

/// The layout of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// The number of slots, a power of two.
    slots: usize,
    /// Bytes of a slot; 0 if packets are not in the window.
    slot_size: usize,
}

impl Layout {
    fn size(self) -> usize {
        let tails = if self.slot_size == 0 { TAILS_SIZE } else { 0 };
        self.first_tail() + tails
    }

    const fn first_tail(self) -> usize {
        self.first_notice() + records::NOTICES * records::NOTICE_SIZE
    }

    const fn first_record(self) -> usize {
        self.first_slot() + self.slots * self.slot_size
    }

    const fn first_notice(self) -> usize {
        self.first_record() + records::RECORDS_SIZE
    }

    #[inline]
    const fn notice(self, number: u64) -> usize {
        self.first_notice() + (number as usize & (records::NOTICES - 1)) * records::NOTICE_SIZE
    }

    /// Returns the bytes of all notes, rounded up to cache lines.
    const fn notes_size(self) -> usize {
        self.slots.next_multiple_of(64)
    }

    const fn first_note(self) -> usize {
        at::DESCRIPTORS + self.slots * DESCRIPTOR_SIZE
    }

    const fn first_answer(self) -> usize {
        self.first_note() + self.notes_size()
    }

    const fn first_slot(self) -> usize {
        self.first_answer() + self.slots * ANSWER_SIZE
    }

    /// Returns the slot of a packet. The number of slots is a power of two, because a division would cost more than all other
    /// work on a descriptor.
    #[inline]
    fn index(self, number: u64) -> usize {
        number as usize & (self.slots - 1)
    }

    #[inline]
    fn descriptor(self, number: u64) -> usize {
        at::DESCRIPTORS + self.index(number) * DESCRIPTOR_SIZE
    }

    /// Returns the offsets of the cache lines that hold the descriptors of `packets` packets (a burst at
    /// most), starting with packet `number`.
    #[inline]
    fn descriptor_lines(self, number: u64, packets: usize) -> impl Iterator<Item = usize> {
        let (first, size) = (self.index(number) * DESCRIPTOR_SIZE, self.slots * DESCRIPTOR_SIZE);
        let last = first + packets.min(BURST) * DESCRIPTOR_SIZE;
        (first & !(LINE - 1)..last)
            .step_by(LINE)
            .map(move |at| at::DESCRIPTORS + (at & (size - 1)))
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
    fn slot(self, number: u64) -> usize {
        self.first_slot() + self.index(number) * self.slot_size
    }
}

/// The first word of a packet's descriptor.
///
/// ```text
///   63          62        61..32         31..16         15..0
/// +-----------+---------+--------------+--------------+--------+
/// | direction | is_sent | all segments | first segment| offset |
/// +-----------+---------+--------------+--------------+--------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Descriptor {
    /// The offset of the packet in its slot.
    start: u16,
    /// Bytes of the first segment.
    size: u16,
    /// Bytes of all segments, in 30 bits.
    total: u32,
    kind: BurstKind,
}

impl Descriptor {
    const BACKWARD: u64 = 1 << 63;
    const IS_SENT: u64 = 1 << 62;
    /// The limit of `total`.
    const TOTAL_MAX: u32 = (1 << 30) - 1;

    #[inline]
    fn to_word(self) -> u64 {
        let backward = if self.kind.direction == Direction::Backward {
            Descriptor::BACKWARD
        } else {
            0
        };
        u64::from(self.start)
            | u64::from(self.size) << 16
            | u64::from(self.total & Descriptor::TOTAL_MAX) << 32
            | backward
            | if self.kind.is_sent { Descriptor::IS_SENT } else { 0 }
    }

    #[inline]
    fn from_word(word: u64) -> Descriptor {
        Descriptor {
            start: word as u16,
            size: (word >> 16) as u16,
            total: (word >> 32) as u32 & Descriptor::TOTAL_MAX,
            kind: BurstKind {
                direction: match word & Descriptor::BACKWARD {
                    0 => Direction::Forward,
                    _ => Direction::Backward,
                },
                is_sent: word & Descriptor::IS_SENT != 0,
            },
        }
    }
}

#[cfg(test)]
mod tests;
