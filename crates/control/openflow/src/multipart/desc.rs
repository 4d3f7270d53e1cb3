//! DESC: the maker of the switch and its name (OpenFlow 1.3.5, section 7.3.5.1).

use super::{MultipartType, ReplyPart};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// Sizes of the fields in bytes, as openflow.h names them.
const DESC_STR_LEN: usize = 256;
const SERIAL_NUM_LEN: usize = 32;

/// `ofp_desc`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Desc {
    /// Manufacturer, at most 255 bytes.
    pub manufacturer: String,
    /// Hardware, at most 255 bytes.
    pub hardware: String,
    /// Software, at most 255 bytes.
    pub software: String,
    /// Serial number, at most 31 bytes.
    pub serial: String,
    /// A human-readable name of the bridge, at most 255 bytes.
    pub datapath: String,
}

impl Desc {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Desc, DecodeError> {
        Ok(Desc {
            manufacturer: reader.text(DESC_STR_LEN)?,
            hardware: reader.text(DESC_STR_LEN)?,
            software: reader.text(DESC_STR_LEN)?,
            serial: reader.text(SERIAL_NUM_LEN)?,
            datapath: reader.text(DESC_STR_LEN)?,
        })
    }
}

impl ReplyPart for Desc {
    const TYPE: MultipartType = MultipartType::Desc;

    fn encode(&self, out: &mut Vec<u8>) {
        out.text(&self.manufacturer, DESC_STR_LEN);
        out.text(&self.hardware, DESC_STR_LEN);
        out.text(&self.software, DESC_STR_LEN);
        out.text(&self.serial, SERIAL_NUM_LEN);
        out.text(&self.datapath, DESC_STR_LEN);
    }
}
