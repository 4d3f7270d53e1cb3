//! Tests of the DAQ modules as shared objects against a running switch. The loader of the tests uses both
//! interfaces; the packaged libdaq 2 is another loader.

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
