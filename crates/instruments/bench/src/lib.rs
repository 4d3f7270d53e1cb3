//! Measures switches beside each other, in turn, in one run: Millrace, Open vSwitch with DPDK, testpmd.
//!
//! A [`workload`] is made from a seed: flow entries that `ovs-ofctl` sends to any switch, and packets that
//! any of them replays. A [`peer`] is a system that is started with it. An experiment ([`forward`]) measures
//! peers in turn and writes a [`record`] of everything; the [`table`] and the report are made of that.
//! [`cli`] is `millrace bench`.

#![forbid(unsafe_code)]

pub mod case;
pub mod cli;
pub mod distance;
pub mod experiments;
pub mod figure;
pub mod generate;
mod hugepages;
pub mod machine;
pub mod page;
pub mod peer;
pub mod random;
pub mod record;
pub mod run;
pub mod table;
pub mod workload;
