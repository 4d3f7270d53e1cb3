//! OXM: matches as lists of type, length and value (OpenFlow 1.3.5, section 7.2.3). The table of fields in
//! `millrace-flow` defines all fields; this module names none of them.
//!
//! ```text
//!  31            16 15          9 8 7      0
//! | class          | number      |M| length | experimenter, if class is 0xffff | value | mask, if M |
//! ```
//! `length` counts all bytes after the header, including the four bytes of the experimenter.

use millrace_flow::{Field, Match, MatchBuilder, MatchError, OxmId};
use thiserror::Error;

use crate::bytes::{PutBytes, Reader, Truncated};
use crate::error_code::ErrorCode;

/// `OFPMT_OXM`.
const MATCH_TYPE_OXM: u16 = 1;

/// The reason why bytes are not a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OxmError {
    /// `OFPBMC_BAD_TYPE`.
    #[error("match type {type_} is not supported: expected 1 (OXM)")]
    Type {
        /// The value in the message.
        type_: u16,
    },
    /// `OFPBMC_BAD_LEN`.
    #[error("the length of a match or of a match field does not match its contents")]
    Length,
    /// `OFPBMC_BAD_FIELD`.
    #[error("match field {number} of OXM class {class:#06x} is unknown")]
    Field {
        /// OXM class; 0x8000 is the class of the fields in the specification.
        class: u16,
        /// Number within the class.
        number: u8,
    },
    /// The fields are known, but the match is invalid.
    #[error(transparent)]
    Match(#[from] MatchError),
}

impl OxmError {
    /// Returns the error that a switch sends to the controller.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            OxmError::Type { .. } => ErrorCode::OFPBMC_BAD_TYPE,
            OxmError::Length => ErrorCode::OFPBMC_BAD_LEN,
            OxmError::Field { .. } => ErrorCode::OFPBMC_BAD_FIELD,
            OxmError::Match(MatchError::BadValue { .. }) => ErrorCode::OFPBMC_BAD_VALUE,
            OxmError::Match(MatchError::BadMask { .. }) => ErrorCode::OFPBMC_BAD_MASK,
            OxmError::Match(MatchError::BadWildcards { .. }) => ErrorCode::OFPBMC_BAD_WILDCARDS,
            OxmError::Match(MatchError::DupField { .. }) => ErrorCode::OFPBMC_DUP_FIELD,
            OxmError::Match(MatchError::BadPrereq { .. } | MatchError::LaterFragment { .. }) => {
                ErrorCode::OFPBMC_BAD_PREREQ
            }
        }
    }
}

impl From<Truncated> for OxmError {
    fn from(_: Truncated) -> OxmError {
        OxmError::Length
    }
}

/// The header of one field, with the number of the experimenter if the field belongs to one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OxmHeader {
    /// Class, number and experimenter.
    pub id: OxmId,
    /// True if a mask follows the value; value and mask have the same length.
    pub has_mask: bool,
    /// Size of value and mask together, in bytes.
    pub size: u8,
}

impl OxmHeader {
    /// Returns the header of a field.
    pub const fn of(field: Field, has_mask: bool) -> OxmHeader {
        let size = field.wire_size() as u8;
        OxmHeader {
            id: field.oxm(),
            has_mask,
            size: if has_mask { 2 * size } else { size },
        }
    }

    /// Returns the field with this header; `None` if the field is unknown.
    pub fn field(&self) -> Option<Field> {
        Field::from_oxm(self.id)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<OxmHeader, Truncated> {
        let [class_0, class_1, number_and_mask, length] = reader.array()?;
        let class = u16::from_be_bytes([class_0, class_1]);
        let mut header = OxmHeader {
            id: OxmId {
                class,
                number: number_and_mask >> 1,
                experimenter: 0,
            },
            has_mask: number_and_mask & 1 == 1,
            size: length,
        };
        if class == OxmId::EXPERIMENTER {
            header.size = length
                .checked_sub(header.id.experimenter_size() as u8)
                .ok_or(Truncated)?;
            header.id.experimenter = reader.u32()?;
        }
        Ok(header)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.id.class);
        out.u8(self.id.number << 1 | u8::from(self.has_mask));
        out.u8(self.size + self.id.experimenter_size() as u8);
        if self.id.class == OxmId::EXPERIMENTER {
            out.u32(self.id.experimenter);
        }
    }
}

/// Returns the big-endian number in `bytes`, at most 16 of them.
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

/// Appends the value of a field, in the field's size on the wire.
#[inline]
pub(crate) fn put_value(out: &mut Vec<u8>, field: Field, value: u128) {
    out.bytes(&value.to_be_bytes()[16 - field.wire_size()..]);
}

/// Reads `ofp_match` with its padding.
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
        class: header.id.class,
        number: header.id.number,
    })?;
    if header.size != OxmHeader::of(field, header.has_mask).size {
        return Err(OxmError::Length);
    }
    let (value, mask) = payload
        .split_at_checked(field.wire_size())
        .ok_or(OxmError::Length)?;
    let mask = header.has_mask.then(|| integer(mask));
    builder.push(field, integer(value), mask)?;
    Ok(())
}

