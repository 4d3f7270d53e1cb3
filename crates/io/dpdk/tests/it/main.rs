//! The safe interface of DPDK, tested in one program with one EAL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod eal_once;
mod exhaustion;
mod failures;
mod flows;
mod huge;
mod packets;
mod pcap;
mod ports;
mod starts;
mod truncation;
mod veth;
