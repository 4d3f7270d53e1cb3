//! EXPERIMENTER: messages that the ONF or a vendor defines (OpenFlow 1.3.5, section 7.5.5). The body is not
//! interpreted.

use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `ofp_experimenter_header` and its body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Experimenter {
    /// An IEEE OUI, or a number that the ONF assigned.
    pub experimenter: u32,
    /// The message type, as the experimenter numbers it.
    pub exp_type: u32,
    /// The body.
    pub data: Box<[u8]>,
}

impl Experimenter {
    /// The number of the Open Networking Foundation, which extends OpenFlow 1.3.
    pub const ONF: u32 = 0x4f4e_4600;
    /// `ONF_ET_BUNDLE_CONTROL`: opens, closes, commits or discards a bundle.
    pub const ONF_BUNDLE_CONTROL: u32 = 2300;
    /// `ONF_ET_BUNDLE_ADD_MESSAGE`: adds a message to a bundle.
    pub const ONF_BUNDLE_ADD_MESSAGE: u32 = 2301;

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Experimenter, DecodeError> {
        Ok(Experimenter {
            experimenter: reader.u32()?,
            exp_type: reader.u32()?,
            data: reader.drain().into(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.experimenter);
        out.u32(self.exp_type);
        out.bytes(&self.data);
    }
}
