//! Network functions that are loaded from files: WebAssembly modules, and shared objects with the interface of
//! `millrace_nf.h`.
//!
//! What a file holds becomes a [`Kind`](millrace_nf::Kind) as those that come along, so that chains need not know. A
//! module is shut in wherever it runs: it has its own memory, of bounded size, and its fuel (ADR 10). A shared object is
//! as trusted as the process that loads it, which is why one for a process of its own is loaded there alone.

#![deny(unsafe_code)]

mod cache;
mod library;
mod wasm;

use millrace_nf::Loader;

/// `wasm:PATH`.
pub const WASM: Loader = Loader {
    prefix: "wasm",
    load: wasm::load,
};

/// `library:PATH`.
pub const LIBRARY: Loader = Loader {
    prefix: "library",
    load: library::load,
};

/// Every way to load a function.
pub const LOADERS: &[Loader] = &[WASM, LIBRARY];
