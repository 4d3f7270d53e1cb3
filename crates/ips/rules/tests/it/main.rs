//! Tests of the rule languages, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod files;
mod keywords;
mod refusals;
mod round_trip;
mod sample;
mod syntaxes;
