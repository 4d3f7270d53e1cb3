//! Rates, attacks and the receiver, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod attacks;
mod collector;
mod members;
mod trunks;
