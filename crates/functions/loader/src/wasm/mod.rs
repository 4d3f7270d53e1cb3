//! Functions in WebAssembly modules, run by wasmtime: `millrace_nf::guest` has the interface.
//!
//! A module is a stranger. It reaches nothing but its own memory, whose size is bounded; it may take so much fuel over a
//! burst, about one unit for an instruction, and so much time, since one instruction may move a lot of memory. Packets
//! are copied in and out, and every number that it says of them is checked. Whatever it does wrong takes its hop down,
//! with the reason.

mod clock;
mod function;
mod module;

pub(crate) use module::load;
