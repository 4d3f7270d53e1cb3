//! Senders and receivers over sockets on loopback.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panics"
)]

mod admission;
mod emulated;
mod loopback;
mod memif;
mod memory;
mod reads;
mod refusals;
mod testbed;
mod trees;
mod wan;
