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
mod layout;
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

use crate::burst::Direction;
use crate::effects::Sending;

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

impl From<BurstKind> for Sending {
    fn from(kind: BurstKind) -> Sending {
        match kind.is_sent {
            true => Sending::Refused,
            false => Sending::Allowed,
        }
    }
}

impl From<Direction> for BurstKind {
    fn from(direction: Direction) -> BurstKind {
        BurstKind {
            direction,
            is_sent: false,
        }
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
