//! The program `millrace-ix` as a process: orders, restarts, the audit chain.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod process;
mod web;
