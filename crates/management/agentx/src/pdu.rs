//! PDUs of AgentX (RFC 2741, section 6): a header of 20 bytes, an optional context, and what the type has.
//!
//! ```text
//!  0        1        2        3
//!  version  type     flags    0
//!  session id, transaction id, packet id, length of what follows: four bytes each
//! ```

use thiserror::Error;

use crate::objects::Value;
use crate::oid::Oid;

/// Bytes before the payload of each PDU.
pub const HEADER_SIZE: usize = 20;
/// The longest payload that is read. snmpd asks for hundreds of objects at most.
pub const PAYLOAD_MAX: usize = 1 << 20;

const VERSION: u8 = 1;
const NON_DEFAULT_CONTEXT: u8 = 0x08;
const NETWORK_BYTE_ORDER: u8 = 0x10;
/// `internet`, with which the short form of an identifier begins.
const INTERNET: [u32; 4] = [1, 3, 6, 1];

/// The header of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    kind: u8,
    flags: u8,
    pub session: u32,
    pub transaction: u32,
    pub packet: u32,
    /// The size of the payload.
    pub size: usize,
}

/// A range of objects to search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    pub start: Oid,
    /// True if `start` itself is meant, too.
    pub includes: bool,
    /// The end, which is not meant; empty for none.
    pub end: Oid,
}

/// The content of a PDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Open {
        timeout_s: u8,
        description: String,
    },
    Close {
        reason: u8,
    },
    Register {
        priority: u8,
        subtree: Oid,
    },
    Get(Vec<Range>),
    GetNext(Vec<Range>),
    GetBulk {
        non_repeaters: u16,
        repetitions: u16,
        ranges: Vec<Range>,
    },
    TestSet,
    CommitSet,
    UndoSet,
    CleanupSet,
    Notify(Vec<(Oid, Value)>),
    Ping,
    Response {
        error: u16,
        index: u16,
        bindings: Vec<(Oid, Value)>,
    },
    /// A type that a subagent does not get.
    Other(u8),
}

/// One message of either side, whatever its byte order was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pdu {
    pub session: u32,
    pub transaction: u32,
    pub packet: u32,
    /// The context; empty for the default one.
    pub context: String,
    pub content: Content,
}

/// The reason why bytes are no PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PduError {
    #[error("version {0}: expected 1")]
    Version(u8),
    #[error("a payload of {0} bytes: expected at most {PAYLOAD_MAX}")]
    TooLong(usize),
    #[error("the payload ends within a value: expected more bytes")]
    Short,
    #[error("a value of the type {0}: expected one of RFC 2741, section 5.4")]
    Type(u16),
    #[error("an identifier of {0} parts: expected at most 128")]
    Oid(usize),
}

/// The types of PDUs (RFC 2741, section 6.1).
mod kind {
    pub(super) const OPEN: u8 = 1;
    pub(super) const CLOSE: u8 = 2;
    pub(super) const REGISTER: u8 = 3;
    pub(super) const GET: u8 = 5;
    pub(super) const GET_NEXT: u8 = 6;
    pub(super) const GET_BULK: u8 = 7;
    pub(super) const TEST_SET: u8 = 8;
    pub(super) const COMMIT_SET: u8 = 9;
    pub(super) const UNDO_SET: u8 = 10;
    pub(super) const CLEANUP_SET: u8 = 11;
    pub(super) const NOTIFY: u8 = 12;
    pub(super) const PING: u8 = 13;
    pub(super) const RESPONSE: u8 = 18;
}

/// The types of values (RFC 2741, section 5.4).
mod value_type {
    pub(super) const INTEGER: u16 = 2;
    pub(super) const OCTET_STRING: u16 = 4;
    pub(super) const NULL: u16 = 5;
    pub(super) const OBJECT_IDENTIFIER: u16 = 6;
    pub(super) const IP_ADDRESS: u16 = 64;
    pub(super) const COUNTER_32: u16 = 65;
    pub(super) const GAUGE_32: u16 = 66;
    pub(super) const TIME_TICKS: u16 = 67;
    pub(super) const OPAQUE: u16 = 68;
    pub(super) const COUNTER_64: u16 = 70;
    pub(super) const NO_SUCH_OBJECT: u16 = 128;
    pub(super) const NO_SUCH_INSTANCE: u16 = 129;
    pub(super) const END_OF_MIB_VIEW: u16 = 130;
}