/// Appends `ofp_match` with its padding.
pub(crate) fn encode_match(given: &Match, out: &mut Vec<u8>) {
    let start = out.len();
    out.u16(MATCH_TYPE_OXM);
    out.u16(0);
    for given in given.iter() {
        OxmHeader::of(given.field, given.mask.is_some()).encode(out);
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

    /// The `ofp_match` of each text, from the flow_mods that ovs-ofctl 3.1.0 sends with `-O OpenFlow13`.
    #[test]
    fn what_ovs_ofctl_sends_is_read_and_written_byte_for_byte() {
        for (text, hex) in [
            (
                "tcp,tcp_flags=+syn-ack",
                "0001001b80000a0208008000140106ffff55084f4e4600000200120000000000",
            ),
            (
                "tcp,tcp_flags=0x12",
                "0001001980000a0208008000140106ffff54064f4e4600001200000000000000",
            ),
            (
                "tcp,tcp_flags=0xfff",
                "0001001980000a0208008000140106ffff54064f4e46000fff00000000000000",
            ),
            (
                "tcp,tcp_flags=+ns",
                "0001001b80000a0208008000140106ffff55084f4e4600010001000000000000",
            ),
            (
                "tcp,tcp_flags=+[200]",
                "0001001b80000a0208008000140106ffff55084f4e4600020002000000000000",
            ),
            (
                "tcp,tcp_flags=0",
                "0001001980000a0208008000140106ffff54064f4e4600000000000000000000",
            ),
            ("ip,nw_frag=no", "0001000f80000a020800000134010000"),
            ("ip,nw_frag=first", "0001000f80000a020800000134010100"),
            ("ip,nw_frag=later", "0001000f80000a020800000134010300"),
            ("ip,nw_frag=yes", "0001001080000a020800000135020101"),
            ("ipv6,nw_frag=not_later", "0001001080000a0286dd000135020002"),
            ("ip,nw_ttl=5", "0001000f80000a02080000013a010500"),
            ("ipv6,nw_ttl=0", "0001000f80000a0286dd00013a010000"),
            (
                "tcp,tp_src=0x100/0xff00",
                "0001001780000a020800800014010680001b040100ff0000",
            ),
            (
                "udp6,tp_dst=0x1/0x1",
                "0001001780000a0286dd8000140111800021040001000100",
            ),
            (
                "sctp,tp_src=7/7",
                "0001001780000a0208008000140184800023040007000700",
            ),
        ] {
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            let given: Match = text.parse().unwrap();
            assert_eq!(decode(&bytes), Ok(given.clone()), "{text}");
            let mut out = Vec::new();
            encode_match(&given, &mut out);
            assert_eq!(out, bytes, "{text}");
        }
    }

    #[test]
    fn tcp_flags_are_known_by_the_header_of_nicira_as_well() {
        let flags = [
            0x80,
            0,
            5 << 1,
            2,
            8,
            0,
            0x80,
            0,
            10 << 1,
            1,
            6,
            0,
            1,
            34 << 1,
            2,
            0,
            2,
        ];
        assert_eq!(
            decode(&with_fields(&flags)),
            Ok("tcp,tcp_flags=syn".parse().unwrap())
        );
    }

    #[test]
    fn the_fields_of_open_vswitch_have_its_prerequisites() {
        let (ipv4, udp) = ([0x80, 0, 5 << 1, 2, 8, 0], [0x80, 0, 10 << 1, 1, 17]);
        let (ttl, frag) = ([0, 1, 29 << 1, 1, 5], [0, 1, 26 << 1, 1, 1]);
        let flags = [0xff, 0xff, 42 << 1, 6, 0x4f, 0x4e, 0x46, 0, 0, 2];
        for fields in [
            &ttl[..],
            &frag,
            &flags,
            &[&ipv4[..], &flags].concat(),
            &[&ipv4[..], &udp, &flags].concat(),
            // As in Open vSwitch, a rule may match the port of a later fragment.
            &[
                &ipv4[..],
                &udp,
                &[0, 1, 26 << 1, 1, 3],
                &[0x80, 0, 16 << 1, 2, 0, 80],
            ]
            .concat(),
        ] {
            let error = decode(&with_fields(fields)).unwrap_err();
            assert_eq!(error.error_code(), ErrorCode::OFPBMC_BAD_PREREQ, "{fields:?}");
        }
        assert!(decode(&with_fields(&[&ttl[..], &ipv4, &frag].concat())).is_ok());
        let masked_ttl = [0, 1, 29 << 1 | 1, 2, 5, 7];
        let error = decode(&with_fields(&[&ipv4[..], &masked_ttl].concat())).unwrap_err();
        assert_eq!(error.error_code(), ErrorCode::OFPBMC_BAD_MASK);
    }

    #[test]
    fn an_experimenter_that_is_unknown_or_cut_short_is_refused() {
        let unknown = [0xff, 0xff, 42 << 1, 6, 0, 0, 0x23, 0x20, 0, 2];
        assert_eq!(
            decode(&with_fields(&unknown)),
            Err(OxmError::Field {
                class: 0xffff,
                number: 42
            })
        );
        for short in [
            &[0xff, 0xff, 42 << 1, 3, 0x4f, 0x4e, 0x46][..],
            &[0xff, 0xff, 42 << 1, 4],
        ] {
            assert_eq!(decode(&with_fields(short)), Err(OxmError::Length));
        }
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
