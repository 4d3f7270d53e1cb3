//! The experiments, one folder each.
//!
//! A folder has the same few files, as far as the experiment needs them: `mod.rs` (what is measured, and the run),
//! `cli.rs` (arguments of its own), `site.rs` (the test bed), `section.rs` (its part of the report). Cases and bounds are
//! data in [`crate::case`] and [`crate::figure`]; records are lines of [`crate::record`].

pub mod bridge;
pub mod chain;
pub mod forward;
pub mod grow;
pub mod guests;
pub mod install;
pub mod lan;
pub mod latency;
pub mod profile;
pub mod qos;
pub mod rate;
pub mod updates;
pub mod veth;
