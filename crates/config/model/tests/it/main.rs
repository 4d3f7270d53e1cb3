//! Integration tests of the configuration model: text, validation and messages, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod chains;
mod ipfix;
mod lags;
mod messages;
mod mirrors;
mod oam;
mod offload;
mod qos;
mod reference;
mod round_trip;
mod routing;
mod sflow;
mod vlans;
