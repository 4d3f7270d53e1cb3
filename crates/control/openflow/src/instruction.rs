//! Instructions on the wire (OpenFlow 1.3.5, section 7.2.4).

use millrace_flow::{Instructions, WriteMetadata};
use millrace_types::{MeterId, TableId};
use thiserror::Error;

use crate::action::{ActionError, decode_actions, encode_actions};
use crate::bytes::{PutBytes, Reader, Truncated};
use crate::codes::wire_enum;
use crate::error_code::ErrorCode;

wire_enum! {
    /// `ofp_instruction_type`.
    InstructionType(u16) {
        /// Continue in a later table.
        GotoTable = 1 "goto_table",
        /// Change the metadata.
        WriteMetadata = 2 "write_metadata",
        /// Write actions into the action set.
        WriteActions = 3 "write_actions",
        /// Apply actions at once.
        ApplyActions = 4 "apply_actions",
        /// Clear the action set.
        ClearActions = 5 "clear_actions",
        /// Pass through a meter.
        Meter = 6 "meter",
    }
}

/// `OFPIT_EXPERIMENTER`: the type of every experimenter instruction.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// The reason why bytes are not a list of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InstructionError {
    /// `OFPBIC_UNKNOWN_INST`.
    #[error("instruction type {type_} is unknown")]
    Type {
        /// The value in the message.
        type_: u16,
    },
    /// `OFPBIC_UNSUP_INST`: a list has two instructions of one type. At most one is valid (OpenFlow 1.3.5,
    /// section 5.9), and version 1.3 has no other code for this error.
    #[error("instruction {type_} appears twice: expected at most one of each type")]
    Twice {
        /// The value in the message.
        type_: InstructionType,
    },
    /// `OFPBIC_BAD_LEN`.
    #[error("an instruction has length {length}, which does not match its type or the rest of the list")]
    Length {
        /// The length in the message; 0 if the message ends before the length field.
        length: u16,
    },
    /// `OFPBIC_BAD_EXPERIMENTER`.
    #[error("experimenter {experimenter:#010x} is unknown")]
    Experimenter {
        /// The value in the message.
        experimenter: u32,
    },
    /// `OFPBIC_BAD_TABLE_ID`.
    #[error("table {table} is not valid in a goto_table instruction: expected at most 254")]
    Table {
        /// The value in the message.
        table: TableId,
    },
    /// An action in the instruction is wrong.
    #[error(transparent)]
    Action(#[from] ActionError),
}

impl InstructionError {
    /// Returns the error that a switch answers.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            InstructionError::Type { .. } => ErrorCode::OFPBIC_UNKNOWN_INST,
            InstructionError::Twice { .. } => ErrorCode::OFPBIC_UNSUP_INST,
            InstructionError::Length { .. } => ErrorCode::OFPBIC_BAD_LEN,
            InstructionError::Experimenter { .. } => ErrorCode::OFPBIC_BAD_EXPERIMENTER,
            InstructionError::Table { .. } => ErrorCode::OFPBIC_BAD_TABLE_ID,
            InstructionError::Action(error) => error.error_code(),
        }
    }
}

impl From<Truncated> for InstructionError {
    fn from(_: Truncated) -> InstructionError {
        InstructionError::Length { length: 0 }
    }
}

/// Reads a list of instructions that fills `bytes`.
pub(crate) fn decode_instructions(bytes: &[u8]) -> Result<Instructions, InstructionError> {
    let mut instructions = Instructions::default();
    let mut list = Reader::new(bytes);
    let mut seen = 0u8;
    while !list.is_empty() {
        let type_ = decode_instruction(&mut list, &mut instructions)?;
        let bit = 1 << type_.raw();
        if seen & bit != 0 {
            return Err(InstructionError::Twice { type_ });
        }
        seen |= bit;
    }
    Ok(instructions)
}

