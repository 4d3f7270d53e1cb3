//! Packets forwarded by the FIB: next hops, TTL, ICMP errors, packets for the kernel.
//!
//! ```text
//!  frames of an interface                                               frames to the VLAN of another interface
//!        |                                                                        ^
//!        v                                                                        |
//!   link, IP header, ---> FIB lookup ---> next hop ---> TTL, MTU, ---> ACL out, new link header
//!   martians, ACL in      of the burst    by flow hash  fragments         |
//!        |                                    |            |              `-> no MAC address yet: wait (glean)
//!        `---- for the kernel: by class <-----'            `---> ICMP error, from the packet's own buffer
//! ```
//! * [`Router`] is the pure core: a burst and a time in, calls of a [`RouteOutput`] out.
//! * [`RouterState`] is what it reads: interfaces and rates in two copies, the FIB in one.
//! * [`RouterHandle`] attaches it to bridges: a logical port and a service of each worker, which run the core.
//! * [`TunnelEnds`] are the tunnels that a VRF carries: their packets are routed as those of this machine.
//! * Passive interfaces ([`EgressMode::Kernel`]) are the kernel's own, behind ports of bridges: only packets of tunnels leave
//!   and arrive by them.
//! * [`explain`] runs the same code for one packet and returns its steps.
//!
//! # What it does not do
//! It forwards no multicast, sends no redirects (RFC 1812, section 5.2.7.2, leaves them to the operator), follows no
//! source routes, and never fragments IPv6.

#![forbid(unsafe_code)]

mod acl;
mod admit;
mod class;
mod counters;
mod diversion;
mod explain;
mod forward;
mod fragment;
mod glean;
mod handle;
mod hash;
mod icmp;
mod interface;
mod limit;
mod link;
mod observe;
mod options;
mod port;
mod send;
mod service;
mod state;
mod tunnel;
mod waiting;

pub use acl::{Acl, AclAction, AclRule};
pub use class::PuntClass;
pub use counters::{InterfaceCounters, InterfaceStats};
pub use explain::{RouteExplanation, explain};
pub use forward::{Arrival, RouteOutput, Router, Waiting};
pub use glean::Glean;
pub use handle::{AttachError, RouterHandle};
pub use icmp::{ErrorClass, IcmpError};
pub use interface::{Address4, Address6, EgressMode, Interface};
pub use limit::PacketRate;
pub use observe::{AclSide, RouteStep};
pub use state::{Change, Rates, RouterState};
pub use tunnel::{TunnelEnd, TunnelEnds, TunnelPath, UNDERLAY_MAC, UnderlayPort};
