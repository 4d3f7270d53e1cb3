//! Integration tests of function processes in running switches.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod attached;
mod confined;
mod hostile;
mod inspection;
mod isolated;
mod library;
mod limits;
mod loaded;
mod parallel;
mod ring;
mod switch;
#[path = "../../../../crates/functions/chain/tests/it/testbed/mod.rs"]
mod testbed;
mod vhost;
