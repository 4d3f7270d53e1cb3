//! Functions in WebAssembly modules, run by wasmtime. `millrace_nf::guest` documents the interface.
//!
//! Modules are not trusted. A module reaches only its own memory, whose size is limited. Fuel, about one unit for an
//! instruction, limits its work for a burst, and a clock limits its time, because one instruction may copy much memory.
//! Packets are copied in and out, and every number that a module writes is checked. Any violation takes its hop down, with
//! the reason.

mod clock;
mod function;
mod instance;
mod module;

pub(crate) use module::load;
