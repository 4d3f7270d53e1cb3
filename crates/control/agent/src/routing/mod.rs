//! The router: VRFs and interfaces reconciled with a configuration, and the thread of the RIB.
//!
//! ```text
//!  configuration --> Router --interfaces, VLANs--> control threads of bridges
//!                      |                                     | links
//!                      v                                     v
//!  kernel, FRR --events--> RIB thread --> FIB, next hops, interfaces --> workers
//!        ^                      |                                           |
//!        +------ requests ------+<------- neighbours to ask for ------------+
//! ```
//! A switch without VRFs has neither the thread nor anything else of this.

mod addresses;
mod disturbed;
mod interfaces;
mod passive;
mod plan;
mod reports;
mod router;
mod state;
mod thread;
mod tunnel_plan;
mod tunnels;
mod view;

pub use router::Router;
pub use view::{InterfaceStatus, NextHopGroupStatus, RouteSelection, RouterTotals, VrfState, VrfStatus};
