//! Threads beside the network thread: one reads, hashes and seals for a sender, one hashes and writes for each session of a
//! receiver.
//!
//! ```text
//!  sender    network thread ── SealRequest ──> reader: file -> BLAKE3 -> AEAD ── Slab ──> slab cache -> sendmsg
//!  receiver  network thread: AEAD -> group of 16 KiB ── group ──> writer: BLAKE3 -> pwrite, fdatasync, rename ── events ──>
//! ```
//!
//! Whole slabs and whole groups cross threads, by ownership of their memory; nothing is copied and nothing is shared. The number
//! of slabs on the way is bounded by [`reader::REQUESTS_MAX`], that of groups by the credit that the receiver grants.

pub(crate) mod assembly;
pub(crate) mod reader;
mod waker;
pub(crate) mod writer;

pub(crate) use waker::Waker;
