//! Integration tests of the model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod device;
mod flow_hash;
mod flow_key;
mod rings;
mod stimulus;
