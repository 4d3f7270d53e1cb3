//! The errors of the driver, and violations of the protocol by the device.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::buffer::{FRAME_MAX, HEADER};
use crate::MessageError;

/// The reason why the driver cannot run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The socket cannot be connected.
    #[error("{}: {source}", .path.display())]
    Connect {
        /// The path of the socket.
        path: PathBuf,
        /// The error of `connect`.
        source: io::Error,
    },
    /// The ring size is invalid.
    #[error("ring size {len}; expected a power of two from 2 to 32768")]
    Length {
        /// The requested number of descriptors.
        len: u16,
    },
    /// The memory cannot be allocated.
    #[error("cannot allocate rings and frames: {0}")]
    Memory(#[source] MessageError),
    /// A system call on the socket failed.
    #[error("the socket to the switch: {0}")]
    Connection(#[source] io::Error),
    /// The device closed the socket.
    #[error("the switch closed the connection")]
    Closed,
    /// The device did not reply, or did not read its messages, in time.
    #[error("the switch does not answer within 5 s")]
    NotReading,
    /// The device sent an invalid reply.
    #[error("invalid reply of the switch: {0}")]
    Reply(#[source] MessageError),
    /// The device lacks a required feature.
    #[error("the switch offers features {offered:#x}; expected {expected:#x} (virtio 1.0) among them")]
    Features {
        /// The features on offer.
        offered: u64,
        /// The required features.
        expected: u64,
    },
}

/// A violation of the virtio protocol by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DeviceViolation {
    /// The device returned more buffers than it held.
    #[error("the used index moved from {from} to {to}; expected an advance of at most {lent}")]
    Index {
        /// The previous used index.
        from: u16,
        /// The new used index.
        to: u16,
        /// The number of buffers that the device held.
        lent: u16,
    },
    /// The device returned buffers out of order.
    #[error("the switch returned buffer {found}; expected {expected}, in ring order")]
    Order {
        /// The buffer that the device returned.
        found: u32,
        /// The buffer that was due next.
        expected: u16,
    },
    /// The length of a frame exceeds its buffer, or is shorter than the header.
    #[error("a frame of {size} bytes with its header; expected 12 to {}", HEADER + FRAME_MAX)]
    Size {
        /// The length that the device reported, in bytes.
        size: u32,
    },
}
