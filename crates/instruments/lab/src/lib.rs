//! Hosts, links and switches on one machine, built from one small file.
//!
//! A host is a network namespace, a link is a veth pair without offloads, a switch is a namespace in which
//! `millraced`, the kernel's bridge or Open vSwitch forwards between the links; a guest is a virtual machine. The root
//! namespace is not changed. [`Lab::up`] builds a [`Topology`], [`Lab::run`] runs commands in it, and [`Lab::down`]
//! removes everything, even after `up` was killed: every resource is recorded before it is created.
//!
//! ```text
//!  lab file ──parse──▶ Topology ──Lab::up──▶ state.json, then namespaces, links, daemons
//!                                                 │
//!                                            Lab::down removes what state.json lists
//! ```

#![forbid(unsafe_code)]

mod directory;
mod down;
mod guest;
mod lab;
mod labfile;
mod launch;
mod netlink;
mod netns;
mod problem;
mod process;
mod program;
mod progress;
mod state;
mod switch;
mod system;
mod topology;
mod tune;
mod up;
mod wan;
mod wiring;

pub use down::{DownError, DownReport, ForeignProcess};
pub use guest::{Accelerator, ScriptGuest};
pub use lab::{DaemonStatus, Lab, OpenError, RunError, Status};
pub use netlink::is_veth;
pub use problem::{LabFileError, Problem};
pub use process::ProcessId;
pub use program::find_program;
pub use progress::Progress;
pub use state::NodeRecord;
pub use system::SystemError;
pub use topology::{
    Control, Device, End, FailMode, Guest, GuestNic, Host, Interface, IpPrefix, IpPrefixParseError, Link,
    LinkWan, Machine, OvsPorts, Route, Switch, SwitchKind, SwitchPort, Topology,
};
pub use up::{UpError, UpOptions};
