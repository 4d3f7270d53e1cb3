//! OpenFlow 1.3.5: every message decoded and encoded, and the state machine of a connection, without IO
//! and without a clock.
//!
//! - [`decode`] and [`encode`]: convert one complete message to and from a [`Message`]. All parts of a
//!   [`Message`] are valid.
//! - [`DecodeError`]: the reason why bytes are not a message, and the [`ErrorCode`] to answer.
//! - [`multipart::SegmentWriter`]: replies of any length, message by message.
//! - [`connection::Connection`]: turns received bytes into requests, with version negotiation, keep-alive and
//!   limits.
//! - [`Peer`]: role and configuration of one controller. [`roles`]: the master election among all controllers of a bridge.
//!
//! One file holds one family of messages.

#![forbid(unsafe_code)]

mod action;
mod async_config;
mod bundle;
mod bytes;
mod codes;
mod config;
pub mod connection;
mod decode_error;
mod display;
mod error_code;
mod error_message;
mod experimenter;
mod features;
mod flow_mod;
pub mod flow_monitor;
mod flow_removed;
mod group_mod;
mod header;
mod hello;
mod instruction;
mod message;
mod meter_mod;
pub mod multipart;
mod oxm;
mod packet_in;
mod packet_out;
mod peer;
mod port;
mod queue;
mod role;
pub mod roles;
mod table_mod;

pub use action::{ActionError, ActionType};
pub use async_config::{AsyncConfig, AsyncMasks};
pub use bundle::{BundleCommand, BundleControl, BundleFlags};
pub use config::{FragmentHandling, SwitchConfig};
pub use decode_error::DecodeError;
pub use error_code::ErrorCode;
pub use error_message::{ERROR_DATA_SIZE, ErrorMessage};
pub use experimenter::Experimenter;
pub use features::{Capabilities, SwitchFeatures};
pub use flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
pub use flow_removed::{FlowRemoved, FlowRemovedReason};
pub use group_mod::{GroupMod, GroupModCommand, GroupType};
pub use header::{HEADER_SIZE, Header, MAX_MESSAGE_SIZE, MessageType, VERSION};
pub use hello::Hello;
pub use instruction::{InstructionError, InstructionType};
pub use message::{BundleAdd, EncodeError, Message, decode, encode};
pub use meter_mod::{MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand};
pub use oxm::{OxmError, OxmHeader};
pub use packet_in::{PacketIn, PacketInReason};
pub use packet_out::PacketOut;
pub use peer::Peer;
pub use port::{Port, PortConfig, PortFeatures, PortMod, PortReason, PortState, PortStatus};
pub use queue::{PacketQueue, QueueGetConfigReply, QueueGetConfigRequest};
pub use role::{RequestedRole, RoleMessage};
pub use table_mod::TableMod;
