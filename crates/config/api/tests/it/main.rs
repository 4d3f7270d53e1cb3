//! Tests of the REST interface on the wire, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod document;
mod owners;
mod patience;
mod rest;
mod routing;
mod state;
mod streams;
mod trust;
mod wire;
