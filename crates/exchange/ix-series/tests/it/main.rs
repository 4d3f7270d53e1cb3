//! The store against a naive model, through restarts, damage and years.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod damage;
mod ends;
mod engines;
mod model;
mod months;
mod size;
