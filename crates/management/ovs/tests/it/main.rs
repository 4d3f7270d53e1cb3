//! Rows of a database as a configuration, and back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail"
)]

mod addresses;
mod bonds;
mod database;
mod documented;
mod exports;
mod mirrors;
mod rows_to_model;
mod silence;
mod state_to_rows;
mod together;
