//! TABLE: counters of tables (OpenFlow 1.3.5, section 7.3.5.4).

use millrace_types::TableId;

use super::{MultipartType, ReplyPart};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `ofp_table_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableStats {
    pub table: TableId,
    /// The number of entries.
    pub active: u32,
    /// The number of packets that were looked up.
    pub lookups: u64,
    /// The number of packets that an entry matched.
    pub matched: u64,
}

impl TableStats {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<TableStats, DecodeError> {
        let table = TableId(reader.u8()?);
        reader.skip(3)?;
        Ok(TableStats {
            table,
            active: reader.u32()?,
            lookups: reader.u64()?,
            matched: reader.u64()?,
        })
    }
}

impl ReplyPart for TableStats {
    const TYPE: MultipartType = MultipartType::Table;

    fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.table.0);
        out.zeros(3);
        out.u32(self.active);
        out.u64(self.lookups);
        out.u64(self.matched);
    }
}
