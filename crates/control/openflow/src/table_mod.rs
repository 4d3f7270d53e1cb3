//! TABLE_MOD: the configuration of a table (OpenFlow 1.3.5, section 7.3.3).

use millrace_types::TableId;

use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `OFPTC_DEPRECATED_MASK`: bits of earlier versions, which switches ignore in version 1.3.
const DEPRECATED_MASK: u32 = 3;

/// `ofp_table_mod`. Version 1.3 defines no configuration bit, so only the table number has a meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableMod {
    /// The table, or [`TableId::ALL`].
    pub table: TableId,
    /// The deprecated configuration bits of earlier versions, a value from 0 to 3.
    pub config: u32,
}

impl TableMod {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<TableMod, DecodeError> {
        let table = TableId(reader.u8()?);
        reader.skip(3)?;
        let config = reader.u32()?;
        if config & !DEPRECATED_MASK != 0 {
            return Err(DecodeError::TableConfig { config });
        }
        Ok(TableMod { table, config })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.table.0);
        out.zeros(3);
        out.u32(self.config);
    }
}
