//! The reasons why bytes are not a message. Each maps to one error of the specification.

use millrace_types::{GroupId, PortNo, TableId, Xid};
use thiserror::Error;

use crate::action::ActionError;
use crate::bytes::Truncated;
use crate::error_code::ErrorCode;
use crate::instruction::InstructionError;
use crate::oxm::OxmError;

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The version is not 1.3.
    #[error("OpenFlow version {version:#04x} is not supported: expected 0x04 (OpenFlow 1.3)")]
    Version {
        /// The value in the message.
        version: u8,
    },
    /// The message type is unknown, or a controller must not send it on this connection.
    #[error("message type {type_} is unknown, or not valid from a controller on this connection")]
    Type {
        /// The value in the message.
        type_: u8,
    },
    /// The message is shorter or longer than its type allows.
    #[error("the length of the message does not match its type or contents")]
    Length,
    /// The multipart type is not known.
    #[error("multipart type {type_} is unknown: expected one of OpenFlow 1.3.5, section 7.3.5")]
    Multipart {
        /// The value in the message.
        type_: u16,
    },
    /// A request of several messages is too long, has a type that does not allow several messages, or is not complete
    /// when another begins.
    #[error(
        "a request of several messages is too long, is not TABLE_FEATURES, or was not complete when another began"
    )]
    Reassembly,
    /// The port number is not valid in this field.
    #[error("port {port} is not valid in this field")]
    Port {
        /// The value in the message.
        port: PortNo,
    },
    /// A match is wrong.
    #[error(transparent)]
    Match(#[from] OxmError),
    /// An action is wrong.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// An instruction is wrong.
    #[error(transparent)]
    Instruction(#[from] InstructionError),
    /// The flow_mod command is not known.
    #[error("flow_mod command {command} is unknown: expected 0 to 4")]
    FlowModCommand {
        /// The value in the message.
        command: u8,
    },
    /// A flow_mod flag is not known.
    #[error("flow_mod flags {flags:#06x} contain unknown bits: expected bits of 0x001f")]
    FlowModFlags {
        /// The value in the message.
        flags: u16,
    },
    /// The table cannot hold flow entries.
    #[error("table {table} holds no entries: expected 0 to 254, or 255 in a delete")]
    FlowModTable {
        /// The value in the message.
        table: TableId,
    },
    /// The group_mod command is not known.
    #[error("group_mod command {command} is unknown: expected 0 to 2")]
    GroupModCommand {
        /// The value in the message.
        command: u16,
    },
    /// The group type is not known.
    #[error("group type {type_} is unknown: expected 0 to 3")]
    GroupType {
        /// The value in the message.
        type_: u8,
    },
    /// The group number is reserved.
    #[error("group identifier {group} is reserved: expected at most {}", GroupId::MAX)]
    GroupNumber {
        /// The value in the message.
        group: GroupId,
    },
    /// The length of a bucket is wrong.
    #[error("a bucket has length {length}, which does not match its actions or the rest of the message")]
    Bucket {
        /// The value in the message.
        length: u16,
    },
    /// The meter_mod command is not known.
    #[error("meter_mod command {command} is unknown: expected 0 to 2")]
    MeterModCommand {
        /// The value in the message.
        command: u16,
    },
    /// The meter flags are unknown or contradict each other.
    #[error("meter flags {flags:#06x} are unknown or contradict each other")]
    MeterModFlags {
        /// The value in the message.
        flags: u16,
    },
    /// The meter number is reserved.
    #[error("meter identifier {meter:#x} is reserved: expected 1 to 0xffff0000, or a virtual meter")]
    MeterNumber {
        /// The value in the message.
        meter: u32,
    },
    /// A meter band is unknown.
    #[error("meter band type {type_} is unknown: expected 1 (drop) or 2 (dscp_remark)")]
    MeterBand {
        /// The value in the message.
        type_: u16,
    },
    /// The bundle command is not known.
    #[error("bundle command {command} is unknown")]
    BundleCommand {
        /// The value in the message.
        command: u16,
    },
    /// A bundle flag is not known.
    #[error("bundle flags {flags:#06x} contain unknown bits")]
    BundleFlags {
        /// The value in the message.
        flags: u16,
    },
    /// A flag of a flow monitor is not known.
    #[error("flow monitor flags {flags:#06x} contain unknown bits")]
    FlowMonitorFlags {
        /// The value in the message.
        flags: u16,
    },
    /// The length of a bundled message exceeds the bundle_add message that contains it, or is too short for a
    /// header.
    #[error("the length of the bundled message does not match the bundle_add message that contains it")]
    BundledLength,
    /// A bundled message has another xid than the bundle_add message that contains it.
    #[error("the bundled message has xid {:#x}: expected the xid of the bundle_add message that contains it", .inner.0)]
    BundledXid {
        /// The value in the message.
        inner: Xid,
    },
    /// A message of this type cannot be in a bundle.
    #[error("a message of type {type_} cannot be in a bundle")]
    Bundled {
        /// The value in the message.
        type_: u8,
    },
    /// The port configuration has unknown bits.
    #[error("port configuration {config:#x} contains unknown bits")]
    PortConfig {
        /// The value in the message.
        config: u32,
    },
    /// The advertised port features have unknown bits.
    #[error("advertised port features {features:#x} contain unknown bits")]
    PortAdvertise {
        /// The value in the message.
        features: u32,
    },
    /// The table configuration has unknown bits.
    #[error("table configuration {config:#x} contains unknown bits")]
    TableConfig {
        /// The value in the message.
        config: u32,
    },
    /// The switch configuration has unknown flags.
    #[error("switch configuration flags {flags:#x} contain unknown bits")]
    SwitchConfigFlags {
        /// The value in the message.
        flags: u16,
    },
    /// The role is not known.
    #[error("controller role {role} is unknown: expected 0 (nochange) to 3 (slave)")]
    Role {
        /// The value in the message.
        role: u32,
    },
    /// The table feature property is not known.
    #[error("table feature property type {type_:#x} is unknown")]
    TableFeatureType {
        /// The value in the message.
        type_: u16,
    },
    /// The length of a table feature property is wrong.
    #[error("the length of a table feature property does not match its type or contents")]
    TableFeatureLength,
    /// A table feature property has a value that is not valid for a table.
    #[error("a table feature property has an invalid value")]
    TableFeatureArgument,
}

impl DecodeError {
    /// Returns the error code of the switch's reply.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            DecodeError::Version { .. } => ErrorCode::OFPBRC_BAD_VERSION,
            DecodeError::Type { .. } => ErrorCode::OFPBRC_BAD_TYPE,
            DecodeError::Length => ErrorCode::OFPBRC_BAD_LEN,
            DecodeError::Multipart { .. } => ErrorCode::OFPBRC_BAD_MULTIPART,
            DecodeError::Reassembly => ErrorCode::OFPBRC_MULTIPART_BUFFER_OVERFLOW,
            DecodeError::Port { .. } => ErrorCode::OFPBRC_BAD_PORT,
            DecodeError::Match(error) => error.error_code(),
            DecodeError::Action(error) => error.error_code(),
            DecodeError::Instruction(error) => error.error_code(),
            DecodeError::FlowModCommand { .. } => ErrorCode::OFPFMFC_BAD_COMMAND,
            DecodeError::FlowModFlags { .. } => ErrorCode::OFPFMFC_BAD_FLAGS,
            DecodeError::FlowModTable { .. } => ErrorCode::OFPFMFC_BAD_TABLE_ID,
            DecodeError::GroupModCommand { .. } => ErrorCode::OFPGMFC_BAD_COMMAND,
            DecodeError::GroupType { .. } => ErrorCode::OFPGMFC_BAD_TYPE,
            DecodeError::GroupNumber { .. } => ErrorCode::OFPGMFC_INVALID_GROUP,
            DecodeError::Bucket { .. } => ErrorCode::OFPGMFC_BAD_BUCKET,
            DecodeError::MeterModCommand { .. } => ErrorCode::OFPMMFC_BAD_COMMAND,
            DecodeError::MeterModFlags { .. } => ErrorCode::OFPMMFC_BAD_FLAGS,
            DecodeError::MeterNumber { .. } => ErrorCode::OFPMMFC_INVALID_METER,
            DecodeError::MeterBand { .. } => ErrorCode::OFPMMFC_BAD_BAND,
            DecodeError::BundleCommand { .. } => ErrorCode::OFPBFC_BAD_TYPE,
            DecodeError::BundleFlags { .. } => ErrorCode::OFPBFC_BAD_FLAGS,
            // The extension defines no error for this case.
            DecodeError::FlowMonitorFlags { .. } => ErrorCode::OFPBRC_EPERM,
            DecodeError::BundledLength => ErrorCode::OFPBFC_MSG_BAD_LEN,
            DecodeError::BundledXid { .. } => ErrorCode::OFPBFC_MSG_BAD_XID,
            DecodeError::Bundled { .. } => ErrorCode::OFPBFC_MSG_UNSUP,
            DecodeError::PortConfig { .. } => ErrorCode::OFPPMFC_BAD_CONFIG,
            DecodeError::PortAdvertise { .. } => ErrorCode::OFPPMFC_BAD_ADVERTISE,
            DecodeError::TableConfig { .. } => ErrorCode::OFPTMFC_BAD_CONFIG,
            DecodeError::SwitchConfigFlags { .. } => ErrorCode::OFPSCFC_BAD_FLAGS,
            DecodeError::Role { .. } => ErrorCode::OFPRRFC_BAD_ROLE,
            DecodeError::TableFeatureType { .. } => ErrorCode::OFPTFFC_BAD_TYPE,
            DecodeError::TableFeatureLength => ErrorCode::OFPTFFC_BAD_LEN,
            DecodeError::TableFeatureArgument => ErrorCode::OFPTFFC_BAD_ARGUMENT,
        }
    }
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> DecodeError {
        DecodeError::Length
    }
}
