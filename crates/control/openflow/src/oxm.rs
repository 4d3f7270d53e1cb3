//! OXM: matches as a list of type, length and value (section 7.2.3). What a field is comes from the table
//! in `millrace-flow`; nothing here names one.

use millrace_flow::{Field, Match, MatchBuilder, MatchError};
use thiserror::Error;

use crate::bytes::{Put, Reader, Short};
use crate::error_code::ErrorCode;

/// `OFPXMC_OPENFLOW_BASIC`: the class of the fields that the specification defines.
pub(crate) const CLASS_BASIC: u16 = 0x8000;

/// `OFPMT_OXM`.
const MATCH_TYPE_OXM: u16 = 1;

/// Why bytes are not a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OxmError {
    /// `OFPBMC_BAD_TYPE`.
    #[error("match type {type_}, expected 1 (OXM)")]
    Type {
        /// As found.
        type_: u16,
    },
    /// `OFPBMC_BAD_LEN`.
    #[error("the length of a match or of a match field is wrong")]
    Length,
    /// `OFPBMC_BAD_FIELD`.
    #[error("match field {number} of class {class:#06x} is unknown")]
    Field {
        /// OXM class; 0x8000 has the fields of the specification.
        class: u16,
        /// Number within the class.
        number: u8,
    },
    /// The fields are known, and what they say is illegal.
    #[error(transparent)]
    Match(#[from] MatchError),
}

impl OxmError {
    /// What a switch answers.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            OxmError::Type { .. } => ErrorCode::OFPBMC_BAD_TYPE,
            OxmError::Length => ErrorCode::OFPBMC_BAD_LEN,
            OxmError::Field { .. } => ErrorCode::OFPBMC_BAD_FIELD,
            OxmError::Match(MatchError::BadValue { .. }) => ErrorCode::OFPBMC_BAD_VALUE,
            OxmError::Match(MatchError::BadMask { .. }) => ErrorCode::OFPBMC_BAD_MASK,
            OxmError::Match(MatchError::BadWildcards { .. }) => ErrorCode::OFPBMC_BAD_WILDCARDS,
            OxmError::Match(MatchError::DupField { .. }) => ErrorCode::OFPBMC_DUP_FIELD,
            OxmError::Match(MatchError::BadPrereq { .. }) => ErrorCode::OFPBMC_BAD_PREREQ,
        }
    }
}

impl From<Short> for OxmError {
    fn from(_: Short) -> OxmError {
        OxmError::Length
    }
}

/// The four bytes before a value: `OXM_HEADER`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OxmHeader {
    /// Class; 0x8000 has the fields of the specification.
    pub class: u16,
    /// Number within the class, 7 bits.
    pub number: u8,
    /// Whether a mask as long as the value follows it.
    pub has_mask: bool,
    /// Bytes of value and mask.
    pub size: u8,
}

impl OxmHeader {
    /// The header of a basic field.
    pub const fn basic(field: Field, has_mask: bool) -> OxmHeader {
        let size = field.wire_size() as u8;
        OxmHeader {
            class: CLASS_BASIC,
            number: field.oxm(),
            has_mask,
            size: if has_mask { 2 * size } else { size },
        }
    }

