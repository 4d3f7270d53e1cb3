//! Scenarios of the crate, one module for each file.

mod fake;
mod get;
mod set;
mod subscribe;
