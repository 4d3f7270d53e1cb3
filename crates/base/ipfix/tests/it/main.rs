//! Messages: an independent reader finds what was written.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail"
)]

mod read;
mod tshark;
