//! The kernel, FRR and BIRD as peers, in network namespaces of the tests' threads. The tests need root; without it they print a
//! line and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod bed;
mod damage;
mod fpm;
mod frr;
mod kernel;
mod oracle;
mod overrun;
mod settings;
mod shadow;