impl Header {
    /// Returns true if the PDU is an answer, which gets none.
    pub fn is_response(&self) -> bool {
        self.kind == kind::RESPONSE
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`PduError`].
    pub fn parse(bytes: &[u8; HEADER_SIZE]) -> Result<Header, PduError> {
        let [version, kind, flags, ..] = *bytes;
        if version != VERSION {
            return Err(PduError::Version(version));
        }
        let mut reader = Reader::new(&bytes[4..], flags);
        let (session, transaction, packet) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let size = reader.u32()? as usize;
        if size > PAYLOAD_MAX {
            return Err(PduError::TooLong(size));
        }
        Ok(Header {
            kind,
            flags,
            session,
            transaction,
            packet,
            size,
        })
    }
}

/// Values of a payload, in the byte order that its header names.
struct Reader<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], flags: u8) -> Reader<'a> {
        Reader {
            bytes,
            is_big: flags & NETWORK_BYTE_ORDER != 0,
        }
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], PduError> {
        let (taken, rest) = self.bytes.split_at_checked(size).ok_or(PduError::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, PduError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, PduError> {
        let bytes = self.take(2)?;
        let bytes = [bytes[0], bytes[1]];
        Ok(if self.is_big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    fn u32(&mut self) -> Result<u32, PduError> {
        let bytes = self.take(4)?;
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        Ok(if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// Reads an identifier, and whether it is meant itself.
    fn oid(&mut self) -> Result<(Oid, bool), PduError> {
        let (len, prefix, include) = (self.u8()?, self.u8()?, self.u8()?);
        self.u8()?;
        if usize::from(len) > Oid::LEN_MAX {
            return Err(PduError::Oid(len.into()));
        }
        let mut parts = Vec::new();
        if prefix != 0 {
            parts.extend(INTERNET);
            parts.push(prefix.into());
        }
        for _ in 0..len {
            parts.push(self.u32()?);
        }
        Ok((Oid::new(&parts), include != 0))
    }

    fn octets(&mut self) -> Result<Vec<u8>, PduError> {
        let size = self.u32()? as usize;
        let octets = self.take(size)?.to_vec();
        self.take(size.next_multiple_of(4) - size)?;
        Ok(octets)
    }

    fn ranges(&mut self) -> Result<Vec<Range>, PduError> {
        let mut ranges = Vec::new();
        while !self.bytes.is_empty() {
            let ((start, includes), (end, _)) = (self.oid()?, self.oid()?);
            ranges.push(Range { start, includes, end });
        }
        Ok(ranges)
    }

    fn bindings(&mut self) -> Result<Vec<(Oid, Value)>, PduError> {
        let mut bindings = Vec::new();
        while !self.bytes.is_empty() {
            let kind = self.u16()?;
            self.u16()?;
            let (name, _) = self.oid()?;
            let value = match kind {
                value_type::INTEGER => Value::Integer(self.u32()? as i32),
                value_type::OCTET_STRING => Value::OctetString(self.octets()?),
                value_type::NULL => Value::Null,
                value_type::OBJECT_IDENTIFIER => Value::ObjectId(self.oid()?.0),
                value_type::IP_ADDRESS => match self.octets()?.as_slice() {
                    [a, b, c, d] => Value::IpAddress([*a, *b, *c, *d]),
                    _ => return Err(PduError::Short),
                },
                value_type::COUNTER_32 => Value::Counter32(self.u32()?),
                value_type::GAUGE_32 => Value::Gauge32(self.u32()?),
                value_type::TIME_TICKS => Value::TimeTicks(self.u32()?),
                value_type::COUNTER_64 => {
                    let (first, second) = (u64::from(self.u32()?), u64::from(self.u32()?));
                    Value::Counter64(if self.is_big {
                        first << 32 | second
                    } else {
                        second << 32 | first
                    })
                }
                value_type::OPAQUE => Value::Opaque(self.octets()?),
                value_type::NO_SUCH_OBJECT => Value::NoSuchObject,
                value_type::NO_SUCH_INSTANCE => Value::NoSuchInstance,
                value_type::END_OF_MIB_VIEW => Value::EndOfMibView,
                kind => return Err(PduError::Type(kind)),
            };
            bindings.push((name, value));
        }
        Ok(bindings)
    }
}

impl Pdu {
    /// Reads the payload that follows a header.
    ///
    /// # Errors
    /// [`PduError`].
    pub fn parse(header: Header, payload: &[u8]) -> Result<Pdu, PduError> {
        let mut reader = Reader::new(payload, header.flags);
        let context = match header.flags & NON_DEFAULT_CONTEXT != 0 {
            true => String::from_utf8_lossy(&reader.octets()?).into_owned(),
            false => String::new(),
        };
        let content = match header.kind {
            kind::OPEN => {
                let timeout_s = reader.u8()?;
                reader.take(3)?;
                reader.oid()?;
                let description = String::from_utf8_lossy(&reader.octets()?).into_owned();
                Content::Open {
                    timeout_s,
                    description,
                }
            }
            kind::CLOSE => Content::Close { reason: reader.u8()? },
            kind::REGISTER => {
                reader.u8()?;
                let priority = reader.u8()?;
                reader.take(2)?;
                let (subtree, _) = reader.oid()?;
                Content::Register { priority, subtree }
            }
            kind::GET => Content::Get(reader.ranges()?),
            kind::GET_NEXT => Content::GetNext(reader.ranges()?),
            kind::GET_BULK => Content::GetBulk {
                non_repeaters: reader.u16()?,
                repetitions: reader.u16()?,
                ranges: reader.ranges()?,
            },
            kind::TEST_SET => Content::TestSet,
            kind::COMMIT_SET => Content::CommitSet,
            kind::UNDO_SET => Content::UndoSet,
            kind::CLEANUP_SET => Content::CleanupSet,
            kind::NOTIFY => Content::Notify(reader.bindings()?),
            kind::PING => Content::Ping,
            kind::RESPONSE => {
                reader.u32()?;
                let (error, index) = (reader.u16()?, reader.u16()?);
                let bindings = reader.bindings()?;
                Content::Response {
                    error,
                    index,
                    bindings,
                }
            }
            other => Content::Other(other),
        };
        Ok(Pdu {
            session: header.session,
            transaction: header.transaction,
            packet: header.packet,
            context,
            content,
        })
    }

    /// Returns the bytes of the PDU, in network byte order.
    pub fn emit(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let mut flags = NETWORK_BYTE_ORDER;
        if !self.context.is_empty() {
            flags |= NON_DEFAULT_CONTEXT;
            put_octets(&mut payload, self.context.as_bytes());
        }
        let number = match &self.content {
            Content::Open {
                timeout_s,
                description,
            } => {
                payload.extend([*timeout_s, 0, 0, 0]);
                put_oid(&mut payload, &Oid::default());
                put_octets(&mut payload, description.as_bytes());
                kind::OPEN
            }
            Content::Close { reason } => {
                payload.extend([*reason, 0, 0, 0]);
                kind::CLOSE
            }
            Content::Register { priority, subtree } => {
                // The session's timeout, and no range of subtrees.
                payload.extend([0, *priority, 0, 0]);
                put_oid(&mut payload, subtree);
                kind::REGISTER
            }
            Content::Get(ranges) => {
                put_ranges(&mut payload, ranges);
                kind::GET
            }
            Content::GetNext(ranges) => {
                put_ranges(&mut payload, ranges);
                kind::GET_NEXT
            }
            Content::GetBulk {
                non_repeaters,
                repetitions,
                ranges,
            } => {
                payload.extend(non_repeaters.to_be_bytes());
                payload.extend(repetitions.to_be_bytes());
                put_ranges(&mut payload, ranges);
                kind::GET_BULK
            }
            Content::TestSet => kind::TEST_SET,
            Content::CommitSet => kind::COMMIT_SET,
            Content::UndoSet => kind::UNDO_SET,
            Content::CleanupSet => kind::CLEANUP_SET,
            Content::Notify(bindings) => {
                put_bindings(&mut payload, bindings);
                kind::NOTIFY
            }
            Content::Ping => kind::PING,
            Content::Response {
                error,
                index,
                bindings,
            } => {
                // The time since the start is the master's.
                payload.extend(0u32.to_be_bytes());
                payload.extend(error.to_be_bytes());
                payload.extend(index.to_be_bytes());
                put_bindings(&mut payload, bindings);
                kind::RESPONSE
            }
            Content::Other(kind) => *kind,
        };
        let mut bytes = vec![VERSION, number, flags, 0];
        for word in [self.session, self.transaction, self.packet, payload.len() as u32] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(payload);
        bytes
    }
}

fn put_octets(payload: &mut Vec<u8>, octets: &[u8]) {
    payload.extend((octets.len() as u32).to_be_bytes());
    payload.extend(octets);
    payload.resize(payload.len().next_multiple_of(4), 0);
}

fn put_oid(payload: &mut Vec<u8>, oid: &Oid) {
    put_start(payload, oid, false);
}

/// Appends the start of a range, which `includes` the start itself or not.
fn put_start(payload: &mut Vec<u8>, oid: &Oid, includes: bool) {
    let (prefix, parts) = match oid.parts() {
        [1, 3, 6, 1, prefix @ 1..=255, rest @ ..] => (*prefix as u8, rest),
        parts => (0, parts),
    };
    payload.extend([parts.len() as u8, prefix, u8::from(includes), 0]);
    parts.iter().for_each(|part| payload.extend(part.to_be_bytes()));
}

fn put_ranges(payload: &mut Vec<u8>, ranges: &[Range]) {
    for range in ranges {
        put_start(payload, &range.start, range.includes);
        put_oid(payload, &range.end);
    }
}

fn put_bindings(payload: &mut Vec<u8>, bindings: &[(Oid, Value)]) {
    for (name, value) in bindings {
        let kind: u16 = match value {
            Value::Integer(_) => value_type::INTEGER,
            Value::OctetString(_) => value_type::OCTET_STRING,
            Value::ObjectId(_) => value_type::OBJECT_IDENTIFIER,
            Value::IpAddress(_) => value_type::IP_ADDRESS,
            Value::Counter32(_) => value_type::COUNTER_32,
            Value::Gauge32(_) => value_type::GAUGE_32,
            Value::TimeTicks(_) => value_type::TIME_TICKS,
            Value::Opaque(_) => value_type::OPAQUE,
            Value::Counter64(_) => value_type::COUNTER_64,
            Value::Null => value_type::NULL,
            Value::NoSuchObject => value_type::NO_SUCH_OBJECT,
            Value::NoSuchInstance => value_type::NO_SUCH_INSTANCE,
            Value::EndOfMibView => value_type::END_OF_MIB_VIEW,
        };
        payload.extend(kind.to_be_bytes());
        payload.extend([0, 0]);
        put_oid(payload, name);
        match value {
            Value::Integer(value) => payload.extend(value.to_be_bytes()),
            Value::OctetString(octets) | Value::Opaque(octets) => put_octets(payload, octets),
            Value::ObjectId(oid) => put_oid(payload, oid),
            Value::IpAddress(address) => put_octets(payload, address),
            Value::Counter32(value) | Value::Gauge32(value) | Value::TimeTicks(value) => {
                payload.extend(value.to_be_bytes());
            }
            Value::Counter64(value) => payload.extend(value.to_be_bytes()),
            Value::Null | Value::NoSuchObject | Value::NoSuchInstance | Value::EndOfMibView => {}
        }
    }
}
