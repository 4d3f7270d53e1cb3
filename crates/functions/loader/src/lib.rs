//! Network functions that are loaded from files: WebAssembly modules, and shared objects with the interface of
//! `millrace_nf.h`.
//!
//! A function of a file becomes a [`Kind`](millrace_nf::Kind) like the built-in ones, so chains treat both alike. A module
//! is confined wherever it runs: it has memory of its own, of bounded size, and fuel (ADR 10). A shared object is as trusted
//! as the process that loads it. The switch loads one only from a file that nobody but root and the switch's user can
//! change ([`LIBRARY`]); a function's own process, which has no rights to lose, loads any ([`ANY_LIBRARY`]).

#![deny(unsafe_code)]

mod cache;
mod library;
mod trust;
mod wasm;

use millrace_nf::Loader;

/// `wasm:PATH`.
pub const WASM: Loader = Loader {
    prefix: "wasm",
    load: wasm::load,
};

/// `library:PATH` for the switch itself: the file and every folder above it must belong to root or to the user of this
/// process, with write permission for the owner only.
pub const LIBRARY: Loader = Loader {
    prefix: "library",
    load: library::load,
};

/// `library:PATH` of any owner, for a process in which the function cannot harm other processes.
pub const ANY_LIBRARY: Loader = Loader {
    prefix: "library",
    load: library::load_any,
};

/// The loaders of the switch.
pub const LOADERS: &[Loader] = &[WASM, LIBRARY];

/// The loaders of a function's own process, and of a person's command line.
pub const ANY_LOADERS: &[Loader] = &[WASM, ANY_LIBRARY];
