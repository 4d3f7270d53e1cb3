//! Memory that this process shares with a process that it need not trust: memory files, mappings, and
//! prefetches.
//!
//! ```text
//!        create, or check of a peer's file          map                      copies, atomics
//! memfd ----------------------------------> OwnedFd ----> Mapping (start, size) <---- the crate of the protocol
//! ```
//!
//! An access to a mapping faults (SIGBUS) if the file has become shorter than the mapping. A file is therefore either
//! sealed against shrinking, or accepted only by a process that handles SIGBUS ([`UnsealedPolicy`]).

#![deny(unsafe_code)] // except in `mapping` and `prefetch`

mod file;
mod mapping;
mod prefetch;

pub use file::{MemoryFile, NotMemoryFile, UnsealedPolicy, create};
pub use mapping::Mapping;
pub use prefetch::{prefetch, prefetch_to_write};
