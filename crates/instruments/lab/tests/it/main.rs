//! Lab files, and labs on this machine's kernel, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod labfile;
mod smoke;
