//! The codec, the session and the tables.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail"
)]

mod codec;
mod mibs;
mod protocol;
