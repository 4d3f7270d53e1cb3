//! Asynchronous messages (OpenFlow 1.3.5, section 6.1.2): messages that a bridge sends to its controllers without a
//! request: packet_in, flow_removed, port_status, and the updates of flow monitors.
//!
//! This layer depends on the controllers and the tables, but not on the bridge.

mod flow_removed;
mod flow_updates;
mod packet_in;
mod port_status;
mod send;

pub(crate) use flow_removed::flow_removed;
pub(crate) use flow_updates::{flow_update, resume_flow_updates, send_flow_updates};
pub(crate) use packet_in::{packet_in, takes_packet_in};
pub(crate) use port_status::{PortChange, port_status};
pub(crate) use send::ASYNCHRONOUS;
