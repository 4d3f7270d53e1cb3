//! Workers on memory devices, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod changes;
mod congestion;
mod drops;
mod flow_hash;
mod gso;
mod lag;
mod lost;
mod mirrors;
mod no_allocation;
mod offload;
mod queues;
mod sampling;
mod scheduler;
mod spreading;
mod switching;
