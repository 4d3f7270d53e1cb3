//! Tests of the engine against model switches: random sequences with kills, and single cases.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod dependence;
mod fabric;
mod old_database;
mod reconciliation;
mod simulation;
mod store;
mod verification;
mod world;
