//! memif, version 2.0: two processes meet at a Unix socket, one of them (the client, "slave") makes memory with rings and
//! buffers in it, the other (the server, "master") maps it, and from then on packets go through that memory without a
//! system call.
//!
//! # Whom we trust
//! Nobody. The other process may write anything into the memory at any time, and send any message. So every number of the
//! other's is read once, by an atomic load, then checked, then used ([`ring`]); a message is legal or a [`Refusal`];
//! what is neither is a [`Lie`], upon which the caller ends the connection. As the server we refuse memory that can be
//! taken away under our mapping ([`region`]); as the client we share memory with nothing else in it, sealed, and never
//! read back what we wrote there: where each of our buffers lies we know ourselves.
//!
//! # What happens when
//! | client | server |
//! | --- | --- |
//! | connects | `HELLO`: versions, how many regions and rings, how large |
//! | `INIT`: version, which interface | `ACK` |
//! | `ADD_REGION` for each, with its file | `ACK` |
//! | `ADD_RING` for each, with an eventfd | `ACK` |
//! | `CONNECT` | `CONNECTED` |
//!
//! Either may say `DISCONNECT`. [`server::Session`] and [`client::Session`] are these two columns without any IO; [`Line`]
//! carries the messages.
//!
//! # Rings
//! There are two kinds, named by their direction: S2M (to the server) and M2S. The client owns the buffers of both. It
//! offers filled ones on S2M and empty ones on M2S, and moves `head`; the server empties or fills them, and moves
//! `tail`. Each side so writes one index and reads the other's, which may neither overtake nor go back.

#![deny(unsafe_code)]

pub mod client;
mod line;
mod message;
mod refusal;
pub mod region;
pub mod ring;
pub mod server;

pub use line::{Line, LineError};
pub use message::{Direction, MESSAGE_SIZE, Message, Name, RingPlace};
pub use refusal::{Lie, Refusal};

/// The version that both speak: 2.0, as `major << 8 | minor`.
pub const VERSION: u16 = 0x0200;
/// Regions that a server lets a client share. One holds everything in most; those that lend their own packet memory
/// share a few more.
pub const REGIONS_MAX: usize = 16;
/// Bytes of all regions of one client: 16 pairs of the longest rings, with buffers of 2 KiB, fill it. It bounds what a
/// client can have the server map, and fill with pages.
pub const REGIONS_SIZE_MAX: u64 = (1 << 30) + (64 << 20);
/// The longest ring, as a power of two.
pub const LOG2_RING_MAX: u8 = 14;
/// Buffers that one frame may be spread over.
pub const CHAIN_MAX: usize = 64;
