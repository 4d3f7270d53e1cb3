//! What can be wrong with what a peer says: in messages ([`Refusal`]), and in memory ([`Lie`]).

use thiserror::Error;

use crate::message::Direction;
use crate::{CHAIN_MAX, LOG2_RING_MAX, REGIONS_MAX, REGIONS_SIZE_MAX};

/// Why a peer's message, or what it shares, is not taken. Its text is what the peer and the log are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Every message has 128 bytes.
    #[error("a message of {size} bytes; expected 128")]
    MessageSize {
        /// Its bytes.
        size: usize,
    },
    /// There are eight types.
    #[error("a message of type {number}; expected 1 to 8")]
    MessageType {
        /// Its type.
        number: u16,
    },
    /// A message that does not belong here.
    #[error("{message} came; expected {expected}")]
    Unexpected {
        /// What came.
        message: &'static str,
        /// What may come.
        expected: &'static str,
    },
    /// It speaks another version.
    #[error("memif version {major}.{minor}; expected 2.0", major = .version >> 8, minor = .version & 0xff)]
    Version {
        /// The newest that it speaks.
        version: u16,
    },
    /// Nobody has this interface.
    #[error("there is no interface {id} at this socket")]
    NoInterface {
        /// What the client asked for.
        id: u32,
    },
    /// Another client has it.
    #[error("interface {id} is connected already")]
    Taken {
        /// What the client asked for.
        id: u32,
    },
    /// Packets are Ethernet frames.
    #[error("interface mode {mode}; expected 0, Ethernet")]
    Mode {
        /// What the client asked for.
        mode: u8,
    },
    /// Memory and rings come with a file.
    #[error("{message} without a file; expected {expected}")]
    NoFile {
        /// Which message.
        message: &'static str,
        /// What file.
        expected: &'static str,
    },
    /// Regions come in order.
    #[error("region {index}; expected {expected}")]
    RegionIndex {
        /// Which it was to be.
        index: u16,
        /// Which is next.
        expected: usize,
    },
    /// There are too many.
    #[error("more than {REGIONS_MAX} regions")]
    Regions,
    /// It is empty, or all together are too large.
    #[error(
        "region {index} of {size} bytes; expected at least 1, and at most {REGIONS_SIZE_MAX} in all regions"
    )]
    RegionSize {
        /// Which.
        index: u16,
        /// Its bytes.
        size: u64,
    },
    /// The ring is not one of those that were offered.
    #[error("{direction} ring {index}; expected less than {rings}")]
    RingIndex {
        /// Which way its packets go.
        direction: Direction,
        /// Which it was to be.
        index: u16,
        /// How many there may be.
        rings: u16,
    },
    /// It was there already.
    #[error("{direction} ring {index} twice")]
    RingTwice {
        /// Which way its packets go.
        direction: Direction,
        /// Which.
        index: u16,
    },
    /// It is too long.
    #[error("{direction} ring {index} of 2^{log2_len} descriptors; expected at most 2^{LOG2_RING_MAX}")]
    RingLength {
        /// Which way its packets go.
        direction: Direction,
        /// Which.
        index: u16,
        /// Its length.
        log2_len: u8,
    },
    /// It does not lie in a region.
    #[error(
        "{direction} ring {index} at byte {offset} of region {region} lies outside of it, or not at a multiple of 16"
    )]
    RingOutside {
        /// Which way its packets go.
        direction: Direction,
        /// Which.
        index: u16,
        /// The region.
        region: u16,
        /// Where in it.
        offset: u32,
    },
    /// Packets begin where buffers begin.
    #[error("a private header of {size} bytes; expected none")]
    PrivateHeader {
        /// Its bytes.
        size: u16,
    },
    /// There must be one each way, and none left out.
    #[error("{direction} rings that do not begin at 0 and go on without a gap")]
    RingsMissing {
        /// Which way their packets go.
        direction: Direction,
    },
    /// What a ring begins with.
    #[error("{direction} ring {index} begins with {cookie:#x}; expected 0x3e31f20")]
    Cookie {
        /// Which way its packets go.
        direction: Direction,
        /// Which.
        index: u16,
        /// What was there.
        cookie: u32,
    },
    /// The file is no memory.
    #[error("region {index}: its file is neither of memory nor of huge pages")]
    NotMemory {
        /// Which region.
        index: u16,
    },
    /// The file is a device, a folder, a pipe or a socket.
    #[error("region {index}: its file is not a regular file; expected a memfd sealed with F_SEAL_SHRINK")]
    NotRegular {
        /// Which region.
        index: u16,
    },
    /// The kernel knows no seals of the file: it is of another kind than memfds.
    #[error("region {index}: its file has no seals ({error}); expected a memfd sealed with F_SEAL_SHRINK")]
    NoSeals {
        /// Which region.
        index: u16,
        /// The kernel's answer to F_GET_SEALS: EINVAL or ENOTTY.
        error: rustix::io::Errno,
    },
    /// The file can become shorter under the one who maps it.
    #[error("region {index}: its file may be made shorter; expected a memfd sealed with F_SEAL_SHRINK")]
    NotSealed {
        /// Which region.
        index: u16,
    },
    /// The file is shorter than it is said to be.
    #[error("region {index}: its file has {found} bytes; expected {size}")]
    FileSize {
        /// Which region.
        index: u16,
        /// What it is said to have.
        size: u64,
        /// What it has.
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
    /// It took too long.
    #[error("no connection came about in time")]
    TooSlow,
    /// Others came, and this one said nothing.
    #[error("too many connections that have not chosen an interface")]
    TooMany,
    /// It has made its file shorter.
    #[error("region {index}: its file was made shorter")]
    Shrunk {
        /// Which region.
        index: u16,
    },
}

/// What is wrong with what a peer wrote into the memory.
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
    /// A buffer in a region that there is not.
    #[error("a buffer in region {region}, which there is not")]
    Region {
        /// Which.
        region: u16,
    },
    /// A buffer that is not within its region.
    #[error("a buffer of {size} bytes at byte {offset} of region {region}, past its end")]
    Outside {
        /// The region.
        region: u16,
        /// Where in it.
        offset: u32,
        /// Its bytes.
        size: u32,
    },
    /// More bytes than the buffer that was given.
    #[error("{size} bytes in a buffer of {room}")]
    Longer {
        /// How many it says.
        size: u32,
        /// How many there can be.
        room: u32,
    },
    /// A frame in more buffers than any frame needs.
    #[error("a frame of more than {CHAIN_MAX} buffers, or of all that the ring has")]
    Chain,
}
