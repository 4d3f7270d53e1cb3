//! ERROR: a request failed (OpenFlow 1.3.5, section 7.5.4).

use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;
use crate::error_code::ErrorCode;
use crate::experimenter::Experimenter;

/// The number of bytes of the failed request that an error carries. The specification asks for at least 64
/// bytes, or for the whole request if it is shorter.
pub const ERROR_DATA_SIZE: usize = 64;

/// `ofp_error_msg`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ErrorMessage {
    /// Type and code of the error.
    pub code: ErrorCode,
    /// The first bytes of the failed request. In `OFPET_HELLO_FAILED`, the data are human-readable text. In
    /// `OFPET_EXPERIMENTER`, the number of the experimenter precedes the bytes of the request.
    pub data: Box<[u8]>,
}

impl ErrorMessage {
    /// Returns the error that answers `request`, with the first bytes of the request. An experimenter error
    /// has the number of the ONF.
    pub fn about(code: ErrorCode, request: &[u8]) -> ErrorMessage {
        let head = &request[..request.len().min(ERROR_DATA_SIZE)];
        let data = if code.type_ == ErrorCode::EXPERIMENTER_TYPE {
            [&Experimenter::ONF.to_be_bytes()[..], head].concat().into()
        } else {
            head.into()
        };
        ErrorMessage { code, data }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<ErrorMessage, DecodeError> {
        Ok(ErrorMessage {
            code: ErrorCode {
                type_: reader.u16()?,
                code: reader.u16()?,
            },
            data: reader.drain().into(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.code.type_);
        out.u16(self.code.code);
        out.bytes(&self.data);
    }
}
