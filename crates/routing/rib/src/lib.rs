//! Routes from the kernel and from FPM as changes of the FIB, without IO or clock.
//!
//! ```text
//!  netlink, FPM ── Event ──> Rib ── Writer ──> FIBs, groups, next hops  (millrace-fib; workers read them)
//!                             │
//!                             └── Action ──> netlink: dumps, managed neighbours, NTF_USE
//! ```
//!
//! The kernel's routes change without a message where a link, an address or a next-hop object goes (`rules`). The RIB
//! applies the same rules to its own copy, repairs groups before it removes routes, and dumps the namespace afterwards as
//! a check. What a dump does not name is gone.
//!
//! A route's next hops are a *set*; equal ones share it, and it is one group of the FIB. A neighbour that packets may be
//! sent to, on an interface of the router, has a host route in the FIB, if the kernel would send packets to it on that
//! link; all other destinations of a connected route are gleaned.

#![forbid(unsafe_code)]

mod action;
mod dead_hops;
pub mod event;
mod hops;
mod install;
mod namespace;
mod own;
mod replay;
mod resolve;
mod rib;
mod routes;
mod rules;
mod sweep;
mod view;

pub use action::Action;
pub use event::{Event, Netns};
pub use own::{OwnPrefix, OwnRoute};
pub use replay::{FIRST_REPLAY_MAX, REPLAY_QUIET};
pub use rib::{CHECK_AFTER, CHECK_INTERVAL, Counts, Limits, NAMESPACE_HOLD, Rib, VrfId};
pub use view::{HopView, NeighbourView, RouteView, VrfSummary};
