//! A bridge and its control thread: the single writer of its tables, and the only reader of its workers' events.
//!
//! Everything that wants to read or change a bridge (a connection with a controller, reconciliation, the REST API)
//! sends a task. Tasks run on the control thread, in order, with exclusive access to the bridge:
//!
//! ```text
//!   controllers' connections ---+
//!   reconciliation (Switch) ----+--> tasks --> control thread --> tables --> publication --> workers
//!   REST API (Live) ------------+              |  ^                                              |
//!                                              |  +--- packet-ins, learned addresses, captures --+
//!                                              +--> asynchronous messages --> controllers
//! ```
//!
//! Between tasks the thread publishes changes, expires flow entries, learns addresses and delivers packet-ins. It
//! sleeps when there is nothing to do, and workers wake it.
//!
//! A file imports only files of the same or a lower number in this list, without cycles:
//!
//! 1. `settings`, `devices`, `qos`, `refused_frames`, `neighbours`, `neighbour_frames`, `hops`, `router_port`, `taps`, `chains`, `mirrors`, `monitors`,
//!    `oam_status`, `recording`, `spanning_tree`, `lag`, `lldp_changes`, `sflow_records`, `ipfix_flow`, `ipfix_session`, `ipfix_exporter`, `sflow_agent`: data, and conversions of the configuration
//! 2. `bridge`: the state of a bridge and its publication
//! 3. `fail_mode`, `router`, `tunnels`, `lacp`, `lldp`, `rstp`, `oam`, `sflow`, `ports`, `vnics`, `apply_chains`, `chain_trace`, `captures`, `operator`,
//!    `record`: operations on a bridge
//! 4. `handle`: tasks; `thread`: the loop that runs them

mod apply_chains;
mod bridge;
mod captures;
mod chain_trace;
mod chains;
mod devices;
mod fail_mode;
mod handle;
mod hops;
mod ipfix_exporter;
mod ipfix_flow;
mod ipfix_session;
pub mod lacp;
mod lag;
mod lldp;
mod lldp_changes;
mod mirrors;
mod monitors;
mod neighbour_frames;
mod neighbours;
mod oam;
mod oam_status;
mod operator;
mod ports;
mod qos;
mod record;
mod recording;
mod refused_frames;
mod round;
mod router;
mod router_port;
pub mod rstp;
mod settings;
mod sflow;
mod sflow_agent;
mod sflow_records;
mod spanning_tree;
mod taps;
mod thread;
mod tunnels;
mod vnics;

pub use crate::port::PortStatus;
pub use bridge::BridgeControl;
pub use chain_trace::{ChainTrace, ChainTraceEnd, TracedHop};
pub use handle::{BridgeHandle, TaskError};
pub use hops::{HopProblem, HopProblems};
pub use ipfix_exporter::IpfixStatus;
pub use ipfix_session::IpfixCollectorStatus;
pub use lldp::LldpStatus;
pub use millrace_l2ctl::lldp::Neighbour as LldpNeighbour;
pub use oam_status::{BfdStatus, CcmStatus, DampingStatus, OamStatus};
pub use operator::RefusedFlowMod;
pub use ports::PortProblem;
pub(crate) use router_port::{BridgeInterfaces, LinkChange, SharedRouter};
pub use router_port::{TunnelEgress, TunnelRoute};
pub use sflow_agent::{CollectorStatus, PortSamples, SflowStatus};
pub use taps::{CaptureRequest, CaptureSink, Captured, TraceOutcome};
pub use thread::{RunningBridge, StartBridgeError};
pub(crate) use tunnels::tunnel_key;
