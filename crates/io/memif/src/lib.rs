//! memif, version 2.0. Two processes connect over a Unix socket. The client ("slave") creates shared memory with rings and
//! buffers; the server ("master") maps it. Packets then pass through that memory without system calls.
//!
//! # Trust
//! Neither side trusts its peer, which may write anything into the memory at any time and send any message. Every number
//! that the peer writes is therefore read once, by an atomic load, then checked, then used ([`ring`]). An invalid message is
//! a [`MessageError`] and an invalid number in memory a [`ProtocolViolation`]; the caller closes the connection on both. The
//! server rejects memory that the peer can take away while it is mapped ([`region`]). The client shares sealed memory that
//! holds nothing else, and never reads back what it wrote: it computes the offsets of its buffers itself.
//!
//! # Sequence
//! | client | server |
//! | --- | --- |
//! | connects | `HELLO`: versions, limits of regions, rings and ring sizes |
//! | `INIT`: version, interface id | `ACK` |
//! | `ADD_REGION` for each region, with its file descriptor | `ACK` |
//! | `ADD_RING` for each ring, with an eventfd | `ACK` |
//! | `CONNECT` | `CONNECTED` |
//!
//! Either side may send `DISCONNECT`. [`server::Session`] and [`client::Session`] implement the two sides
//! without IO; [`Connection`] carries the messages.
//!
//! # Rings
//! A ring carries packets in one direction: S2M to the server, or M2S to the client. The client owns the buffers of both.
//! The client puts full buffers on S2M rings and empty ones on M2S rings, and advances `head`; the server empties or
//! fills them and advances `tail`. Each side thus writes one index and reads the other, which must not overtake or move
//! back.

#![deny(unsafe_code)]

pub mod client;
mod connection;
mod direction;
mod error;
mod message;
pub mod region;
pub mod ring;
pub mod server;

pub use connection::{Connection, ConnectionError};
pub use direction::Direction;
pub use error::{MessageError, ProtocolViolation};
pub use message::{AddRing, MESSAGE_SIZE, Message, Name};

/// The protocol version of this implementation: 2.0, as `major << 8 | minor`.
pub const VERSION: u16 = 0x0200;
/// Maximum number of regions that one client may share. Most clients share one; clients that share their own packet
/// memory use a few more.
pub const REGIONS_MAX: usize = 16;
/// Maximum size of all regions of one client, in bytes. 16 pairs of the longest rings with buffers of 2 KiB reach
/// this limit. The limit bounds the memory that a client can make the server map.
pub const REGIONS_SIZE_MAX: u64 = (1 << 30) + (64 << 20);
/// Binary logarithm of the longest ring.
pub const LOG2_RING_MAX: u8 = 14;
/// Maximum number of buffers of one frame.
pub const CHAIN_MAX: usize = 64;
