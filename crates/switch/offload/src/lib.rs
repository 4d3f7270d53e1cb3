//! Decisions about offload to a classifying device (ADR 61): which flows get slots, and whether marks pay.
//!
//! ```text
//!   workers: sampled keys, packets of slots --> Planner --> operations --> device
//!                                                  ^                          |
//!                                                  +------- outcomes ---------+
//!   workers: packets, busy time -----------> Governor --> marks in use, or not
//! ```
//! Pure: time is an argument, and the caller carries operations to the device and outcomes back. Neither part knows what a
//! device is; a device that refuses, answers late or never, or loses everything is a list of outcomes.

#![forbid(unsafe_code)]

mod counts;
mod governor;
mod heavy;
mod planner;
mod refusals;
mod slot;

pub use counts::PlannerCounts;
pub use governor::{Governor, Load, Standing};
pub use heavy::HeavyFlows;
pub use planner::{InstalledEntry, Operation, Outcome, Planner, PlannerSettings};
pub use refusals::Refusal;
