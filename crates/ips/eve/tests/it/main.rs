//! Tests of EVE records, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod actions;
mod any;
mod dropped;
mod evidence;
mod schema;
