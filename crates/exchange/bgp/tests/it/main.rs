//! Scenarios of the receiver.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod malformed;
mod peers;
mod speaker;
