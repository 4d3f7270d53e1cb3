//! Errors of requests: one variant for each reason, each with its OpenFlow type and code.

use millrace_flow::{Extension, Field};
use millrace_types::{GroupId, MeterId, PortNo, TableId};
use millrace_wire::EtherType;
use thiserror::Error;

use super::error_code::ErrorCode;
use crate::group::GroupKind;

/// The reason why an action is refused: a code of `OFPET_BAD_ACTION` (OpenFlow 1.3.5, section 7.5.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ActionError {
    /// `OFPBAC_BAD_OUT_PORT`.
    #[error("no packet can be output to port {port} here")]
    BadOutPort { port: PortNo },
    /// `OFPBAC_BAD_OUT_GROUP`.
    #[error("there is no group {group}")]
    BadOutGroup { group: GroupId },
    /// `OFPBAC_BAD_ARGUMENT`.
    #[error("{action} takes no ethertype {ether_type}: expected {expected}")]
    BadEtherType {
        /// The name of the action.
        action: &'static str,
        /// The EtherType of the action.
        ether_type: EtherType,
        /// The possible values.
        expected: &'static str,
    },
    /// `OFPBAC_MATCH_INCONSISTENT`: the match does not guarantee that packets have the header.
    #[error("{action} needs {needs} in the match or from an earlier action")]
    MatchInconsistent {
        /// The name of the action.
        action: &'static str,
        /// The missing header.
        needs: &'static str,
    },
    /// `OFPBAC_MATCH_INCONSISTENT`: the match does not guarantee that packets have the field.
    #[error("set_field {field} needs {} in the match or from an earlier action", .field.prerequisite())]
    SetFieldPrerequisite { field: Field },
    /// `OFPBAC_BAD_SET_ARGUMENT`.
    #[error("set_field {field}={value:#x} is not a value that a packet can have")]
    BadSetArgument {
        field: Field,
        /// The value of the action.
        value: u128,
    },
    /// `OFPBAC_TOO_MANY`.
    #[error("{len} actions are too many: expected at most {max}")]
    TooMany {
        /// Number of actions.
        len: usize,
        /// The limit.
        max: usize,
    },
}

impl ActionError {
    /// Returns the OpenFlow error type (`OFPET_BAD_ACTION`) and code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            ActionError::BadOutPort { .. } => ErrorCode::OFPBAC_BAD_OUT_PORT,
            ActionError::BadEtherType { .. } => ErrorCode::OFPBAC_BAD_ARGUMENT,
            ActionError::TooMany { .. } => ErrorCode::OFPBAC_TOO_MANY,
            ActionError::BadOutGroup { .. } => ErrorCode::OFPBAC_BAD_OUT_GROUP,
            ActionError::MatchInconsistent { .. } | ActionError::SetFieldPrerequisite { .. } => {
                ErrorCode::OFPBAC_MATCH_INCONSISTENT
            }
            ActionError::BadSetArgument { .. } => ErrorCode::OFPBAC_BAD_SET_ARGUMENT,
        }
    }
}

/// The reason why the features of a table do not allow an entry (OpenFlow 1.3.5, section 7.3.5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CapabilityError {
    /// `OFPBIC_UNSUP_INST`.
    #[error("entries of this table have no instruction of type {type_}")]
    Instruction {
        /// The type of the instruction.
        type_: u16,
    },
    /// `OFPBIC_BAD_TABLE_ID`.
    #[error("entries of this table cannot go to table {to}")]
    Goto {
        /// The table that goto_table names.
        to: TableId,
    },
    /// `OFPBIC_UNSUP_METADATA_MASK`.
    #[error("entries of this table can write the metadata bits {possible:#x}, not all of {mask:#x}")]
    WriteMetadata {
        /// The bits that the entry writes.
        mask: u64,
        /// The bits that entries may write.
        possible: u64,
    },
    /// `OFPBAC_BAD_TYPE`.
    #[error("entries of this table have no action of type {type_} here")]
    Action {
        /// The type of the action.
        type_: u16,
    },
    /// `OFPBAC_BAD_SET_TYPE`.
    #[error("entries of this table cannot set {field} here")]
    SetField { field: Field },
    /// `OFPBMC_BAD_FIELD`.
    #[error("entries of this table cannot match {field}")]
    Field { field: Field },
    /// `OFPBMC_BAD_MASK`.
    #[error("entries of this table cannot match {field} under this mask: expected an exact value")]
    Mask { field: Field },
    /// `OFPBMC_BAD_WILDCARDS`.
    #[error("entries of this table must match {field}")]
    Wildcard { field: Field },
}

