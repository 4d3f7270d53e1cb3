//! The FIB beside slow tables, and under readers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod churn;
mod next_hops;
mod readers;
mod slow;
