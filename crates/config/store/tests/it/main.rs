//! Tests of transactions on disk, including kill -9, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod import;
mod kill;
mod lock;
mod open;
mod owners;
mod owners_at_random;
mod transactions;
