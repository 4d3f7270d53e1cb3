//! Scenarios of the crate, one module for each file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod candidate;
mod confirmed;
mod fake;
mod hello;
mod interfaces;
mod locks;
mod notifications;
mod reads;
