//! FLOW_MOD: adds, modifies and deletes flow entries (OpenFlow 1.3.5, section 7.3.4.1).

use millrace_flow::{Instructions, Match};
use millrace_types::{BufferId, Cookie, GroupId, PortNo, Priority, TableId};

use crate::bytes::{PutBytes, Reader};
use crate::codes::{wire_enum, wire_flags};
use crate::decode_error::DecodeError;
use crate::instruction::{decode_instructions, encode_instructions};
use crate::oxm::{decode_match, encode_match};

wire_enum! {
    /// `ofp_flow_mod_command`.
    FlowModCommand(u8) {
        /// Adds an entry, or replaces the entry with the same match and priority.
        Add = 0 "add",
        /// Sets the instructions of every entry whose match equals this match or is narrower.
        Modify = 1 "modify",
        /// Sets the instructions of the entry with exactly this match and priority.
        ModifyStrict = 2 "modify_strict",
        /// Deletes every entry whose match equals this match or is narrower.
        Delete = 3 "delete",
        /// Deletes the entry with exactly this match and priority.
        DeleteStrict = 4 "delete_strict",
    }
}

impl FlowModCommand {
    /// Returns true for the commands that delete entries.
    pub const fn is_delete(self) -> bool {
        matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
}

wire_flags! {
    /// `ofp_flow_mod_flags`.
    FlowModFlags(u16) {
        /// Send flow_removed when the entry is removed.
        SEND_FLOW_REM = 1 "send_flow_rem",
        /// Refuse an entry that overlaps an entry of the same priority.
        CHECK_OVERLAP = 2 "check_overlap",
        /// Reset the counters of an entry that is replaced or modified.
        RESET_COUNTS = 4 "reset_counts",
        /// The controller does not need the packet count.
        NO_PKT_COUNTS = 8 "no_packet_counts",
        /// The controller does not need the byte count.
        NO_BYT_COUNTS = 16 "no_byte_counts",
    }
}

/// `ofp_flow_mod`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowMod {
    /// The cookie of a new entry. Other commands compare the cookies of entries with it under `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of an existing entry's cookie that must be equal; zero compares none.
    pub cookie_mask: u64,
    /// The table, or [`TableId::ALL`] in a delete.
    pub table: TableId,
    pub command: FlowModCommand,
    /// Seconds without a packet after which the entry is removed; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which the entry is removed; 0 for never.
    pub hard_timeout: u16,
    /// The priority. Of the entries that match a packet, the entry with the highest priority applies.
    pub priority: Priority,
    /// A buffered packet to send through the new entry, or [`BufferId::NONE`].
    pub buffer: BufferId,
    /// Limits a delete to entries that output to this port; [`PortNo::ANY`] does not limit it.
    pub out_port: PortNo,
    /// Limits a delete to entries that output to this group; [`GroupId::ANY`] does not limit it.
    pub out_group: GroupId,
    pub flags: FlowModFlags,
    pub match_: Match,
    pub instructions: Instructions,
}

impl FlowMod {
    /// Returns a flow_mod that adds an entry; the other fields have default values.
    pub fn add(table: TableId, priority: Priority, match_: Match, instructions: Instructions) -> FlowMod {
        FlowMod {
            cookie: Cookie(0),
            cookie_mask: 0,
            table,
            command: FlowModCommand::Add,
            idle_timeout: 0,
            hard_timeout: 0,
            priority,
            buffer: BufferId::NONE,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            flags: FlowModFlags::NONE,
            match_,
            instructions,
        }
    }

    /// Returns a flow_mod that deletes every entry whose match equals `match_` or is narrower.
    pub fn delete(table: TableId, match_: Match) -> FlowMod {
        FlowMod {
            command: FlowModCommand::Delete,
            ..FlowMod::add(table, Priority(0), match_, Instructions::default())
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<FlowMod, DecodeError> {
        let cookie = Cookie(reader.u64()?);
        let cookie_mask = reader.u64()?;
        let table = TableId(reader.u8()?);
        let command = reader.u8()?;
        let idle_timeout = reader.u16()?;
        let hard_timeout = reader.u16()?;
        let priority = Priority(reader.u16()?);
        let buffer = BufferId(reader.u32()?);
        let out_port = PortNo::from_raw(reader.u32()?);
        let out_group = GroupId(reader.u32()?);
        let flags = reader.u16()?;
        reader.skip(2)?;
        let command = FlowModCommand::from_raw(command).ok_or(DecodeError::FlowModCommand { command })?;
        if table == TableId::ALL && !command.is_delete() {
            return Err(DecodeError::FlowModTable { table });
        }
        let flags = FlowModFlags::from_raw(flags).ok_or(DecodeError::FlowModFlags { flags })?;
        let match_ = decode_match(reader)?;
        let instructions = decode_instructions(reader.drain())?;
        Ok(FlowMod {
            cookie,
            cookie_mask,
            table,
            command,
            idle_timeout,
            hard_timeout,
            priority,
            buffer,
            out_port,
            out_group,
            flags,
            match_,
            instructions,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.cookie.0);
        out.u64(self.cookie_mask);
        out.u8(self.table.0);
        out.u8(self.command.raw());
        out.u16(self.idle_timeout);
        out.u16(self.hard_timeout);
        out.u16(self.priority.0);
        out.u32(self.buffer.0);
        out.u32(self.out_port.raw());
        out.u32(self.out_group.0);
        out.u16(self.flags.raw());
        out.zeros(2);
        encode_match(&self.match_, out);
        encode_instructions(&self.instructions, out);
    }
}
