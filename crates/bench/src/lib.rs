//! Measures switches beside each other, in turn, in one run.

#![forbid(unsafe_code)]

pub mod random;
pub mod stats;
pub mod workload;
