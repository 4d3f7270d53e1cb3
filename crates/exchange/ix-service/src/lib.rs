//! One exchange in one process: the model, its plan, the engine and the database behind a [`Handle`].
//!
//! ```text
//!   pages, API, CLI                                    switches
//!        |  order, snapshot, events                       ^  |
//!        v                                                |  v  engine events
//!     Handle ----> queue ----> one thread: Core ----> FabricRequest
//!                                |  model, plan, engine (pure)
//!                                v
//!                              Store (orders that wait together are one write)
//! ```
//!
//! One thread owns the database and the engine, so that orders have one sequence and a journal record is durable before
//! anything is sent. Readers never wait for it: they take the newest [`Snapshot`].
//!
//! [`Core`] is the same without thread and clock; simulations drive it in virtual time.

#![forbid(unsafe_code)]

mod adopted;
mod clock;
mod comparison;
mod concerns;
mod core;
mod decision;
mod draft;
mod drift;
mod error;
mod event;
mod fabric;
mod group;
mod handle;
mod journal;
mod links;
mod news;
mod now;
mod open;
mod order;
mod output;
mod phases;
mod probe;
mod quarantine;
mod reader;
mod reports;
mod revisions;
mod rows;
#[cfg(feature = "simulation")]
pub mod simulation;
mod snapshot;
pub mod text;
mod thread;
mod verify;
mod wording;

pub use crate::core::Core;
pub use clock::{ClockJump, ClockStatus, Clocks};
pub use decision::Unconfirmed;
pub use drift::{DriftFinding, DriftFindings, DriftedEntry, EntryOwner, SwitchDrift};
pub use error::{OrderError, StartError};
pub use event::{EventKind, ServiceEvent};
pub use fabric::{Entry, Fabric, FabricKey};
pub use handle::{FabricHandle, Handle};
pub use links::{PortReport, PortState, PortStates};
/// A violation of a property by the entries of the switches.
pub use millrace_ix_verify::Finding as Violation;
pub use now::Now;
pub use order::{ApplyOptions, EntryCounts, OrderOptions, OrderRequest, Ordered};
pub use output::{FabricRequest, Output};
pub use quarantine::{Check, Finding, Quarantined};
pub use revisions::Revisions;
pub use snapshot::Snapshot;
pub use thread::{Service, Settings};
pub use verify::{ChangeToVerify, Deltas, Preview, Verifier, VerifyRequest};
