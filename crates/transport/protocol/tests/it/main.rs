//! Integration tests of the transport: packets of other implementations, and a group with its receivers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::single_range_in_vec_init,
    reason = "a test fails by panicking, and compares sets of one range"
)]

mod golden;
mod group;
