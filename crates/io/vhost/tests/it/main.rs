//! The device side of vhost-user, with conforming drivers and with drivers that violate the protocol.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod both;
mod driver;
mod model;
mod offloads;
mod rings;
mod violations;