impl CapabilityError {
    /// Returns the OpenFlow error type and code (OpenFlow 1.3.5, section 7.5.4).
    pub const fn code(&self) -> ErrorCode {
        match self {
            CapabilityError::Instruction { .. } => ErrorCode::OFPBIC_UNSUP_INST,
            CapabilityError::Goto { .. } => ErrorCode::OFPBIC_BAD_TABLE_ID,
            CapabilityError::WriteMetadata { .. } => ErrorCode::OFPBIC_UNSUP_METADATA_MASK,
            CapabilityError::Action { .. } => ErrorCode::OFPBAC_BAD_TYPE,
            CapabilityError::SetField { .. } => ErrorCode::OFPBAC_BAD_SET_TYPE,
            CapabilityError::Wildcard { .. } => ErrorCode::OFPBMC_BAD_WILDCARDS,
            CapabilityError::Field { .. } => ErrorCode::OFPBMC_BAD_FIELD,
            CapabilityError::Mask { .. } => ErrorCode::OFPBMC_BAD_MASK,
        }
    }
}

/// A match with an extension of Open vSwitch on a bridge that is restricted to OpenFlow 1.3.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}: expected a match of OpenFlow 1.3.5, as the bridge has `match_extensions = false`")]
pub struct ExtensionError(pub Extension);

impl ExtensionError {
    /// Returns the OpenFlow error type and code: `OFPBMC_BAD_FIELD` or `OFPBMC_BAD_MASK` (OpenFlow 1.3.5, section
    /// 7.5.4.5).
    pub const fn code(&self) -> ErrorCode {
        match self.0 {
            Extension::Field(_) => ErrorCode::OFPBMC_BAD_FIELD,
            Extension::Mask(_) => ErrorCode::OFPBMC_BAD_MASK,
        }
    }
}

/// The reason why a flow_mod is refused. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FlowModError {
    /// `OFPFMFC_TABLE_FULL`.
    #[error("table {table} is full: it holds {max_entries} entries")]
    TableFull {
        table: TableId,
        /// Entries that fit.
        max_entries: u32,
    },
    /// `OFPFMFC_BAD_TABLE_ID`.
    #[error("there is no table {table}: expected 0 to {}", .tables - 1)]
    BadTable {
        table: TableId,
        /// Number of tables.
        tables: usize,
    },
    /// `OFPFMFC_OVERLAP`.
    #[error("the match overlaps with that of an entry with the same priority in table {table}")]
    Overlap { table: TableId },
    /// `OFPFMFC_BAD_FLAGS`.
    #[error("the flags {flags:#x} are not all known: expected bits of 0x1f")]
    BadFlags { flags: u16 },
    /// `OFPBIC_BAD_TABLE_ID` of `OFPET_BAD_INSTRUCTION`.
    #[error("table {from} cannot go to table {to}: expected a later one of {tables}")]
    BadGoto {
        /// The table of the entry.
        from: TableId,
        /// The table that goto_table names.
        to: TableId,
        /// Number of tables.
        tables: usize,
    },
    /// `OFPMMFC_INVALID_METER` of `OFPET_METER_MOD_FAILED`.
    #[error("there is no meter {meter} for flow entries")]
    NoSuchMeter { meter: MeterId },
    /// An action is refused.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// The features of the table do not allow the entry.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The bridge is restricted to OpenFlow 1.3.5.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
}

