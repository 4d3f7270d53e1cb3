//! The RIB by its events: the kernel's rules, FPM, dumps, and a slow model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod fpm;
mod hosts;
mod kernel_rules;
mod own;
mod properties;
mod sweeps;
mod world;
