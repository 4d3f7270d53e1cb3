//! Hosts, links and switches on one machine, from one small file.
//!
//! A host is a network namespace, a link is a veth pair without offloads, a switch is a namespace in which
//! `millraced`, the kernel's bridge or Open vSwitch forwards between the links; a guest is a virtual machine. The root namespace is not
//! touched. [`Lab::up`] builds what a [`Topology`] says, [`Lab::run`] runs commands in it, [`Lab::down`]
//! removes it all, also when `up` was killed half-way: whatever is made is written down first.

#![forbid(unsafe_code)]

mod down;
mod guest;
mod lab;
mod labfile;
mod launch;
mod netlink;
mod netns;
mod place;
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
mod wiring;

pub use down::{DownError, DownReport, Stranger};
pub use guest::Accelerator;
pub use lab::{DaemonStatus, Lab, OpenError, RunError, Status};
pub use problem::{LabFileError, Problem};
pub use process::ProcessId;
pub use program::find_program;
pub use progress::Progress;
pub use state::NodeRecord;
pub use system::SystemError;
pub use topology::{
    Control, Device, End, FailMode, Guest, GuestNic, Host, Interface, IpPrefix, IpPrefixParseError, Link,
    Machine, OvsPorts, Route, Switch, SwitchKind, SwitchPort, Topology,
};
pub use up::{UpError, UpOptions};
