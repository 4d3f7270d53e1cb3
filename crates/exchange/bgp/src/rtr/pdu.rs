//! The PDUs that a cache sends (RFC 8210, section 5; RFC 6810, section 5, for version 0), and the Error Report of the
//! client.
//!
//! ```text
//!   0          8          16         24        31
//!  | version  | type     | session, flags, or   |
//!  |          |          | code of the error    |
//!  | length of the whole PDU in bytes            |
//!  | body …                                      |
//! ```

use core::net::IpAddr;

use super::error::{ErrorCode, RtrError};
use crate::family::Afi;
use crate::prefix::Prefix;
use crate::reader::Reader;

const SERIAL_NOTIFY: u8 = 0;
pub(super) const SERIAL_QUERY: u8 = 1;
pub(super) const RESET_QUERY: u8 = 2;
const CACHE_RESPONSE: u8 = 3;
const IPV4_PREFIX: u8 = 4;
const IPV6_PREFIX: u8 = 6;
const END_OF_DATA: u8 = 7;
const CACHE_RESET: u8 = 8;
const ROUTER_KEY: u8 = 9;
pub(super) const ERROR_REPORT: u8 = 10;

/// The size of the header of a PDU, in bytes.
pub(super) const HEADER_SIZE: u32 = 8;
/// The size of a subject key identifier and an AS number in a Router Key PDU, in bytes.
const ROUTER_KEY_MIN: usize = 24;
/// The largest number of characters of a cache's text that a message repeats.
const TEXT_LEN_MAX: usize = 200;

/// The flag of an announcement in a prefix PDU; without it, the PDU is a withdrawal (RFC 8210, section 5.6).
const ANNOUNCEMENT: u8 = 1;

/// A validated ROA payload: the origin AS may announce the prefix, and more specific prefixes up to
/// `max_len`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vrp {
    pub prefix: Prefix,
    /// The maximum permitted length of an announced prefix, in bits.
    pub max_len: u8,
    /// The AS number of the origin; 0 permits no origin (RFC 6483, section 4).
    pub asn: u32,
}

/// The intervals of an End of Data in seconds (RFC 8210, section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Intervals {
    pub(super) refresh: u32,
    pub(super) retry: u32,
    pub(super) expire: u32,
}

/// A PDU that a cache may send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pdu {
    SerialNotify {
        session: u16,
        serial: u32,
    },
    CacheResponse {
        session: u16,
    },
    Prefix {
        is_announced: bool,
        vrp: Vrp,
    },
    /// `intervals` is absent in version 0.
    EndOfData {
        session: u16,
        serial: u32,
        intervals: Option<Intervals>,
    },
    CacheReset,
    RouterKey,
    ErrorReport {
        code: ErrorCode,
        text: String,
    },
}

impl Pdu {
    /// Returns true for an Error Report, to which no Error Report may be the answer.
    pub(super) const fn is_error_report(kind: u8) -> bool {
        kind == ERROR_REPORT
    }

    /// Returns true for a Serial Notify, whose version has no meaning before the first answer (RFC 8210, section 7).
    pub(super) const fn is_notify(kind: u8) -> bool {
        kind == SERIAL_NOTIFY
    }

