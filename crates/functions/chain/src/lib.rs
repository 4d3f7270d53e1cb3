//! Chains of network functions: the desired state ([`ChainPlan`]), the control side ([`Chain`]), and the data plane (a lane,
//! which is a [`Service`](millrace_datapath::service::Service) of the bridge).
//!
//! ```text
//!            control side                       |  worker
//!  ChainPlan --edit--> Chain --Change--> LaneHandle ======> Lane: hop, hop, hop
//!                        |                      |             |
//!                        | starts, kills        |             | window of shared memory
//!                        v                      |             v
//!                     Process ................. | ..... millrace-nf (class ring, isolated)
//! ```
//! A chain has logical ports in its bridge: one or two ends, and a port for each hop with a number. A packet that is sent to
//! a port enters the ring of a lane. The lane's worker passes bursts from hop to hop, and gives the packets that leave the
//! chain to the flow tables, with the port of the end as `in_port` (ADR 8).

#![forbid(unsafe_code)]

mod cgroup;
mod control;
mod counters;
mod exporter;
mod group;
mod hop;
mod in_flight;
mod lane;
mod packets;
mod parallel;
mod plan;
mod port;
mod process;
mod restart;
mod sent;
mod shared;
mod shunned;
mod traversal;
mod treatment;

pub use cgroup::Limit;
pub use control::{Chain, ChainError, Environment, PortChanges};
pub use counters::{ChainStats, HopState, HopStats};
pub use exporter::{Exporter, reopen_exports};
pub use plan::{ChainPlan, Class, HopPlan, OnFailure};
pub use process::{UserIds, end_processes, nf_program, use_user_ids};
pub use shared::SharedStatus;
