//! DESC: the maker of the switch and its name (OpenFlow 1.3.5, section 7.3.5.1).

use super::{MultipartType, ReplyPart};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

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
            manufacturer: reader.text(256)?,
            hardware: reader.text(256)?,
            software: reader.text(256)?,
            serial: reader.text(32)?,
            datapath: reader.text(256)?,
        })
    }
}

impl ReplyPart for Desc {
    const TYPE: MultipartType = MultipartType::Desc;

    fn encode(&self, out: &mut Vec<u8>) {
        out.text(&self.manufacturer, 256);
        out.text(&self.hardware, 256);
        out.text(&self.software, 256);
        out.text(&self.serial, 32);
        out.text(&self.datapath, 256);
    }
}
