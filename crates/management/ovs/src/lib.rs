//! Rows of an Open vSwitch database (ovs-vswitchd.conf.db(5)) as a configuration, and the state of the switch as rows.
//! Without IO or clock.
//!
//! ```text
//!  Replica ── translate ──▶ Translation ── settle ──▶ Config          (towards the switch)
//!                              bridges, rows, faults
//!  State + Translation ── Written::changes ──▶ operations of a transaction   (towards the database)
//! ```
//!
//! A row that cannot be had never prevents another one: it becomes a [`Fault`] with the name of the row and the reason,
//! and for an interface also the text of its column `error`.

#![forbid(unsafe_code)]

mod addresses;
pub mod appctl;
mod bond;
mod bond_keys;
mod bridge;
mod columns;
mod controller;
mod fault;
mod interface;
mod ipfix;
mod keys;
mod links;
mod lldp;
mod mirror;
mod numbers;
mod one;
mod place;
mod port;
mod qos;
mod rows;
mod settle;
mod spanning_tree;
mod state;
mod translate;
mod trees;
pub mod tunnels;
mod unread;
mod values;
mod write;

pub use columns::{DATABASE, LOCK, MONITORED};
pub use fault::{Fault, RowName, Severity};
pub use numbers::Numbers;
pub use place::{BridgeRow, ControllerRow, InterfaceRow, MirrorRow, PortRow, Translation};
pub use settle::settle;
pub use state::{
    BridgeState, ChannelState, HostRoute, HostState, LacpState, LagMemberState, LagState, MacState,
    MirrorState, Participant, PortState, State, TreeBridge, TreePort, TreeState, TreeTimes, TunnelEgress,
    TunnelState,
};
pub use translate::{Context, translate};
pub use write::Written;
