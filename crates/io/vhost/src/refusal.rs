//! What can be wrong with what a driver says and shares ([`Refusal`]), and with what it writes there ([`Lie`]).

use thiserror::Error;

use crate::memory::REGIONS_MAX;
use crate::message::{PAYLOAD_MAX, TABLE_MAX};
use crate::ring::{CHAIN_MAX, RING_MAX};

/// Why a driver's message, memory or ring is not taken. Its text is what the log is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is one version.
    #[error("a message of version {version}; expected 1")]
    Version {
        /// Its version.
        version: u32,
    },
    /// Nobody was asked.
    #[error("an answer to request {request}, where none was made")]
    Reply {
        /// Which.
        request: u32,
    },
    /// Something else came than the answer.
    #[error("request {request}, where the answer to {asked} was due")]
    NoReply {
        /// What came.
        request: u32,
        /// What was asked.
        asked: u32,
    },
    /// It is longer than any that is heard.
    #[error("request {request} with {size} bytes; expected at most {PAYLOAD_MAX}")]
    TooLong {
        /// Which.
        request: u32,
        /// Its bytes.
        size: usize,
    },
    /// It has more or fewer bytes than such a request.
    #[error("request {request} with {size} bytes; expected {expected}")]
    Size {
        /// Which.
        request: u32,
        /// Its bytes.
        size: usize,
        /// What such a one has.
        expected: usize,
    },
    /// It ends too early.
    #[error("a message that ends too early")]
    Short,
    /// There is no such request, or nobody offered what it belongs to.
    #[error("request {request}, which is not known here")]
    Request {
        /// Which.
        request: u32,
    },
    /// More or fewer files came along.
    #[error("request {request} with {files} files; expected {expected}")]
    Files {
        /// Which.
        request: u32,
        /// How many.
        files: usize,
        /// What such a one has.
        expected: usize,
    },
    /// More files than any message has.
    #[error("a message with more than {TABLE_MAX} files")]
    TooManyFiles,
    /// A table of memory that is empty, or too long.
    #[error("a table of {regions} regions of memory; expected 1 to {TABLE_MAX}")]
    Table {
        /// How many it is said to have.
        regions: usize,
    },
    /// A ring that there is not.
    #[error("ring {ring}; expected less than {rings}")]
    RingNumber {
        /// Which.
        ring: u32,
        /// How many there are.
        rings: u32,
    },
    /// It takes what was not offered.
    #[error("features {bits:#x}, which were not offered")]
    Features {
        /// Those that were not.
        bits: u64,
    },
    /// It takes what was not offered.
    #[error("features of the protocol {bits:#x}, which were not offered")]
    ProtocolFeatures {
        /// Those that were not.
        bits: u64,
    },
    /// Another one came, and this one has no ring that runs.
    #[error("another peer came, and this one has taken up no packets")]
    Idle,
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