fn decode_instruction(
    list: &mut Reader<'_>,
    into: &mut Instructions,
) -> Result<InstructionType, InstructionError> {
    let type_ = list.u16()?;
    let length = list.u16()?;
    let bad_length = InstructionError::Length { length };
    let size = usize::from(length);
    if size < 8 || size % 8 != 0 {
        return Err(bad_length);
    }
    let mut body = Reader::new(list.take(size - 4).map_err(|_| bad_length)?);
    let Some(type_) = InstructionType::from_raw(type_) else {
        return Err(if type_ == EXPERIMENTER {
            InstructionError::Experimenter {
                experimenter: body.u32()?,
            }
        } else {
            InstructionError::Type { type_ }
        });
    };
    let size_is_right = match type_ {
        InstructionType::WriteActions | InstructionType::ApplyActions => true,
        InstructionType::WriteMetadata => size == 24,
        _ => size == 8,
    };
    if !size_is_right {
        return Err(bad_length);
    }
    match type_ {
        InstructionType::GotoTable => {
            let table = TableId(body.u8()?);
            if table > TableId::MAX {
                return Err(InstructionError::Table { table });
            }
            into.goto_table = Some(table);
        }
        InstructionType::WriteMetadata => {
            body.skip(4)?;
            into.write_metadata = Some(WriteMetadata {
                value: body.u64()?,
                mask: body.u64()?,
            });
        }
        InstructionType::WriteActions => {
            body.skip(4)?;
            into.write_actions = Some(decode_actions(body.rest())?);
        }
        InstructionType::ApplyActions => {
            body.skip(4)?;
            into.apply_actions = Some(decode_actions(body.rest())?);
        }
        InstructionType::ClearActions => into.clear_actions = true,
        InstructionType::Meter => into.meter = Some(MeterId(body.u32()?)),
    }
    Ok(type_)
}

/// Appends instructions in the order of their execution.
pub(crate) fn encode_instructions(instructions: &Instructions, out: &mut Vec<u8>) {
    if let Some(meter) = instructions.meter {
        begin(InstructionType::Meter, 8, out);
        out.u32(meter.0);
    }
    if let Some(actions) = &instructions.apply_actions {
        with_actions(InstructionType::ApplyActions, actions, out);
    }
    if instructions.clear_actions {
        begin(InstructionType::ClearActions, 8, out);
        out.zeros(4);
    }
    if let Some(actions) = &instructions.write_actions {
        with_actions(InstructionType::WriteActions, actions, out);
    }
    if let Some(WriteMetadata { value, mask }) = instructions.write_metadata {
        begin(InstructionType::WriteMetadata, 24, out);
        out.zeros(4);
        out.u64(value);
        out.u64(mask);
    }
    if let Some(table) = instructions.goto_table {
        begin(InstructionType::GotoTable, 8, out);
        out.u8(table.0);
        out.zeros(3);
    }
}

fn begin(type_: InstructionType, length: u16, out: &mut Vec<u8>) {
    out.u16(type_.raw());
    out.u16(length);
}

fn with_actions(type_: InstructionType, actions: &[millrace_flow::Action], out: &mut Vec<u8>) {
    let start = out.len();
    begin(type_, 0, out);
    out.zeros(4);
    encode_actions(actions, out);
    out.length_at(start + 2, start);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> ErrorCode {
        decode_instructions(bytes).unwrap_err().error_code()
    }

    #[test]
    fn each_mistake_has_its_code() {
        assert_eq!(code(&[0, 7, 0, 8, 0, 0, 0, 0]), ErrorCode::OFPBIC_UNKNOWN_INST);
        assert_eq!(code(&[0, 0, 0, 8, 0, 0, 0, 0]), ErrorCode::OFPBIC_UNKNOWN_INST);
        assert_eq!(code(&[0, 1, 0, 16, 0, 0, 0, 0]), ErrorCode::OFPBIC_BAD_LEN);
        assert_eq!(code(&[0, 1, 0, 4]), ErrorCode::OFPBIC_BAD_LEN);
        assert_eq!(code(&[0, 1, 0]), ErrorCode::OFPBIC_BAD_LEN);
        assert_eq!(code(&[0, 2, 0, 8, 0, 0, 0, 0]), ErrorCode::OFPBIC_BAD_LEN);
        assert_eq!(code(&[0, 1, 0, 8, 255, 0, 0, 0]), ErrorCode::OFPBIC_BAD_TABLE_ID);
        assert_eq!(
            code(&[0xff, 0xff, 0, 8, 0, 0, 0x23, 0x20]),
            ErrorCode::OFPBIC_BAD_EXPERIMENTER
        );
        let clear_twice = [[0, 5, 0, 8, 0, 0, 0, 0]; 2].concat();
        assert_eq!(code(&clear_twice), ErrorCode::OFPBIC_UNSUP_INST);
        let unknown_action = [0, 4, 0, 16, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0];
        assert_eq!(code(&unknown_action), ErrorCode::OFPBAC_BAD_TYPE);
    }

    #[test]
    fn an_empty_list_of_actions_differs_from_none() {
        let instructions = decode_instructions(&[0, 4, 0, 8, 0, 0, 0, 0]).unwrap();
        assert_eq!(instructions.apply_actions.as_deref(), Some(&[][..]));
        let mut out = Vec::new();
        encode_instructions(&instructions, &mut out);
        assert_eq!(out, [0, 4, 0, 8, 0, 0, 0, 0]);
    }
}
