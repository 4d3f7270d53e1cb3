//! Unsafe bindings to DPDK: an allowlist of its functions through bindgen, a C shim for those that exist only as
//! `static inline`, and [`mbuf`], which reads packet buffer fields without a call.
//!
//! Built against the DPDK that `pkg-config libdpdk` names: 22.11, 23.11 or 24.11. Structures whose fields
//! differ between these releases are opaque here; the shim turns them into the flat `shim_*` structures.

#![no_std]

pub mod mbuf;

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;
