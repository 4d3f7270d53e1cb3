//! Table features (OpenFlow 1.3.5, section 7.3.5.5): the capabilities of entries of a table, which a controller may
//! restrict.
//!
//! A controller that sets table features describes the whole pipeline: tables that it leaves out are removed, tables
//! whose capabilities change lose their entries, and later entries may use only these capabilities. While no
//! controller has set table features, nothing is checked.

use millrace_flow::{Action, Field, FieldSet, Instructions, Match, WriteMetadata};
use millrace_types::{Priority, TableId};
use thiserror::Error;

use super::error::CapabilityError;
use super::error_code::ErrorCode;

/// A set of instruction types or of action types, which OpenFlow numbers from 0 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TypeSet(u32);

impl TypeSet {
    /// Adds a type; numbers above 31 are ignored.
    pub const fn insert(&mut self, type_: u16) {
        if type_ < 32 {
            self.0 |= 1 << type_;
        }
    }

    /// Returns true if the type is in the set.
    pub const fn contains(self, type_: u16) -> bool {
        type_ < 32 && self.0 & (1 << type_) != 0
    }
}

impl FromIterator<u16> for TypeSet {
    fn from_iter<I: IntoIterator<Item = u16>>(types: I) -> TypeSet {
        let mut set = TypeSet::default();
        types.into_iter().for_each(|type_| set.insert(type_));
        set
    }
}

/// A set of table numbers, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSet([u64; 4]);

impl TableSet {
    /// Adds a table.
    pub const fn insert(&mut self, table: TableId) {
        self.0[table.0 as usize / 64] |= 1 << (table.0 % 64);
    }

    /// Returns true if the table is in the set.
    pub const fn contains(self, table: TableId) -> bool {
        self.0[table.0 as usize / 64] & (1 << (table.0 % 64)) != 0
    }
}

impl FromIterator<TableId> for TableSet {
    fn from_iter<I: IntoIterator<Item = TableId>>(tables: I) -> TableSet {
        let mut set = TableSet::default();
        tables.into_iter().for_each(|table| set.insert(table));
        set
    }
}

/// The actions that a list may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActionCapabilities {
    /// Types of actions (`ofp_action_type`).
    pub types: TypeSet,
    /// Fields that set_field may set.
    pub set_fields: FieldSet,
}

/// The capabilities of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryCapabilities {
    /// Types of instructions (`ofp_instruction_type`).
    pub instructions: TypeSet,
    /// Tables that goto_table may name.
    pub next_tables: TableSet,
    /// Actions of write_actions.
    pub write: ActionCapabilities,
    /// Actions of apply_actions.
    pub apply: ActionCapabilities,
}

/// The capabilities of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableCapabilities {
    /// Bits of the metadata that entries may match.
    pub metadata_match: u64,
    /// Bits of the metadata that entries may write.
    pub metadata_write: u64,
    /// Fields that entries may match.
    pub matches: FieldSet,
    /// Fields of `matches` that may have a mask.
    pub maskable: FieldSet,
    /// Fields of `matches` that may be left out.
    pub optional: FieldSet,
    /// The capabilities of entries other than the table-miss entry.
    pub entries: EntryCapabilities,
    /// The capabilities of the table-miss entry.
    pub miss: EntryCapabilities,
}

mod instruction {
    pub(super) const GOTO_TABLE: u16 = 1;
    pub(super) const WRITE_METADATA: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 3;
    pub(super) const APPLY_ACTIONS: u16 = 4;
    pub(super) const CLEAR_ACTIONS: u16 = 5;
    pub(super) const METER: u16 = 6;
}

/// Returns the number of an action's type (`ofp_action_type`).
const fn action_type(action: &Action) -> u16 {
    match action {
        Action::Output { .. } => 0,
        Action::CopyTtlOut => 11,
        Action::CopyTtlIn => 12,
        Action::SetMplsTtl(_) => 15,
        Action::DecMplsTtl => 16,
        Action::PushVlan(_) => 17,
        Action::PopVlan => 18,
        Action::PushMpls(_) => 19,
        Action::PopMpls(_) => 20,
        Action::SetQueue(_) => 21,
        Action::Group(_) => 22,
        Action::SetNwTtl(_) => 23,
        Action::DecNwTtl => 24,
        Action::SetField(_) => 25,
        Action::PushPbb(_) => 26,
        Action::PopPbb => 27,
    }
}

