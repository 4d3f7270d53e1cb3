//! The OpenFlow codec against itself, os-ken and ovs-ofctl, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod arbitrary;
mod golden;
mod ovs_ofctl;
mod round_trip;
