//! Scenarios of the receiver.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bgpkit;
mod malformed;
mod malformed_systematic;
mod million;
mod peers;
mod speaker;
