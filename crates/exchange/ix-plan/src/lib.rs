//! Computation of the content of all switches from the model of an exchange.
//!
//! ```text
//!  Exchange --plan()--> Plan: for each switch a SwitchState, the entries by identity
//!  have, want --difference()--> modifications of one switch in a safe order, for one bundle
//!  old, new exchange --phases()--> stage, flip, clean: modifications of all switches
//!
//!  member --> 0 port --> 1 inner --> 2 admit --> 3 police --> 4 forward --> 5 protect --> 6 egress --> member, trunk
//!  trunk ---> 0 port -------------------------------------> 4 forward -----------------> 6 egress --> member
//! ```
//!
//! For a change, the whole exchange after the change is planned, or only the services that the change
//! touches. There are no undo lists. An entry's identity is (table, priority, match), never the cookie.
//!
//! The crate is pure: it has no clock and no IO.

#![forbid(unsafe_code)]

mod builder;
mod carried;
mod circuit;
mod difference;
mod entry;
mod filters;
mod lan;
pub mod layout;
mod multipoint;
mod phases;
mod plan;
mod service;
mod tags;

pub use builder::Problem;
pub use carried::Carried;
pub use difference::{Modification, difference, in_safe_order};
pub use entry::{Entry, EntryId, Flow, FlowId, Group, GroupKind, Matching, Meter, RateUnit, SwitchState};
pub use filters::{EXACT_PORTS_MAX, filter_entries};
pub use lan::admitted_mac;
pub use phases::{Phases, changed_services, phases, phases_between, phases_of_plans, services_at_boundary};
pub use plan::{Plan, plan, plan_services};
pub use service::Settings;
