//! `millrace profile`: a profile of each system, in a case of `forward`, between two hosts, or on a simulated
//! processor (E6 in docs/gates.md).

pub mod cli;
mod error;
mod forward;
pub(crate) mod section;
pub(crate) mod simulated_section;

pub use error::CommandError;
