//! Kernel interfaces: each test has a pair of virtual Ethernet interfaces in a network namespace of its own, which the
//! kernel removes with it. The tests need root; without it they print a line and pass.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod frames;
mod hostile;
mod interfaces;
mod test_bed;
