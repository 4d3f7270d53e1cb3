//! FLOW_REMOVED: a flow entry was removed (OpenFlow 1.3.5, section 7.4.2).

use millrace_flow::Match;
use millrace_types::{Cookie, Duration, Priority, TableId};

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;
use crate::oxm::{decode_match, encode_match};

wire_enum! {
    /// `ofp_flow_removed_reason`.
    FlowRemovedReason(u8) {
        /// The idle time-out passed.
        IdleTimeout = 0 "idle_timeout",
        /// The hard time-out passed.
        HardTimeout = 1 "hard_timeout",
        /// A flow_mod deleted the entry.
        Delete = 2 "delete",
        /// A group_mod deleted a group that the entry uses.
        GroupDelete = 3 "group_delete",
    }
}

/// `ofp_flow_removed`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowRemoved {
    /// The cookie of the entry.
    pub cookie: Cookie,
    /// The priority of the entry.
    pub priority: Priority,
    /// The reason of the removal.
    pub reason: FlowRemovedReason,
    /// The table of the entry.
    pub table: TableId,
    /// The time for which the entry existed.
    pub duration: Duration,
    /// The idle time-out in the flow_mod, in seconds; 0 means none.
    pub idle_timeout: u16,
    /// The hard time-out in the flow_mod, in seconds; 0 means none.
    pub hard_timeout: u16,
    /// The packets that matched the entry.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
    /// The match in the flow_mod.
    pub match_: Match,
}

impl FlowRemoved {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<FlowRemoved, DecodeError> {
        Ok(FlowRemoved {
            cookie: Cookie(reader.u64()?),
            priority: Priority(reader.u16()?),
            reason: FlowRemovedReason::from_raw(reader.u8()?).ok_or(DecodeError::Length)?,
            table: TableId(reader.u8()?),
            duration: reader.duration()?,
            idle_timeout: reader.u16()?,
            hard_timeout: reader.u16()?,
            packets: reader.u64()?,
            bytes: reader.u64()?,
            match_: decode_match(reader)?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.cookie.0);
        out.u16(self.priority.0);
        out.u8(self.reason.raw());
        out.u8(self.table.0);
        out.duration(self.duration);
        out.u16(self.idle_timeout);
        out.u16(self.hard_timeout);
        out.u64(self.packets);
        out.u64(self.bytes);
        encode_match(&self.match_, out);
    }
}
