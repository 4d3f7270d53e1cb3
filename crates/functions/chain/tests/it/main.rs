//! Integration tests of chains in a running switch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod attached;
mod effects;
mod inline;
mod shared;
mod testbed;
