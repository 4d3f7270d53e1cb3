//! What can be wrong with what a driver shares ([`Refusal`]), and with what it writes there ([`Lie`]).

use thiserror::Error;

use crate::memory::REGIONS_MAX;
use crate::ring::{CHAIN_MAX, RING_MAX};

/// Why memory or rings of a driver's are not taken. Its text is what the log is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There are too many regions.
    #[error("more than {REGIONS_MAX} regions of memory")]
    Regions,
    /// A region that is empty, or goes past the last address.
    #[error("region {index} of {size} bytes at {guest:#x}; expected at least 1, none past 2^64")]
    RegionSize {
        /// Which.
        index: u16,
        /// Where the guest has it, or the frontend.
        guest: u64,
        /// Its bytes.
        size: u64,
    },
    /// The file is no memory.
    #[error("region {index}: its file is neither of memory nor of huge pages")]
    NotMemory {
        /// Which region.
        index: u16,
    },
    /// The file can become shorter under the one who maps it.
    #[error("region {index}: its file may be made shorter; expected a memfd sealed with F_SEAL_SHRINK")]
    NotSealed {
        /// Which region.
        index: u16,
    },
    /// The file is shorter than it is said to be.
    #[error("region {index}: its file has {found} bytes; expected {size} behind byte {offset}")]
    FileSize {
        /// Which region.
        index: u16,
        /// Where in the file it begins.
        offset: u64,
        /// What it is said to have.
        size: u64,
        /// What the file has.
        found: u64,
    },
    /// The kernel does not map it.
    #[error("region {index}: {error}")]
    Map {
        /// Which region.
        index: u16,
        /// What the kernel says.
        error: rustix::io::Errno,
    },
    /// It has made its file shorter.
    #[error("region {index}: its file was made shorter")]
    Shrunk {
        /// Which region.
        index: u16,
    },
    /// No ring is so long.
    #[error("a ring of {size} descriptors; expected 1 to {RING_MAX}, a power of two unless it is packed")]
    RingSize {
        /// Its descriptors.
        size: u32,
    },
    /// A part of a ring is not in memory.
    #[error("{part} of a ring at {user:#x}, outside of the memory, or not aligned as it must be")]
    RingOutside {
        /// Which part.
        part: &'static str,
        /// Where the frontend has it.
        user: u64,
    },
    /// The place to begin at is not in the ring.
    #[error("a packed ring of {size} descriptors that begins at {base:#x}")]
    RingBase {
        /// Its descriptors.
        size: u16,
        /// Where it was to begin.
        base: u32,
    },
}

/// What is wrong with what a driver wrote into the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Lie {
    /// An index went further than there is anything, or back.
    #[error("its index went from {from} to {to}, where at most {room} more were possible")]
    Index {
        /// Where it was.
        from: u16,
        /// Where it is said to be.
        to: u16,
        /// How far it could have gone.
        room: u16,
    },
    /// A descriptor that there is not.
    #[error("descriptor {index} of {len}")]
    Descriptor {
        /// Which.
        index: u16,
        /// How many there are.
        len: u16,
    },
    /// A buffer outside of memory.
    #[error("a buffer of {size} bytes at {guest:#x}, outside of the memory that it shares")]
    Outside {
        /// Where the guest has it.
        guest: u64,
        /// Its bytes.
        size: u32,
    },
    /// A chain that does not end.
    #[error("a chain of more than {CHAIN_MAX} buffers, or of all that the ring has")]
    Chain,
    /// A buffer to be written to where one to be read is, or the other way round.
    #[error("a buffer that is {found}, in a chain that is to be {expected}")]
    Direction {
        /// What the descriptor says.
        found: &'static str,
        /// What this queue is for.
        expected: &'static str,
    },
    /// A table of descriptors where there can be none.
    #[error("a table of descriptors of {size} bytes, in a table, or beside other buffers")]
    Table {
        /// Its bytes.
        size: u32,
    },
    /// A chain that does not hold the header that is in front of each frame.
    #[error("a chain of {size} bytes; expected a header of {expected} at least")]
    Short {
        /// Its bytes.
        size: usize,
        /// Bytes of the header.
        expected: usize,
    },
}