    /// Parses a PDU. `field` has the third and the fourth byte, `body` the bytes after the header.
    ///
    /// # Errors
    /// [`RtrError::Protocol`] with the code of the Error Report that the cache must get.
    pub(super) fn parse(version: u8, kind: u8, field: u16, body: &[u8]) -> Result<Pdu, RtrError> {
        let malformed =
            |name: &str| RtrError::protocol(ErrorCode::CORRUPT_DATA, format!("a malformed {name} PDU"));
        let mut reader = Reader(body);
        let pdu = match kind {
            SERIAL_NOTIFY => {
                let serial = reader.u32().ok_or_else(|| malformed("Serial Notify"))?;
                Pdu::SerialNotify {
                    session: field,
                    serial,
                }
            }
            SERIAL_QUERY | RESET_QUERY => {
                let text = format!("a query (a PDU of type {kind}), which only routers send");
                return Err(RtrError::protocol(ErrorCode::INVALID_REQUEST, text));
            }
            CACHE_RESPONSE => Pdu::CacheResponse { session: field },
            IPV4_PREFIX | IPV6_PREFIX => {
                let afi = if kind == IPV4_PREFIX { Afi::Ipv4 } else { Afi::Ipv6 };
                read_prefix(&mut reader, afi).ok_or_else(|| malformed("prefix"))?
            }
            END_OF_DATA => read_end(&mut reader, version, field).ok_or_else(|| malformed("End of Data"))?,
            CACHE_RESET => Pdu::CacheReset,
            ROUTER_KEY if version > 0 => {
                if body.len() < ROUTER_KEY_MIN {
                    return Err(malformed("Router Key"));
                }
                reader = Reader(&[]);
                Pdu::RouterKey
            }
            ERROR_REPORT => {
                reader = Reader(&[]);
                Pdu::ErrorReport {
                    code: ErrorCode(field),
                    text: error_text(body),
                }
            }
            other => {
                let text = format!("a PDU of type {other}, which version {version} does not have");
                return Err(RtrError::protocol(ErrorCode::UNSUPPORTED_TYPE, text));
            }
        };
        if reader.is_empty() {
            Ok(pdu)
        } else {
            Err(malformed("too long"))
        }
    }
}

/// Reads the body of a prefix PDU.
fn read_prefix(reader: &mut Reader<'_>, afi: Afi) -> Option<Pdu> {
    let (flags, len, max_len, _zero) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    let (address, bits) = match afi {
        Afi::Ipv4 => (reader.array::<4>().map(IpAddr::from)?, 32),
        Afi::Ipv6 => (reader.array::<16>().map(IpAddr::from)?, 128),
    };
    let asn = reader.u32()?;
    if max_len < len || max_len > bits {
        return None;
    }
    let prefix = Prefix::new(address, len)?;
    Some(Pdu::Prefix {
        is_announced: flags & ANNOUNCEMENT != 0,
        vrp: Vrp { prefix, max_len, asn },
    })
}

/// Reads the body of an End of Data, which has intervals from version 1 on.
fn read_end(reader: &mut Reader<'_>, version: u8, session: u16) -> Option<Pdu> {
    let serial = reader.u32()?;
    let intervals = if version > 0 {
        Some(Intervals {
            refresh: reader.u32()?,
            retry: reader.u32()?,
            expire: reader.u32()?,
        })
    } else {
        None
    };
    Some(Pdu::EndOfData {
        session,
        serial,
        intervals,
    })
}

/// Returns the text of an Error Report, which follows a copy of the erroneous PDU.
fn error_text(body: &[u8]) -> String {
    let text = |body| {
        let mut reader = Reader(body);
        let len = reader.u32()?;
        reader.take(usize::try_from(len).ok()?)?;
        let len = reader.u32()?;
        reader.take(usize::try_from(len).ok()?)
    };
    let text = text(body).unwrap_or_default();
    String::from_utf8_lossy(text)
        .chars()
        .filter(|letter| !letter.is_control())
        .take(TEXT_LEN_MAX)
        .collect()
}

/// Returns the bytes of a PDU.
pub(super) fn encode(version: u8, kind: u8, field: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version, kind];
    bytes.extend(field.to_be_bytes());
    bytes.extend((HEADER_SIZE + body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Returns an Error Report about an erroneous PDU (RFC 8210, section 5.11).
pub(super) fn error_report(version: u8, code: ErrorCode, erroneous: &[u8], text: &str) -> Vec<u8> {
    let mut body = (erroneous.len() as u32).to_be_bytes().to_vec();
    body.extend(erroneous);
    body.extend((text.len() as u32).to_be_bytes());
    body.extend(text.as_bytes());
    encode(version, ERROR_REPORT, code.0, &body)
}
