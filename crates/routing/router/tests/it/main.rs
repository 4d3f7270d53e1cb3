//! Tests of the router's core.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod allocator;
mod bridges;
mod errors;
mod forwarding;
mod harness;
mod model;
mod no_allocation;
mod punts;
mod tunnels;