impl FlowModError {
    /// Returns the OpenFlow error type and code (OpenFlow 1.3.5, section 7.5.4).
    pub const fn code(&self) -> ErrorCode {
        match self {
            FlowModError::TableFull { .. } => ErrorCode::OFPFMFC_TABLE_FULL,
            FlowModError::BadTable { .. } => ErrorCode::OFPFMFC_BAD_TABLE_ID,
            FlowModError::Overlap { .. } => ErrorCode::OFPFMFC_OVERLAP,
            FlowModError::BadFlags { .. } => ErrorCode::OFPFMFC_BAD_FLAGS,
            FlowModError::BadGoto { .. } => ErrorCode::OFPBIC_BAD_TABLE_ID,
            FlowModError::NoSuchMeter { .. } => ErrorCode::OFPMMFC_INVALID_METER,
            FlowModError::Action(error) => error.code(),
            FlowModError::Capability(error) => error.code(),
            FlowModError::Extension(error) => error.code(),
        }
    }
}

/// The reason why a group_mod is refused (OpenFlow 1.3.5, section 7.3.4.2). Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GroupModError {
    /// `OFPGMFC_GROUP_EXISTS`.
    #[error("there is a group {group} already")]
    Exists { group: GroupId },
    /// `OFPGMFC_INVALID_GROUP`.
    #[error("no group can have the number {group}: expected at most {}", GroupId::MAX)]
    BadNumber { group: GroupId },
    /// `OFPGMFC_INVALID_GROUP`.
    #[error("an indirect group has {buckets} buckets: expected one")]
    NotOneBucket {
        /// Number of buckets.
        buckets: usize,
    },
    /// `OFPGMFC_INVALID_GROUP`.
    #[error("a bucket of a group of type {kind} has a weight: only those of select groups have")]
    Weight {
        /// The type of the group.
        kind: GroupKind,
    },
    /// `OFPGMFC_INVALID_GROUP`.
    #[error("a bucket of a fast failover group watches neither a port nor a group")]
    WatchMissing,
    /// `OFPGMFC_OUT_OF_GROUPS`.
    #[error("there are {max} groups, and there is no room for another")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// `OFPGMFC_OUT_OF_BUCKETS`.
    #[error("there is no room for {buckets} more buckets")]
    TooManyBuckets {
        /// Number of buckets.
        buckets: usize,
    },
    /// `OFPGMFC_WATCH_UNSUPPORTED`.
    #[error("buckets of groups of type {kind} watch nothing")]
    WatchUnsupported {
        /// The type of the group.
        kind: GroupKind,
    },
    /// `OFPGMFC_LOOP`.
    #[error("packets of group {group} would come to it again")]
    Loop { group: GroupId },
    /// `OFPGMFC_UNKNOWN_GROUP`.
    #[error("there is no group {group}")]
    Unknown { group: GroupId },
    /// `OFPGMFC_CHAINED_GROUP`.
    #[error("group {group} stays, because another group forwards to it")]
    Chained { group: GroupId },
    /// `OFPGMFC_BAD_WATCH`.
    #[error("port {port} cannot be watched")]
    BadWatchPort { port: PortNo },
    /// `OFPGMFC_BAD_WATCH`.
    #[error("group {group} cannot be watched: it is not there, or is the one that would watch")]
    BadWatchGroup { group: GroupId },
    /// An action of a bucket is refused.
    #[error(transparent)]
    Action(#[from] ActionError),
}

