//! The planner in virtual time: heavy flows that change, floods, refusals, devices that answer wrongly.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod planner;
