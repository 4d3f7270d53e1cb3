//! Integration tests of functions from files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod guests;
mod hostile;
mod library;
