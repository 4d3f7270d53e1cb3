//! vhost-user: the device side of a network card of virtio 1.x, whose driver is another process or a guest in it.
//!
//! # Whom we trust
//! Nobody. The driver may write anything into the memory that it shares, at any time. So every number of the driver's is
//! read once, by an atomic load, then checked, then used ([`ring`]); what cannot be is a [`Lie`], upon which the caller
//! ends the connection. Memory is mapped as the messages say that it lies, and not touched outside of that ([`memory`]).
//!
//! # What happens when
//! The driver's side connects to a Unix socket and asks ([`message`], [`Line`]): what is offered, then, in any order, where
//! its memory and its rings are, and which of them run. [`session`] keeps what was said, and says which ring starts or stops
//! upon each message, without any IO.
//!
//! # Words
//! A *driver* has the ring and lends buffers; we are the *device*. A [`ring::Receiver`] is at the driver's transmit
//! queue, a [`ring::Sender`] at its receive queue. A *chain* is what the driver makes available at once: one buffer, or
//! several.

#![deny(unsafe_code)]

pub mod driver;
mod features;
mod line;
pub mod memory;
pub mod message;
mod refusal;
pub mod ring;
pub mod session;

pub use features::Features;
pub use line::{Line, LineError, Received};
pub use refusal::{Lie, Refusal};
