//! Tables, actions and their models, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod actions;
mod allocator;
mod control;
mod eviction;
mod flow_cache;
mod fragments;
mod group_model;
mod group_mods;
mod groups;
mod harness;
mod marks;
mod memory;
mod meters;
mod mirrors;
mod model;
mod no_allocation;
mod normal;
mod nsh;
mod oam;
mod packets;
mod rewrites;
mod tunnels;
