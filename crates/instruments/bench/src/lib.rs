//! Measures switches beside each other, in turn, in one run: Millrace, Open vSwitch with DPDK, testpmd.
//!
//! A [`workload`] is made from a seed: flow entries that `ovs-ofctl` sends to any switch, and packets that
//! any of them replays. A [`peer`] is a system that is started with it. An experiment ([`forward`]) measures
//! peers in turn and writes a [`record`] of everything; the [`table`] and the report are made of that.
//! [`cli`] is `millrace bench`.

#![forbid(unsafe_code)]

pub mod bridge;
pub mod case;
pub mod chains;
pub mod cli;
pub mod distance;
pub mod figure;
pub mod forward;
pub mod generate;
pub mod grow;
pub mod guests;
mod hugepages;
pub mod install;
mod interrupt;
pub mod lan;
pub mod latency;
pub mod machine;
pub mod peer;
pub mod process;
pub mod profile;
pub mod qos;
pub mod random;
pub mod rate;
pub mod record;
pub mod report;
pub mod run;
pub mod stats;
pub mod table;
pub mod veth;
pub mod workload;
