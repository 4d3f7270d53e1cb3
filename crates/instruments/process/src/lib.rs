//! Programs that instruments start: confined to a core, watched until they are ready, and ended by process id.
//!
//! A program ends with the instrument that started it, however that ends: by return, by Ctrl-C ([`interrupt`]), or by
//! SIGKILL (the kernel's parent-death signal).

#![forbid(unsafe_code)]

pub mod interrupt;
mod program;

pub use program::*;
