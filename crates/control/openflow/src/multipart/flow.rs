//! FLOW: the list of flow entries (OpenFlow 1.3.5, section 7.3.5.2).

use core::borrow::Borrow;

use millrace_flow::{Instructions, Match};
use millrace_types::{Cookie, Duration, GroupId, PortNo, Priority, TableId};

use super::{MultipartType, ReplyPart, sized};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;
use crate::flow_mod::FlowModFlags;
use crate::instruction::{decode_instructions, encode_instructions};
use crate::oxm::{decode_match, encode_match};

/// `ofp_flow_stats_request`, which has the format of `ofp_aggregate_stats_request`: a selection of entries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowStatsRequest {
    /// The table, or [`TableId::ALL`].
    pub table: TableId,
    /// Selects entries that output to this port; [`PortNo::ANY`] selects all.
    pub out_port: PortNo,
    /// Selects entries that output to this group; [`GroupId::ANY`] selects all.
    pub out_group: GroupId,
    /// Selects entries with this cookie, compared under `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie that must be equal; zero compares none.
    pub cookie_mask: u64,
    /// Selects entries whose match equals this match or is narrower.
    pub match_: Match,
}

impl FlowStatsRequest {
    /// Returns a request for every entry of every table.
    pub fn all() -> FlowStatsRequest {
        FlowStatsRequest {
            table: TableId::ALL,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            cookie: Cookie(0),
            cookie_mask: 0,
            match_: Match::any(),
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<FlowStatsRequest, DecodeError> {
        let table = TableId(reader.u8()?);
        reader.skip(3)?;
        let out_port = PortNo::from_raw(reader.u32()?);
        let out_group = GroupId(reader.u32()?);
        reader.skip(4)?;
        Ok(FlowStatsRequest {
            table,
            out_port,
            out_group,
            cookie: Cookie(reader.u64()?),
            cookie_mask: reader.u64()?,
            match_: decode_match(reader)?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.table.0);
        out.zeros(3);
        out.u32(self.out_port.raw());
        out.u32(self.out_group.0);
        out.zeros(4);
        out.u64(self.cookie.0);
        out.u64(self.cookie_mask);
        encode_match(&self.match_, out);
    }
}

/// `ofp_flow_stats`: one entry. Match and instructions may be borrowed, so that a listing of a million
/// entries needs no copies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowStats<M = Match, I = Instructions> {
    /// The table of the entry.
    pub table: TableId,
    /// The time since the entry was added.
    pub duration: Duration,
    /// The priority of the entry.
    pub priority: Priority,
    /// The idle time-out in the flow_mod, in seconds; 0 means none.
    pub idle_timeout: u16,
    /// The hard time-out in the flow_mod, in seconds; 0 means none.
    pub hard_timeout: u16,
    /// The flags in the flow_mod.
    pub flags: FlowModFlags,
    /// The cookie of the entry.
    pub cookie: Cookie,
    /// The packets that matched the entry.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
    /// The match in the flow_mod.
    pub match_: M,
    /// The instructions in the flow_mod.
    pub instructions: I,
}

impl FlowStats {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<FlowStats, DecodeError> {
        let mut body = sized(reader)?;
        let table = TableId(body.u8()?);
        body.skip(1)?;
        let duration = body.duration()?;
        let priority = Priority(body.u16()?);
        let (idle_timeout, hard_timeout) = (body.u16()?, body.u16()?);
        let flags = FlowModFlags::from_raw_truncated(body.u16()?);
        body.skip(4)?;
        Ok(FlowStats {
            table,
            duration,
            priority,
            idle_timeout,
            hard_timeout,
            flags,
            cookie: Cookie(body.u64()?),
            packets: body.u64()?,
            bytes: body.u64()?,
            match_: decode_match(&mut body)?,
            instructions: decode_instructions(body.drain())?,
        })
    }
}

impl<M: Borrow<Match>, I: Borrow<Instructions>> ReplyPart for FlowStats<M, I> {
    const TYPE: MultipartType = MultipartType::Flow;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table.0);
        out.zeros(1);
        out.duration(self.duration);
        out.u16(self.priority.0);
        out.u16(self.idle_timeout);
        out.u16(self.hard_timeout);
        out.u16(self.flags.raw());
        out.zeros(4);
        out.u64(self.cookie.0);
        out.u64(self.packets);
        out.u64(self.bytes);
        encode_match(self.match_.borrow(), out);
        encode_instructions(self.instructions.borrow(), out);
        out.length_at(start, start);
    }
}
