//! The vocabulary of Millrace: newtypes whose values are always valid.
//!
//! Every other crate uses these types. This crate has no dependency, no IO and no clock. A type that has invalid bit
//! patterns keeps its field private and has a fallible constructor; a type for which every bit pattern is valid (a
//! [`Cookie`], a [`Dpid`]) is a plain public wrapper.

#![forbid(unsafe_code)]

pub mod calendar;
mod causes;
mod duration;
mod mac;
mod nsh;
mod openflow;
mod port;
mod rate;
pub mod shell;
pub mod split_mix;
mod time;
mod tunnel;
mod vlan;

pub use causes::ErrorChain;
pub use duration::{DurationParseError, Seconds, parse_duration};
pub use mac::{Mac, MacParseError};
pub use nsh::{ServicePath, ServicePathError};
pub use openflow::{
    BufferId, Cookie, Dpid, DpidParseError, GroupId, MeterId, Priority, QueueId, TableId, Xid,
};
pub use port::{PortNo, PortNoError};
pub use rate::{BitRate, BitRateParseError};
pub use time::{Duration, Time};
pub use tunnel::TunnelKind;
pub use vlan::{Pcp, PcpError, Vid, VidError};
