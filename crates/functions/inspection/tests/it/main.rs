//! The functions `ips` and `ids`, called as a switch calls them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod bed;
mod decisions;
mod reload;

// Builders of packets, and the evasions that the engine's own tests have.
#[path = "../../../../ips/engine/tests/it/bed.rs"]
#[allow(dead_code, reason = "the engine of these tests is inside a function")]
mod packets;

#[path = "../../../../ips/engine/tests/it/evasions_ip.rs"]
mod evasions_ip;
#[path = "../../../../ips/engine/tests/it/evasions_tcp.rs"]
mod evasions_tcp;
