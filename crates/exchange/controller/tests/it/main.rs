//! The connection against a scripted switch, and the driver against real switches, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod commit;
mod hostile;
mod listing;
mod millrace;
mod open_vswitch;
mod script;
mod tls;
