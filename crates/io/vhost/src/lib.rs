//! vhost-user: the device side of a virtio 1.x network device. The driver is another process, or a guest inside one.
//!
//! # Trust
//! The driver is not trusted: it may write anything into the memory that it shares, at any time. The device
//! therefore reads every value that the driver writes once, with an atomic load, checks it, and then uses the
//! checked copy ([`ring`]). An invalid value is a [`ProtocolViolation`], and the caller closes the
//! connection. Memory is mapped as the messages describe it and is never accessed outside of the mapping
//! ([`memory`]).
//!
//! # Sequence
//! The front-end (QEMU, or a DPDK process) connects to a Unix socket and sends requests ([`message`], [`Connection`]).
//! It first asks for the features on offer; then, in any order, it announces its memory, its rings, and which rings
//! are enabled. [`session`] keeps this state and reports which ring starts or stops after each message; it does no IO.
//!
//! # Terms
//! The *driver* owns the ring and supplies buffers; the switch is the *device*. A [`ring::Receiver`] serves the
//! driver's transmit queue, a [`ring::Sender`] its receive queue. A *descriptor chain* is what one available-ring
//! entry refers to: one buffer or several (virtio 1.2, section 2.7).

#![deny(unsafe_code)]

mod connection;
pub mod driver;
mod error;
mod features;
mod limits;
pub mod memory;
pub mod message;
pub mod ring;
pub mod session;

pub use connection::{Connection, ConnectionError, Received};
pub use error::{MessageError, ProtocolViolation};
pub use features::Features;
