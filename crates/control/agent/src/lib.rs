//! Makes the running switch equal to the configuration, and speaks OpenFlow with controllers.
//!
//! Modules import each other in one direction only, from the bottom of this list to its top:
//!
//! | module | contents |
//! | --- | --- |
//! | [`Switch`] | all bridges, reconciled with a configuration |
//! | [`routing`] | the router: VRFs, interfaces, the thread of the RIB |
//! | [`channel`] | connections with controllers |
//! | [`keep`] | flow entries, groups and meters that a restart keeps |
//! | `handlers` | execution of OpenFlow requests |
//! | [`control`] | a bridge and its control thread, the single writer of its tables |
//! | `asynchronous` | messages without a request: packet_in, flow_removed, port_status, flow updates |
//! | `controllers`, `observe`, `port` | the connected controllers of a bridge; observers of changes; the status of a port |

#![forbid(unsafe_code)]

mod asynchronous;
pub mod channel;
pub mod control;
mod controllers;
mod handlers;
pub mod keep;
mod observe;
mod port;
mod problem;
pub mod routing;
mod switch;
mod wans;

pub use control::{BridgeControl, BridgeHandle, TaskError};
pub use observe::{Observation, Observer};
pub use problem::Problem;
pub use switch::{Status, Switch};
