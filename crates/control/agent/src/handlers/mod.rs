//! Execution of OpenFlow requests on a bridge. All of it runs on the control thread.
//!
//! The requests of a connection arrive as [`PendingRequests`] and are executed in order. Work with long
//! replies is interrupted and returned to the connection, which submits the remaining work again when the
//! replies so far are written. So a controller that lists a million flow entries neither delays others nor
//! fills memory.

mod bundles;
mod execute;
pub(crate) mod flows;
pub(crate) mod groups;
pub(crate) mod meters;
mod monitor;
mod packets;
mod ports;
mod queries;
mod queues;
mod refusal;
mod replies;
mod session;
pub(crate) mod tables;

pub(crate) use execute::{PendingRequests, ReceivedRequest, execute};
pub(crate) use session::{connected, disconnected};
