//! DAQ modules as shared objects, driven by a loader of our own through both interfaces, and by the packaged libdaq 2, against a
//! running switch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod kills;
mod loader;
mod packaged;
#[path = "../../../chain/tests/it/testbed/mod.rs"]
mod testbed;
mod verdicts;
