//! The experiments, one folder each. A folder has the same files, as far as the experiment needs them:
//!
//! | file | content |
//! | --- | --- |
//! | `mod.rs` | what is measured, and the run |
//! | `cli.rs` | arguments of its own |
//! | `quantities.rs` | the quantities and their bounds, which [`crate::figure::all`] lists |
//! | `record.rs` | the records of its own, each a variant of [`crate::record::Record`] |
//! | `error.rs` | the errors of its own |
//! | `test_bed.rs` | hosts, links and switches around the system under test |
//! | `section.rs` | its section of the report |
//!
//! The README of the crate lists the steps to add an experiment.

pub mod bridge;
pub mod chain;
pub mod exchange;
pub mod forward;
pub mod grow;
pub mod guests;
pub mod install;
pub mod ips;
pub mod lan;
pub mod latency;
pub mod nic;
pub mod profile;
pub mod qos;
pub mod rate;
pub mod route;
pub mod transport;
pub mod updates;
pub mod veth;
pub mod wan;
