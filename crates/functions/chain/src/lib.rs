//! Chains of network functions: what an operator wants ([`ChainPlan`]), what the control side holds ([`Chain`]), and
//! what a worker runs (a lane, which is a [`Service`](millrace_datapath::service::Service) of the bridge).
//!
//! A chain is a set of logical ports of its bridge: one or two ends, and a port for each hop that has a number. What
//! is sent to a port enters a ring for each lane; the lane's worker carries it from hop to hop, a burst at a time, and
//! hands what comes out to the tables with the port at which it comes out as `in_port`. See ADR 8.

#![forbid(unsafe_code)]

mod carrier;
mod cgroup;
mod control;
mod counters;
mod held;
mod hop;
mod lane;
mod plan;
mod port;
mod process;
mod restart;
mod together;
mod travel;

pub use carrier::Carrier;
pub use cgroup::Limit;
pub use control::{Around, Chain, ChainError, PortChanges};
pub use counters::{ChainStats, HopState, HopStats};
pub use plan::{ChainPlan, Class, HopPlan, OnFailure};
pub use process::{UserIds, end_processes, nf_program, use_user_ids};
