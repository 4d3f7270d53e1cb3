//! TABLE: counters of tables (section 7.3.5.4).

use millrace_types::TableId;

use super::{MultipartType, ReplyPart};
use crate::bytes::{Put, Reader};
use crate::decode_error::DecodeError;

/// `ofp_table_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableStats {
    /// Which table.
    pub table: TableId,
    /// How many entries it has.
    pub active: u32,
    /// Packets looked up in it.
    pub lookups: u64,
    /// Packets that an entry matched.
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
