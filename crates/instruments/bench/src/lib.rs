//! Measures switches side by side, in turn, in one run: Millrace, Open vSwitch with DPDK, testpmd.
//!
//! ```text
//!  cli ---> experiments/* ---> generate, peer ---> workload     what is measured
//!   |             |                                            (switches are programs beside this one)
//!   |             v
//!   |            run ---> record (JSON lines in a folder)
//!   |                        |
//!   +------> table           +---> page, experiments/*/section  what is shown
//! ```
//!
//! A [`workload`] is a function of its seed: flow entries that `ovs-ofctl` sends to any switch, and packets that any
//! switch replays. A [`peer`] is a system that is started with a workload. An experiment ([`experiments`]) measures
//! peers in turn and writes [`record`]s; the [`table`] and the report ([`page`]) are functions of the records. [`cli`]
//! is `millrace bench`.

#![forbid(unsafe_code)]

pub mod case;
pub mod cli;
pub mod core_latency;
pub mod experiments;
pub mod figure;
mod file_error;
pub mod gated;
pub mod generate;
mod hugepages;
pub mod machine;
pub mod page;
pub mod peer;
pub mod random;
pub mod record;
pub mod run;
pub mod table;
mod usage;
pub mod workload;
