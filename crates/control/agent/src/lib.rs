//! Makes the running switch equal to the configuration, and speaks OpenFlow with controllers.
//!
//! - [`Switch`] holds all bridges and reconciles them with a configuration.
//! - [`control`] is the control thread of one bridge: the single writer of its tables.
//! - [`channel`] are the connections with controllers; [`handlers`] is what their messages do.

#![forbid(unsafe_code)]

pub mod channel;
pub mod control;
pub mod handlers;
mod switch;

pub use control::{BridgeControl, BridgeHandle, TaskError};
pub use switch::{Shortfall, Status, Switch};
