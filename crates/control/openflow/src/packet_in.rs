//! PACKET_IN: a packet for the controller (OpenFlow 1.3.5, section 7.4.1).

use millrace_flow::Match;
use millrace_types::{BufferId, Cookie, TableId};

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;
use crate::oxm::{decode_match, encode_match};

wire_enum! {
    /// `ofp_packet_in_reason`.
    PacketInReason(u8) {
        /// A table-miss entry sent the packet.
        NoMatch = 0 "no_match",
        /// An output action sent the packet.
        Action = 1 "action",
        /// The TTL of the packet expired.
        InvalidTtl = 2 "invalid_ttl",
    }
}

/// `ofp_packet_in`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PacketIn {
    /// The buffer that holds the packet, or [`BufferId::NONE`].
    pub buffer: BufferId,
    /// Size of the whole packet, in bytes; `data` may hold fewer.
    pub total_len: u16,
    pub reason: PacketInReason,
    /// The table that sent the packet.
    pub table: TableId,
    /// The cookie of the entry that sent the packet; all ones if no entry did.
    pub cookie: Cookie,
    /// The values of in_port, in_phy_port, metadata and tunnel_id; fields that are zero are left out.
    pub match_: Match,
    /// The packet, or its first bytes.
    pub data: Box<[u8]>,
}

impl PacketIn {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PacketIn, DecodeError> {
        let buffer = BufferId(reader.u32()?);
        let total_len = reader.u16()?;
        // A reason that version 1.3 does not define is refused.
        let reason = PacketInReason::from_raw(reader.u8()?).ok_or(DecodeError::Length)?;
        let table = TableId(reader.u8()?);
        let cookie = Cookie(reader.u64()?);
        let match_ = decode_match(reader)?;
        reader.skip(2)?;
        Ok(PacketIn {
            buffer,
            total_len,
            reason,
            table,
            cookie,
            match_,
            data: reader.drain().into(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.buffer.0);
        out.u16(self.total_len);
        out.u8(self.reason.raw());
        out.u8(self.table.0);
        out.u64(self.cookie.0);
        encode_match(&self.match_, out);
        out.zeros(2);
        out.bytes(&self.data);
    }
}
