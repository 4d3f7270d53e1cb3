//! What the switch shows of itself: the JSON of the REST interface as Rust values, for server and client
//! alike.
//!
//! MAC addresses, datapath ids and cookies are text, because JSON has no such types and a cookie does not
//! fit into the number of a browser. Counters are totals since the object was made. A missing value is
//! `null`: the device or the processor does not tell.

mod chain;
mod config;
mod flow;
mod flow_mod;
mod group;
mod port;
mod problem;
mod queue;
mod switch;
mod time;
mod trace;

pub use chain::{Chain, ChainHop, FunctionCounter, FunctionLimit, Restarted};
pub use config::{
    Change, ChangeKind, Committed, ConfirmPending, Confirmation, Diff, Origin, Revision, RevisionConfig,
    Revisions,
};
pub use flow::{
    Action, Flow, FlowCursor, FlowCursorError, FlowPage, Instructions, MatchField, Table, WriteMetadata,
};
pub use flow_mod::{
    CountersReset, FlowModCommand, FlowMods, FlowModsDone, ResetFlowCounters, ResetPortCounters,
};
pub use group::{Band, Bucket, Group, Meter};
pub use port::{AdminState, Colored, Counters, LinkState, MacEntry, Policer, Port, Rates};
pub use problem::{Mistake, Problem, ProblemKind};
pub use queue::EgressQueue;
pub use switch::{
    Bridge, Controller, ControllerState, Dpdk, Drop, Forwarding, Health, Log, LogChange, Queue, Ready,
    Reconciliation, Role, Status, Trouble, Version, Worker,
};
pub use time::moment;
pub use trace::{Matched, Trace, TraceLiveRequest, TraceOutput, TraceRequest, TraceStep};
