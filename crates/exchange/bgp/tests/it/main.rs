//! Tests of the BGP receiver: peers, malformed messages, memory, RTR caches, and a comparison with bgpkit-parser.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bgpkit;
mod malformed;
mod malformed_systematic;
mod million;
mod peers;
mod rtr;
mod rtr_states;
mod speaker;