    /// The basic field that this is the header of.
    pub fn field(&self) -> Option<Field> {
        if self.class == CLASS_BASIC {
            Field::from_oxm(self.number)
        } else {
            None
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<OxmHeader, Short> {
        let [class_0, class_1, number_and_mask, size] = reader.array()?;
        Ok(OxmHeader {
            class: u16::from_be_bytes([class_0, class_1]),
            number: number_and_mask >> 1,
            has_mask: number_and_mask & 1 == 1,
            size,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.class);
        out.u8(self.number << 1 | u8::from(self.has_mask));
        out.u8(self.size);
    }
}

/// A big-endian number of up to 16 bytes.
#[inline]
pub(crate) fn integer(bytes: &[u8]) -> u128 {
    if bytes.len() <= 8 {
        let narrow = bytes
            .iter()
            .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        u128::from(narrow)
    } else {
        bytes
            .iter()
            .fold(0u128, |value, byte| value << 8 | u128::from(*byte))
    }
}

/// Writes the value of a field in the size that it has on the wire.
#[inline]
pub(crate) fn put_value(out: &mut Vec<u8>, field: Field, value: u128) {
    out.bytes(&value.to_be_bytes()[16 - field.wire_size()..]);
}

/// Reads `ofp_match`, padding included.
pub(crate) fn decode_match(reader: &mut Reader<'_>) -> Result<Match, OxmError> {
    let type_ = reader.u16()?;
    let length = usize::from(reader.u16()?);
    if type_ != MATCH_TYPE_OXM {
        return Err(OxmError::Type { type_ });
    }
    let fields = reader.take(length.checked_sub(4).ok_or(OxmError::Length)?)?;
    reader.skip(length.next_multiple_of(8) - length)?;
    decode_fields(fields)
}

/// Reads a list of OXM fields that fills `bytes`.
fn decode_fields(bytes: &[u8]) -> Result<Match, OxmError> {
    if bytes.is_empty() {
        return Ok(Match::any());
    }
    let mut builder = Match::builder();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        decode_field(&mut reader, &mut builder)?;
    }
    Ok(builder.finish()?)
}

fn decode_field(reader: &mut Reader<'_>, builder: &mut MatchBuilder) -> Result<(), OxmError> {
    let header = OxmHeader::decode(reader)?;
    let payload = reader.take(usize::from(header.size))?;
    let field = header.field().ok_or(OxmError::Field {
        class: header.class,
        number: header.number,
    })?;
    if header != OxmHeader::basic(field, header.has_mask) {
        return Err(OxmError::Length);
    }
    let (value, mask) = payload
        .split_at_checked(field.wire_size())
        .ok_or(OxmError::Length)?;
    let mask = header.has_mask.then(|| integer(mask));
    builder.push(field, integer(value), mask)?;
    Ok(())
}

/// Writes `ofp_match`, padding included.
pub(crate) fn encode_match(given: &Match, out: &mut Vec<u8>) {
    let start = out.len();
    out.u16(MATCH_TYPE_OXM);
    out.u16(0);
    for given in given.iter() {
        OxmHeader::basic(given.field, given.mask.is_some()).encode(out);
        put_value(out, given.field, given.value);
        if let Some(mask) = given.mask {
            put_value(out, given.field, mask);
        }
    }
    out.length_at(start + 2, start);
    out.pad_from(start);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Match, OxmError> {
        decode_match(&mut Reader::new(bytes))
    }

    fn with_fields(fields: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0];
        bytes.extend_from_slice(fields);
        bytes.length_at(2, 0);
        bytes.pad_from(0);
        bytes
    }

    #[test]
    fn an_empty_match_is_eight_bytes() {
        assert_eq!(decode(&[0, 1, 0, 4, 0, 0, 0, 0]), Ok(Match::any()));
        assert_eq!(decode(&[0, 1, 0, 4, 0, 0, 0]), Err(OxmError::Length));
        assert_eq!(decode(&[0, 1, 0, 3, 0, 0, 0, 0]), Err(OxmError::Length));
        assert_eq!(
            decode(&[0, 0, 0, 4, 0, 0, 0, 0]),
            Err(OxmError::Type { type_: 0 })
        );
    }

    #[test]
    fn fields_that_are_unknown_or_of_another_class_are_named() {
        assert_eq!(
            decode(&with_fields(&[0x80, 0, 40 << 1, 1, 0])),
            Err(OxmError::Field {
                class: 0x8000,
                number: 40
            })
        );
        assert_eq!(
            decode(&with_fields(&[0, 1, 0, 2, 0, 1])),
            Err(OxmError::Field { class: 1, number: 0 })
        );
        assert_eq!(
            decode(&with_fields(&[0xff, 0xff, 0, 4, 0, 0, 0, 1])),
            Err(OxmError::Field {
                class: 0xffff,
                number: 0
            })
        );
    }

    #[test]
    fn a_field_of_the_wrong_length_is_a_bad_length() {
        assert_eq!(
            decode(&with_fields(&[0x80, 0, 0, 3, 0, 0, 1])),
            Err(OxmError::Length)
        );
        assert_eq!(
            decode(&with_fields(&[0x80, 0, 0, 200, 0, 0, 1])),
            Err(OxmError::Length)
        );
        assert_eq!(
            decode(&with_fields(&[0x80, 0, 1, 4, 0, 0, 0, 1])),
            Err(OxmError::Length)
        );
    }

    #[test]
    fn what_the_match_itself_refuses_keeps_its_code() {
        let port_80 = [0x80, 0, 14 << 1, 2, 0, 80];
        let error = decode(&with_fields(&port_80)).unwrap_err();
        assert_eq!(error.error_code(), ErrorCode::OFPBMC_BAD_PREREQ);
        let twice = [[0x80, 0, 0, 4, 0, 0, 0, 1], [0x80, 0, 0, 4, 0, 0, 0, 1]].concat();
        let error = decode(&with_fields(&twice)).unwrap_err();
        assert_eq!(error.error_code(), ErrorCode::OFPBMC_DUP_FIELD);
    }
}
