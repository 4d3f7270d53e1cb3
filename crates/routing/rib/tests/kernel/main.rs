//! The RIB beside the real kernel: the same operations in a namespace, by `ip`, and then the surviving routes and `ip route
//! get` compared with the RIB and with lookups in its FIB. No dump is made as a check meanwhile: what the kernel does in
//! silence, the RIB has to know.
//!
//! Needs root. `MILLRACE_ROUTING_ADDRESSES` is the number of addresses that are compared after each phase of the churn (500 if
//! unset; the full form has 1,000,000).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it repairs"
)]

mod bed;
mod churn;
mod rules;
