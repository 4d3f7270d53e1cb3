//! Acceptance tests of the transport in virtual time: rows T1, T2 and T4 to T9 of docs/gates.md, and random scenarios.
//!
//! Each prints the required and the reached figure. All of them together move less than 2·10^7 packets
//! (`budget`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod audit;
mod budget;
mod path_mtu;
mod paths;
mod policies;
mod rows;
mod scenarios;