impl GroupModError {
    /// Returns the OpenFlow error type and code (OpenFlow 1.3.5, section 7.5.4.7).
    pub const fn code(&self) -> ErrorCode {
        match self {
            GroupModError::Exists { .. } => ErrorCode::OFPGMFC_GROUP_EXISTS,
            GroupModError::BadNumber { .. }
            | GroupModError::NotOneBucket { .. }
            | GroupModError::Weight { .. }
            | GroupModError::WatchMissing => ErrorCode::OFPGMFC_INVALID_GROUP,
            GroupModError::TooMany { .. } => ErrorCode::OFPGMFC_OUT_OF_GROUPS,
            GroupModError::TooManyBuckets { .. } => ErrorCode::OFPGMFC_OUT_OF_BUCKETS,
            GroupModError::WatchUnsupported { .. } => ErrorCode::OFPGMFC_WATCH_UNSUPPORTED,
            GroupModError::Loop { .. } => ErrorCode::OFPGMFC_LOOP,
            GroupModError::Unknown { .. } => ErrorCode::OFPGMFC_UNKNOWN_GROUP,
            GroupModError::Chained { .. } => ErrorCode::OFPGMFC_CHAINED_GROUP,
            GroupModError::BadWatchPort { .. } | GroupModError::BadWatchGroup { .. } => {
                ErrorCode::OFPGMFC_BAD_WATCH
            }
            GroupModError::Action(error) => error.code(),
        }
    }
}

/// The reason why a meter_mod is refused (OpenFlow 1.3.5, section 7.3.4.4). Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MeterModError {
    /// `OFPMMFC_METER_EXISTS`.
    #[error("there is a meter {meter} already")]
    Exists { meter: MeterId },
    /// `OFPMMFC_INVALID_METER`.
    #[error(
        "no meter can have the number {meter}: expected 1 to {}, or that of a virtual meter",
        MeterId::MAX
    )]
    BadNumber { meter: MeterId },
    /// `OFPMMFC_UNKNOWN_METER`.
    #[error("there is no meter {meter}")]
    Unknown { meter: MeterId },
    /// `OFPMMFC_BAD_FLAGS`.
    #[error("the flags {flags:#x} are not all known, or name two units")]
    BadFlags { flags: u16 },
    /// `OFPMMFC_BAD_RATE`.
    #[error("a band has the rate 0: expected at least 1")]
    NoRate,
    /// `OFPMMFC_OUT_OF_METERS`.
    #[error("there is no room for another meter: at most {max} fit")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// `OFPMMFC_OUT_OF_BANDS`.
    #[error("{bands} bands are too many: expected at most {max}")]
    TooManyBands {
        /// Number of bands.
        bands: usize,
        /// The limit.
        max: u8,
    },
}

impl MeterModError {
    /// Returns the OpenFlow error type and code (OpenFlow 1.3.5, section 7.5.4.13).
    pub const fn code(&self) -> ErrorCode {
        match self {
            MeterModError::Exists { .. } => ErrorCode::OFPMMFC_METER_EXISTS,
            MeterModError::BadNumber { .. } => ErrorCode::OFPMMFC_INVALID_METER,
            MeterModError::Unknown { .. } => ErrorCode::OFPMMFC_UNKNOWN_METER,
            MeterModError::BadFlags { .. } => ErrorCode::OFPMMFC_BAD_FLAGS,
            MeterModError::NoRate => ErrorCode::OFPMMFC_BAD_RATE,
            MeterModError::TooMany { .. } => ErrorCode::OFPMMFC_OUT_OF_METERS,
            MeterModError::TooManyBands { .. } => ErrorCode::OFPMMFC_OUT_OF_BANDS,
        }
    }
}

/// The reason why a port_mod is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PortModError {
    /// `OFPPMFC_BAD_PORT`.
    #[error("there is no port {port}")]
    NoSuchPort { port: PortNo },
    /// `OFPPMFC_BAD_CONFIG`.
    #[error("the configuration bits {config:#x} are not all known")]
    BadConfig {
        /// The bits.
        config: u32,
    },
}

impl PortModError {
    /// Returns the OpenFlow error type (`OFPET_PORT_MOD_FAILED`) and code (OpenFlow 1.3.5, section 7.5.4.8).
    pub const fn code(&self) -> ErrorCode {
        match self {
            PortModError::NoSuchPort { .. } => ErrorCode::OFPPMFC_BAD_PORT,
            PortModError::BadConfig { .. } => ErrorCode::OFPPMFC_BAD_CONFIG,
        }
    }
}
