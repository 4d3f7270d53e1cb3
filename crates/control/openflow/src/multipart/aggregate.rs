//! AGGREGATE: sums over flow entries (OpenFlow 1.3.5, section 7.3.5.3). The request has the same format as a
//! FLOW request.

use super::{MultipartType, ReplyPart};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `ofp_aggregate_stats_reply`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AggregateStats {
    /// Packets that matched any of the entries.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
    /// The number of entries.
    pub flows: u32,
}

impl AggregateStats {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<AggregateStats, DecodeError> {
        let stats = AggregateStats {
            packets: reader.u64()?,
            bytes: reader.u64()?,
            flows: reader.u32()?,
        };
        reader.skip(4)?;
        Ok(stats)
    }
}

impl ReplyPart for AggregateStats {
    const TYPE: MultipartType = MultipartType::Aggregate;

    fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.packets);
        out.u64(self.bytes);
        out.u32(self.flows);
        out.zeros(4);
    }
}
