//! The packet pipeline: tables, execution of instructions and actions, counters, time-outs and explanations (OpenFlow
//! 1.3.5, section 5).
//!
//! The crate has two halves that share values and nothing else.
//!
//! - **Workers** read a [`Forwarding`] with a [`Processor`] and hand the results to an [`Egress`]. They take
//!   no lock, allocate nothing and never wait.
//! - **The control side** holds a [`Control`], the single writer of one bridge. It emits its changes as [`Op`]s, which
//!   the datapath applies to two copies of the [`Forwarding`]; workers read one of them.
//!
//! Pure: no clock (time is an argument), no IO.

#![forbid(unsafe_code)]

mod action_set;
mod action_summary;
mod control;
mod counters;
mod drops;
mod egress;
mod entry;
mod fdb;
mod flow_cache_policy;
mod forwarding;
mod fragments;
mod group;
mod marks;
mod meter;
mod mirror;
mod normal_ingress;
mod normal_settings;
mod oam;
mod op;
mod police;
mod port;
mod processor;
mod rewrite;
mod standalone;
mod trace;
mod tunnel;

pub use control::{
    ActionCapabilities, ActionError, Aggregate, CapabilityError, ChangeKind, Control, ControlConfig, Cursor,
    EntryCapabilities, EntryChange, ErrorCode, ExtensionError, FdbConfig, FlowFilter, FlowMod,
    FlowModCommand, FlowModError, FlowRemoved, FlowStat, GroupMod, GroupModError, GroupStat, MeterMod,
    MeterModError, MeterStat, ModOutcome, PipelineError, PortModError, Prepared, RemovedReason,
    TableCapabilities, TableLimit, TableSet, TableStat, TypeSet, WhenFull,
};
pub use counters::{Counters, EntryCount, TableCount};
pub use drops::{DropCounts, DropReason};
pub use egress::{Egress, Learn, PacketInInfo, PacketInReason};
pub use entry::{FlowEntry, FlowEntryParts, FlowFlags};
pub use fdb::{FdbEntry, FdbKey};
pub use flow_cache_policy::FlowCachePolicy;
pub use forwarding::Forwarding;
pub use fragments::{Assembled, Assembler, FragmentError, FragmentMode, FragmentView};
pub use group::{CompiledGroup, Group, GroupKind};
pub use marks::{DropPath, MarkColumn, MarkCounts, MarkLevel, MarkObstacle, MarkState, SlotChange, Slots};
pub use meter::{Band, BandKind, CompiledMeter, DEFAULT_BURST, Meter, MeterFlags};
pub use mirror::{MIRRORS_MAX, Mirror, MirrorCount, MirrorCounters, MirrorOutput, Mirrors};
pub use normal_ingress::NormalIngress;
pub use normal_settings::NormalSettings;
pub use oam::{OamPort, OamPorts};
pub use op::Op;
pub use police::{
    Color, ColorAction, ColorCount, Marks, Policer, PolicerCounters, PolicerPlan, PolicerRates,
};
pub use port::{Port, PortConfig, PortState, ServicePort, VidSet, VlanMode};
pub use processor::explain::{Explanation, Step, explain};
pub use processor::{ObservedPacket, Origin, Processor};
pub use standalone::Standalone;
pub use trace::LiveTrace;
pub use tunnel::{Logical, NshPath, NshPort, Tunnel, TunnelCounts, TunnelKey, TunnelStat, Tunnels};
