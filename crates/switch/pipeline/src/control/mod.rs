//! The control half of the pipeline: the single writer of one bridge.
//!
//! [`Control`] holds the authoritative state of a bridge: flow entries, groups, meters, ports, MAC table. A
//! request is validated first, then applied completely or not at all. It appends the [`Op`](crate::Op)s that
//! bring the readers' copies to the same state. The control half never sees a packet.
//!
//! # Slots and their counters
//! The [`Slot`](millrace_flow::classify::Slot) of a flow entry is also the index of its counters in each
//! worker. Groups, buckets, meters and bands have slots of the same range, only for their counters. Workers
//! may count packets of a removed entry until the change is published. The slot of a removed entry therefore
//! stays in use until [`Control::published`], which reads the final counters, reports the entry and frees the
//! slot.
//!
//! # Cost
//! A request that names one entry takes constant time. A request that covers many entries visits all entries
//! of all tables once. So does an add that checks for overlaps, if entries of its table and priority have
//! other fields or masks. Expiry and listings do bounded work at each call and continue at the next.
//!
//! # Layers
//! Files import each other in one direction only, from the first of these lines to the last:
//!
//! 1. `error`, `request`, `limits`, `capabilities`, `validate`: requests, and their validation without the state
//! 2. `wheel`, `record`, `changes`, `strict`, `groups`, `meters`, `fdb`, `config`, `idle_table`, `journal`: parts of
//!    the state
//! 3. `writer`: [`Control`], the state
//! 4. the requests: `flow_mod`, `group_mod`, `meter_mod`, `ports`, `table_features`, `transaction`, `reset`, `restore`; and the
//!    periodic and read-only operations: `expiry`, `eviction`, `learning`, `statistics`

mod capabilities;
mod changes;
mod config;
mod error;
mod error_code;
mod eviction;
mod expiry;
mod fdb;
mod flow_mod;
mod group_mod;
mod groups;
mod idle_table;
mod journal;
mod learning;
mod limits;
mod meter_mod;
mod meters;
mod ports;
mod record;
mod request;
mod reset;
mod restore;
mod statistics;
mod strict;
mod table_features;
mod transaction;
mod validate;
mod wheel;
mod writer;

pub use capabilities::{
    ActionCapabilities, EntryCapabilities, PipelineError, TableCapabilities, TableSet, TypeSet,
};
pub use changes::{ChangeKind, EntryChange};
pub use config::ControlConfig;
pub use error::{
    ActionError, CapabilityError, ExtensionError, FlowModError, GroupModError, MeterModError, PortModError,
};
pub use error_code::ErrorCode;
pub use fdb::FdbConfig;
pub use flow_mod::Prepared;
pub use group_mod::{GroupMod, GroupStat};
pub use limits::{TableLimit, WhenFull};
pub use meter_mod::{MeterMod, MeterStat};
pub use request::{
    Aggregate, Cursor, FlowFilter, FlowMod, FlowModCommand, FlowRemoved, FlowStat, ModOutcome, RemovedReason,
    TableStat,
};
pub use writer::Control;