impl ActionCapabilities {
    fn check(&self, actions: &[Action]) -> Result<(), CapabilityError> {
        for action in actions {
            let type_ = action_type(action);
            if !self.types.contains(type_) {
                return Err(CapabilityError::Action { type_ });
            }
            if let Action::SetField(set) = action
                && !self.set_fields.contains(set.field())
            {
                return Err(CapabilityError::SetField { field: set.field() });
            }
        }
        Ok(())
    }
}

impl EntryCapabilities {
    fn check(&self, instructions: &Instructions, metadata_write: u64) -> Result<(), CapabilityError> {
        let used = [
            (instruction::GOTO_TABLE, instructions.goto_table.is_some()),
            (instruction::WRITE_METADATA, instructions.write_metadata.is_some()),
            (instruction::WRITE_ACTIONS, instructions.write_actions.is_some()),
            (instruction::APPLY_ACTIONS, instructions.apply_actions.is_some()),
            (instruction::CLEAR_ACTIONS, instructions.clear_actions),
            (instruction::METER, instructions.meter.is_some()),
        ];
        for (type_, is_used) in used {
            if is_used && !self.instructions.contains(type_) {
                return Err(CapabilityError::Instruction { type_ });
            }
        }
        if let Some(to) = instructions
            .goto_table
            .filter(|to| !self.next_tables.contains(*to))
        {
            return Err(CapabilityError::Goto { to });
        }
        if let Some(WriteMetadata { mask, .. }) = instructions.write_metadata
            && mask & !metadata_write != 0
        {
            return Err(CapabilityError::WriteMetadata {
                mask,
                possible: metadata_write,
            });
        }
        self.apply
            .check(instructions.apply_actions.as_deref().unwrap_or_default())?;
        self.write
            .check(instructions.write_actions.as_deref().unwrap_or_default())
    }
}

impl TableCapabilities {
    pub(super) fn check_match(&self, match_: &Match) -> Result<(), CapabilityError> {
        for given in match_.iter() {
            let field = given.field;
            if !self.matches.contains(field) {
                return Err(CapabilityError::Field { field });
            }
            if given.mask.is_some() && !self.maskable.contains(field) {
                return Err(CapabilityError::Mask { field });
            }
            let mask = given.mask.unwrap_or(field.max_value());
            if field == Field::Metadata && mask & !u128::from(self.metadata_match) != 0 {
                return Err(CapabilityError::Mask { field });
            }
        }
        let missing = self
            .matches
            .iter()
            .find(|field| !self.optional.contains(*field) && match_.field(*field).is_none());
        missing.map_or(Ok(()), |field| Err(CapabilityError::Wildcard { field }))
    }

    pub(super) fn check_instructions(
        &self,
        is_miss: bool,
        instructions: &Instructions,
    ) -> Result<(), CapabilityError> {
        let capabilities = if is_miss { &self.miss } else { &self.entries };
        capabilities.check(instructions, self.metadata_write)
    }
}

/// Returns true for the table-miss entry (OpenFlow 1.3.5, section 5.4).
pub(super) fn is_miss(match_: &Match, priority: Priority) -> bool {
    match_.is_any() && priority == Priority(0)
}

/// The features of one table, as a controller set them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum TableState {
    /// The table has all capabilities of the switch.
    #[default]
    Default,
    /// The table has only these capabilities.
    Limited(Box<TableCapabilities>),
    /// The table does not exist.
    Removed,
}

/// The reason why a pipeline is refused (`OFPET_TABLE_FEATURES_FAILED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PipelineError {
    /// `OFPTFFC_BAD_TABLE`.
    #[error("table {table} cannot be in a pipeline of {tables} tables")]
    BadTable {
        table: TableId,
        /// Number of tables that a pipeline can have.
        tables: usize,
    },
    /// `OFPTFFC_BAD_TABLE`.
    #[error("table {table} is described twice")]
    Twice { table: TableId },
    /// `OFPTFFC_BAD_TABLE`.
    #[error("every packet begins in table 0, which is left out")]
    NoFirst,
}

impl PipelineError {
    /// Returns the OpenFlow error type and code (OpenFlow 1.3.5, section 7.5.4.15).
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::OFPTFFC_BAD_TABLE
    }
}
