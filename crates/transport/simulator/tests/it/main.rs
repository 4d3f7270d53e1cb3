//! Acceptance tests of congestion control in virtual time: rows T7, T8 and T9 of issue 23, and T1's grid in part.
//!
//! Each prints what was asked and what was reached. All of them together move less than 2·10^7 packets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod fairness;
mod goodput;
mod hostile;
mod paths;
mod policies;
mod ramp;
mod scenarios;
