//! Scenarios in virtual time: systems that exchange frames over simulated links.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod lacp;
mod rstp;
