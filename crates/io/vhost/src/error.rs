//! Errors of a driver: in its messages and memory tables ([`MessageError`]), and in the rings that it writes
//! ([`ProtocolViolation`]).

use thiserror::Error;

use crate::limits::{CHAIN_MAX, PAYLOAD_MAX, REGIONS_MAX, RING_MAX, TABLE_MAX};

/// The reason why a message, a memory region or a ring of a driver is rejected. The text goes to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message has an unsupported protocol version.
    #[error("protocol version {version}; expected 1")]
    Version {
        /// The version in the message.
        version: u32,
    },
    /// A reply arrived although no request was outstanding.
    #[error("a reply to request {request}, which was not sent")]
    Reply {
        /// The request number of the reply.
        request: u32,
    },
    /// Another message arrived in place of the expected reply.
    #[error("request {request}; expected the reply to request {asked}")]
    NoReply {
        /// The request number of the message.
        request: u32,
        /// The request whose reply was expected.
        asked: u32,
    },
    /// The payload is longer than that of any request.
    #[error("request {request} has {size} bytes; expected at most {PAYLOAD_MAX}")]
    TooLong {
        /// The request number.
        request: u32,
        /// The payload size in bytes.
        size: usize,
    },
    /// The payload size does not fit the request.
    #[error("request {request} has {size} bytes; expected {expected}")]
    Size {
        /// The request number.
        request: u32,
        /// The payload size in bytes.
        size: usize,
        /// The size that the request requires, in bytes.
        expected: usize,
    },
    /// The message ends before its last field.
    #[error("truncated message")]
    Short,
    /// The request is unknown, or belongs to a feature that was not offered.
    #[error("request {request} is not supported")]
    Request {
        /// The request number.
        request: u32,
    },
    /// The number of accompanying file descriptors does not fit the request.
    #[error("request {request} has {fds} file descriptors; expected {expected}")]
    Fds {
        /// The request number.
        request: u32,
        /// The number of file descriptors that arrived.
        fds: usize,
        /// The number that the request requires.
        expected: usize,
    },
    /// The message carries more file descriptors than any request has.
    #[error("more than {TABLE_MAX} file descriptors in a message")]
    TooManyFds,
    /// The memory table is empty or has too many regions.
    #[error("memory table of {regions} regions; expected 1 to {TABLE_MAX}")]
    Table {
        /// The number of regions in the table.
        regions: usize,
    },
    /// The request names a ring that does not exist.
    #[error("ring {ring}; expected less than {rings}")]
    RingNumber {
        /// The ring number in the request.
        ring: u32,
        /// The number of rings.
        rings: u32,
    },
    /// The driver accepts virtio features that were not offered.
    #[error("features {bits:#x} were accepted but not offered")]
    Features {
        /// The bits that were not offered.
        bits: u64,
    },
    /// The front-end accepts protocol features that were not offered.
    #[error("protocol features {bits:#x} were accepted but not offered")]
    ProtocolFeatures {
        /// The bits that were not offered.
        bits: u64,
    },
    /// A second peer connected while this one had no running ring.
    #[error("replaced by another peer, since no ring was running")]
    Idle,
    /// The driver shares too many regions.
    #[error("more than {REGIONS_MAX} memory regions")]
    Regions,
    /// A region is empty, or extends past the end of the address space.
    #[error(
        "memory region {index} has {size} bytes at {guest:#x}; expected at least 1 byte, ending before 2^64"
    )]
    RegionSize {
        /// The index of the region.
        index: u16,
        /// The address at which the guest or the front-end maps the region.
        guest: u64,
        /// The size of the region in bytes.
        size: u64,
    },
    /// The file is not memory (neither tmpfs nor hugetlbfs).
    #[error("memory region {index}: the file is not in tmpfs or hugetlbfs; expected a memfd")]
    NotMemory {
        /// The index of the region.
        index: u16,
    },
    /// The file can be truncated while it is mapped.
    #[error("memory region {index}: the file can shrink; expected a memfd sealed with F_SEAL_SHRINK")]
    NotSealed {
        /// The index of the region.
        index: u16,
    },
    /// The file is shorter than the region.
    #[error("memory region {index}: the file has {found} bytes; expected {size} from offset {offset}")]
    FileSize {
        /// The index of the region.
        index: u16,
        /// The offset of the region in the file, in bytes.
        offset: u64,
        /// The size of the region in bytes.
        size: u64,
        /// The size of the file in bytes.
        found: u64,
    },
    /// The kernel refuses to map the file.
    #[error("memory region {index}: {error}")]
    Map {
        /// The index of the region.
        index: u16,
        /// The error of `mmap`, `fstat` or `fstatfs`.
        error: rustix::io::Errno,
    },
    /// The driver truncated the file after it was mapped.
    #[error("memory region {index}: the file was truncated")]
    Shrunk {
        /// The index of the region.
        index: u16,
    },
    /// The ring size is out of range.
    #[error("ring size {size}; expected 1 to {RING_MAX}, and a power of two for a split ring")]
    RingSize {
        /// The number of descriptors.
        size: u32,
    },
    /// A part of a ring is outside of the shared memory, or misaligned.
    #[error("{part} at {user:#x} is outside of the shared memory or misaligned")]
    RingOutside {
        /// The name of the part.
        part: &'static str,
        /// The part's address in the front-end's address space.
        user: u64,
    },
    /// The vring base is outside of the ring.
    #[error("vring base {base:#x} of a packed ring; expected an index below {size}")]
    RingBase {
        /// The number of descriptors.
        size: u16,
        /// The vring base.
        base: u32,
    },
}

/// An invalid value that a driver wrote into shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// An index moved backwards, or further than the ring has entries.
    #[error("ring index moved from {from} to {to}; expected an advance of at most {room}")]
    Index {
        /// The previous index.
        from: u16,
        /// The new index.
        to: u16,
        /// The largest possible advance.
        room: u16,
    },
    /// A descriptor index is outside of the table.
    #[error("descriptor index {index}; expected less than {len}")]
    Descriptor {
        /// The descriptor index.
        index: u16,
        /// The length of the table.
        len: u16,
    },
    /// A buffer is outside of the shared memory.
    #[error("a buffer of {size} bytes at guest address {guest:#x} is outside of the shared memory")]
    Outside {
        /// The guest address of the buffer.
        guest: u64,
        /// The size of the buffer in bytes.
        size: u32,
    },
    /// A descriptor chain does not end.
    #[error("a descriptor chain does not end within {CHAIN_MAX} buffers or the length of the ring")]
    Chain,
    /// A device-writable buffer is in a device-readable chain, or the other way round.
    #[error("a {found} buffer in a {expected} chain")]
    Direction {
        /// The direction of the descriptor.
        found: &'static str,
        /// The direction that the queue requires.
        expected: &'static str,
    },
    /// An indirect descriptor table is not allowed here, or has an invalid size.
    #[error("an indirect table of {size} bytes is nested, chained, or of an invalid size")]
    Table {
        /// The size of the table in bytes.
        size: u32,
    },
    /// A chain is too short for the virtio-net header.
    #[error("a chain of {size} bytes; expected at least the virtio-net header of {expected}")]
    Short {
        /// The size of the chain in bytes.
        size: usize,
        /// The size of the header in bytes.
        expected: usize,
    },
}
