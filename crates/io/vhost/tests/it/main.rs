//! vhost-user against honest and dishonest drivers, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod both;
mod driver;
mod lies;
mod model;
mod offloads;
mod rings;
