//! Tests of the command line, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod chains;
mod changes;
mod connection;
mod courier;
mod edits;
mod flows;
mod harness;
mod ips;
mod kill;
mod lab;
mod owners;
mod packets;
mod permissions;
mod show;
mod simulate;
mod transfers;
