//! The JSON of the REST interface as Rust values, for server and client.
//!
//! MAC addresses, datapath ids and cookies are text: JSON has no such types, and a cookie exceeds the integers of a
//! browser. Counters are totals since the object was created. A value is `null` if the device or the processor does
//! not provide it.

mod chain;
mod config;
mod flow;
mod flow_mod;
#[cfg(feature = "server")]
mod from_flow;
#[cfg(feature = "server")]
mod from_store;
mod group;
mod ipfix;
mod lag;
mod lock;
mod mirror;
mod nic;
mod offload;
mod ovsdb;
mod port;
mod problem;
mod queue;
mod routing;
mod sflow;
mod state;
mod switch;
mod time;
mod trace;

pub use chain::{Chain, ChainHop, FunctionCounter, FunctionLimit, Reloading, Restarted, SharedState};
pub use config::{
    Change, ChangeKind, Committed, ConfirmPending, Confirmation, Diff, Operation, OwnRequest, Owned,
    Ownership, Revision, RevisionConfig, Revisions,
};
pub use flow::{
    Action, Flow, FlowCursor, FlowCursorError, FlowPage, Instructions, MatchField, Table, WriteMetadata,
};
pub use flow_mod::{
    CountersReset, FlowModCommand, FlowMods, FlowModsDone, FlowsSaved, FlushMacs, MacsFlushed,
    ResetFlowCounters, ResetPortCounters,
};
pub use group::{Band, Bucket, Group, Meter};
pub use ipfix::{Ipfix, IpfixCollector};
pub use lag::{Lacp, LacpParticipant, Lag, LagMember};
pub use lock::{Lock, LockState, LockTaken};
pub use millrace_wan_control::{
    Delay as WanDelay, DirectionStatus as WanDirection, DropCount as WanDrop,
    InterfaceStatus as WanInterface, PathStatus as WanPath,
};
pub use mirror::Mirror;
pub use nic::{NicEntry, NicRegister};
pub use offload::{Offload, OffloadRefusal};
pub use ovsdb::{Ovsdb, OvsdbFault, OvsdbState};
pub use port::{
    AdminState, BfdSession, Colored, ContinuityCheck, Counters, Damping, LinkState, Lldp, LldpNeighbour,
    MacEntry, Oam, Policer, Port, Rates, RstpPort,
};
pub use problem::{InvalidValue, Problem, ProblemKind};
pub use queue::EgressQueue;
pub use routing::{
    IcmpErrors, IgnoredMessages, Neighbour, NextHopGroup, Punted, Route, RouteKind, RouteNextHop, RoutePage,
    RouteSourceCounters, RouteSourceState, RouterInterface, RouterTotals, Vrf,
};
pub use sflow::{Sflow, SflowCollector, SflowPort};
pub use state::{
    Link, LldpState, PortState, RouterNeighbour, State, StateEvent, StateKind, StateKindError, StateReset,
    TunnelNeighbour,
};
pub use switch::{
    Bridge, Controller, ControllerState, Dpdk, Drop, Forwarding, Health, Log, LogChange, Queue, Ready,
    Reconciliation, Role, Status, StatusProblem, Version, Worker,
};
pub use time::format_utc;
pub use trace::{Matched, Trace, TraceLiveRequest, TraceOutput, TraceRequest, TraceStep};
