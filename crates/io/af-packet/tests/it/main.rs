//! Interfaces of the kernel: a pair of virtual Ethernet interfaces in a network namespace of each test's own, which the
//! kernel removes with it. Needs root; says so and passes otherwise.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod frames;
mod hostile;
mod interfaces;
mod rig;
