//! Peers, evidence and filters together.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lookup;
mod rfc9117;
mod rules;
mod world;
