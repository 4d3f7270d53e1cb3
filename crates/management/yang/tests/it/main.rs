//! Scenarios of the crate, one module for each file.

mod edit;
mod module;
