//! The engine against model switches: random worlds with kills, and single behaviours.

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
mod world;
