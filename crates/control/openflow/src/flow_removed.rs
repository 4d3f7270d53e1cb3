//! FLOW_REMOVED: a flow entry is gone (section 7.4.2).

use millrace_flow::Match;
use millrace_types::{Cookie, Duration, Priority, TableId};

use crate::bytes::{Put, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;
use crate::oxm::{decode_match, encode_match};

wire_enum! {
    /// `ofp_flow_removed_reason`.
    FlowRemovedReason(u8) {
        /// No packet for too long.
        IdleTimeout = 0 "idle_timeout",
        /// Its time was up.
        HardTimeout = 1 "hard_timeout",
        /// A flow_mod deleted it.
        Delete = 2 "delete",
        /// Its group was deleted.
        GroupDelete = 3 "group_delete",
    }
}

/// `ofp_flow_removed`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowRemoved {
    /// Of the entry.
    pub cookie: Cookie,
    /// Of the entry.
    pub priority: Priority,
    /// Why it is gone.
    pub reason: FlowRemovedReason,
    /// Where it was.
    pub table: TableId,
    /// How long it lived.
    pub duration: Duration,
    /// As in the flow_mod, seconds.
    pub idle_timeout: u16,
    /// As in the flow_mod, seconds.
    pub hard_timeout: u16,
    /// Packets that matched it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// As in the flow_mod.
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
