//! The controllers of a bridge, as its control thread knows them: role, settings, limits, buffered packets, bundles,
//! flow monitors, and the queue of messages to each connection.
//!
//! This is the lowest layer of the crate: it knows neither sockets nor the bridge.

mod buffers;
mod bundles;
mod connected;
mod id;
mod list;
mod log_limit;
mod monitors;
mod outbox;
mod tally;
mod token_bucket;

pub(crate) use buffers::{BUFFERS_LEN, BufferedPacket};
pub(crate) use bundles::{Bundle, Change, Staged};
pub(crate) use connected::{AuxiliaryOf, ControllerSession, NewConnection, PacketInLimit};
pub(crate) use id::{AuxiliaryId, ConnectionId};
pub(crate) use list::Controllers;
pub(crate) use log_limit::LogLimit;
pub(crate) use monitors::{Monitor, MonitorSet};
pub(crate) use outbox::{Outbox, OutboxReader, outbox, outbox_limit};
pub(crate) use tally::ChannelCounters;
