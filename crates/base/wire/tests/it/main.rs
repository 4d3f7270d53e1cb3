//! Tests of header views, rewrites and checksums against frames of scapy, generated frames and slow oracles.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod combined;
mod layers;
mod recipe;
mod rewrite;
mod segment;
mod segment_tunnels;
mod tunnel;
mod vectors;
