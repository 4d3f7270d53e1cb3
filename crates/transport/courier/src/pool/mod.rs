//! Threads besides the network thread: one reads, hashes and seals for a sender, one hashes and writes for each session of a
//! receiver.
//!
//! ```text
//!  sender    network thread ── SealRequest ──> reader: file -> BLAKE3 -> AEAD ── Slab ──> slab cache -> sendmsg
//!  receiver  network thread: AEAD -> group of 16 KiB ── group ──> writer: BLAKE3 -> pwrite, fdatasync, rename ── events ──>
//! ```
//!
//! Complete slabs and groups pass between threads by ownership of their memory; nothing is copied or shared.
//! [`reader::REQUESTS_MAX`] limits the number of slabs between the threads, and the receiver's credit limits
//! that of groups.

pub(crate) mod assembly;
pub(crate) mod reader;
mod waker;
pub(crate) mod writer;

pub(crate) use waker::Waker;
