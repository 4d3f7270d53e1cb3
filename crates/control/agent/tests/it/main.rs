//! A whole switch on memory ports under real sockets, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod admission;
mod auxiliary;
mod bundles;
mod chains;
mod controllers;
mod deaf;
mod fail_mode;
mod harness;
mod keep;
mod long_replies;
mod malformed;
mod monitor;
mod moves;
mod oam;
mod operator;
mod ovs_ofctl;
mod ports;
mod queues;
mod sflow;
mod tables;
mod tls;
