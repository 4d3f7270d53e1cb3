//! Errors of a peer: in its messages ([`MessageError`]), and in the memory that it writes ([`ProtocolViolation`]).

use thiserror::Error;

use crate::direction::Direction;
use crate::{CHAIN_MAX, LOG2_RING_MAX, REGIONS_MAX, REGIONS_SIZE_MAX};

/// The reason why a message, a memory region or a ring of a peer is rejected. The text goes to the peer and to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is not 128 bytes long.
    #[error("a message of {size} bytes; expected 128")]
    MessageSize {
        /// The size of the message, in bytes.
        size: usize,
    },
    /// The message type is unknown.
    #[error("a message of type {number}; expected 1 to 8")]
    MessageType {
        /// The message type.
        number: u16,
    },
    /// The message is not allowed in the current state.
    #[error("unexpected message {message}; expected {expected}")]
    Unexpected {
        /// The type of the message.
        message: &'static str,
        /// The types that are allowed.
        expected: &'static str,
    },
    /// The peer does not support version 2.0.
    #[error("memif version {major}.{minor}; expected 2.0", major = .version >> 8, minor = .version & 0xff)]
    Version {
        /// The newest version that the peer supports.
        version: u16,
    },
    /// The socket has no interface with this id.
    #[error("no interface {id} at this socket; use an id that the server has configured")]
    NoInterface {
        /// The id in the message.
        id: u32,
    },
    /// Another client is connected to the interface.
    #[error("interface {id} already has a client; disconnect it, or use another id")]
    Taken {
        /// The id in the message.
        id: u32,
    },
    /// The interface mode is not Ethernet.
    #[error("interface mode {mode}; expected 0, Ethernet")]
    Mode {
        /// The mode in the message.
        mode: u8,
    },
    /// The file descriptor of a region or a ring is missing.
    #[error("{message} without a file descriptor; expected {expected}")]
    NoFile {
        /// The type of the message.
        message: &'static str,
        /// The kind of file that the message requires.
        expected: &'static str,
    },
    /// The regions are not numbered in order.
    #[error("region {index}; expected region {expected}")]
    RegionIndex {
        /// The index in the message.
        index: u16,
        /// The next index.
        expected: usize,
    },
    /// The client shares too many regions.
    #[error("more than {REGIONS_MAX} regions")]
    Regions,
    /// The region is empty, or the sum of all regions exceeds the limit.
    #[error(
        "region {index} of {size} bytes; expected at least 1, and at most {REGIONS_SIZE_MAX} in all regions"
    )]
    RegionSize {
        /// The index of the region.
        index: u16,
        /// The size of the region, in bytes.
        size: u64,
    },
    /// The ring index exceeds the limit that the server announced.
    #[error("{direction} ring {index}; expected an index below {rings}")]
    RingIndex {
        /// The direction of the ring.
        direction: Direction,
        /// The index in the message.
        index: u16,
        /// The number of rings allowed in that direction.
        rings: u16,
    },
    /// The client has added the ring before.
    #[error("{direction} ring {index} was added twice")]
    RingTwice {
        /// The direction of the ring.
        direction: Direction,
        /// The index of the ring.
        index: u16,
    },
    /// The ring is too long.
    #[error("{direction} ring {index} of 2^{log2_len} descriptors; expected at most 2^{LOG2_RING_MAX}")]
    RingLength {
        /// The direction of the ring.
        direction: Direction,
        /// The index of the ring.
        index: u16,
        /// Binary logarithm of its length.
        log2_len: u8,
    },
    /// The ring does not lie in a region.
    #[error(
        "{direction} ring {index} at byte {offset} of region {region} exceeds the region, or is not aligned to 16 bytes"
    )]
    RingOutside {
        /// The direction of the ring.
        direction: Direction,
        /// The index of the ring.
        index: u16,
        /// The index of the region.
        region: u16,
        /// The offset in the region, in bytes.
        offset: u32,
    },
    /// The client wants a private header in front of each packet.
    #[error("a private header of {size} bytes; expected none")]
    PrivateHeader {
        /// The size of the header, in bytes.
        size: u16,
    },
    /// A direction has no ring 0, or a gap between its rings.
    #[error("{direction} rings are missing; expected at least ring 0, and no gap")]
    RingsMissing {
        /// The direction of the rings.
        direction: Direction,
    },
    /// The ring does not begin with the memif cookie.
    #[error("{direction} ring {index} begins with {cookie:#x}; expected 0x3e31f20")]
    Cookie {
        /// The direction of the ring.
        direction: Direction,
        /// The index of the ring.
        index: u16,
        /// The number at the position of the cookie.
        cookie: u32,
    },
    /// The file is of another file system than tmpfs and hugetlbfs.
    #[error("region {index}: its file is on a file system other than tmpfs and hugetlbfs; expected a memfd")]
    NotMemory {
        /// The index of the region.
        index: u16,
    },
    /// The file is a device, a folder, a pipe or a socket.
    #[error("region {index}: its file is not a regular file; expected a memfd sealed with F_SEAL_SHRINK")]
    NotRegular {
        /// The index of the region.
        index: u16,
    },
    /// The kernel supports no seals on the file.
    #[error("region {index}: its file has no seals ({error}); expected a memfd sealed with F_SEAL_SHRINK")]
    NoSeals {
        /// The index of the region.
        index: u16,
        /// The kernel's answer to F_GET_SEALS: EINVAL or ENOTTY.
        error: rustix::io::Errno,
    },
    /// The file can shrink while it is mapped.
    #[error("region {index}: its file can shrink; expected a memfd sealed with F_SEAL_SHRINK")]
    NotSealed {
        /// The index of the region.
        index: u16,
    },
    /// The file is shorter than the region.
    #[error("region {index}: its file has {found} bytes; expected {size}")]
    FileSize {
        /// The index of the region.
        index: u16,
        /// The size of the region, in bytes.
        size: u64,
        /// The size of the file, in bytes.
        found: u64,
    },
    /// The kernel does not map the file.
    #[error("region {index}: {error}")]
    Map {
        /// The index of the region.
        index: u16,
        /// The kernel's error.
        error: rustix::io::Errno,
    },
    /// The peer did not complete the handshake in time.
    #[error("the handshake was not completed in time")]
    TooSlow,
    /// The server closes the oldest connection without an interface, because newer ones need its slot.
    #[error("too many connections that have not chosen an interface")]
    TooMany,
    /// The peer has truncated its file.
    #[error("region {index}: its file was truncated")]
    Shrunk {
        /// The index of the region.
        index: u16,
    },
}

/// A value in shared memory that the protocol forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// An index moved back, or further than the ring allows.
    #[error("its ring index moved from {from} to {to}; expected an advance of at most {room}")]
    Index {
        /// The previous index.
        from: u16,
        /// The new index.
        to: u16,
        /// The largest advance that was possible.
        room: u16,
    },
    /// A descriptor names a region that does not exist.
    #[error("a buffer in region {region}, which does not exist")]
    Region {
        /// The index of the region.
        region: u16,
    },
    /// A descriptor names a buffer beyond the end of its region.
    #[error("a buffer of {size} bytes at byte {offset} of region {region} exceeds the region")]
    Outside {
        /// The index of the region.
        region: u16,
        /// The offset of the buffer, in bytes.
        offset: u32,
        /// The size of the buffer, in bytes.
        size: u32,
    },
    /// A descriptor reports more bytes than its buffer holds.
    #[error("{size} bytes in a buffer of {room}")]
    Longer {
        /// The length in the descriptor, in bytes.
        size: u32,
        /// The size of the buffer, in bytes.
        room: u32,
    },
    /// A frame has more buffers than allowed.
    #[error("a frame of more than {CHAIN_MAX} buffers, or of all buffers of the ring")]
    Chain,
}
