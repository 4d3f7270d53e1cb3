//! The daemon as a process: its start, its log, and traces of packets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod check;
mod logs;
mod start;
mod trace;
