//! Messages of the control channel.
//!
//! Each message is a length (variable-length integer, RFC 9000, section 16), a type byte and a body. Each
//! class of messages has a separate QUIC stream, so that a long manifest does not delay an answer:
//!
//! ```text
//!  sender                                                        receiver
//!    ── session   HELLO (secret) , OFFER (bytes, payload, content secret) ──>
//!    ── manifest  MANIFEST … , MANIFEST END ──────────────────────────────>
//!    <─ answers   REFUSE (code, text)   or   HAVE (extent, value) … , HAVE END ──
//!    ── session   KEEP (extents) ─────────────────────────────────────────>
//!    <─ answers   ACCEPT (connection, pool, extents that are there) ─────────
//!    ── values    VALUE (extent, BLAKE3) … , GROUP VALUES , WITHDRAWN , ROOT ─>
//!    <─ answers   VERIFIED , REJECTED , DURABLE , NEED GROUP VALUES , FILES … ──
//!    <─ answers   COMPLETE (root, signature) ──────────────────────────────
//!
//!  sender                                                        daemon
//!    ── session   HELLO , INTO (path) , OFFER … ──────────────────────────>
//!  reader
//!    ── session   HELLO , FETCH (path) ───────────────────────────────────>
//!    <─ answers   REFUSE   or   FETCHING, and the daemon dials as a sender ──
//!    ── session   HELLO , LIST (path) ────────────────────────────────────>
//!    <─ answers   REFUSE   or   ENTRY … , ENTRIES END ───────────────────────
//! ```

use crate::access::{DirectoryEntry, EntryType};
use crate::files::{Requests, Value};
use crate::refusal::RefuseCode;
use millrace_transport::packet::{PacketError, Reader, Writer};
use millrace_transport::ranges::RangeSet;
use thiserror::Error;

/// The version of the control channel.
pub(crate) const VERSION: u64 = 0;
/// The longest message.
pub(crate) const MESSAGE_MAX: usize = 256 << 10;
/// The maximum number of bytes that a peer may send on the session stream before it is admitted. HELLO, INTO
/// or FETCH (a path is at most 4,095 bytes long) and OFFER together are shorter.
pub(crate) const GREETING_MAX: usize = 16 << 10;
/// Bytes of a manifest in one message.
pub(crate) const MANIFEST_CHUNK: usize = 32 << 10;

/// The class of a message; each class has a stream of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// The key of the peer and its request. The stream is bidirectional. The receiver reads no other stream
    /// of an unknown peer.
    Session,
    Manifest,
    Values,
    Answers,
}

/// The number of classes.
pub(crate) const CLASSES: usize = 4;

/// A sender's offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// Bytes of a full packet's payload.
    pub(crate) payload: u16,
    /// The cipher: ChaCha20-Poly1305 if true, AES-128-GCM if false.
    pub(crate) chacha: bool,
    /// The secret of the content key.
    pub(crate) secret: [u8; 32],
    /// The user's requests to the receivers.
    pub(crate) requests: Requests,
}

/// A message of the control channel (docs/transport-protocol.md).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Hello {
        version: u64,
        secret: Vec<u8>,
    },
    Offer(Offer),
    Manifest(Vec<u8>),
    ManifestEnd,
    Refuse {
        code: RefuseCode,
        text: String,
    },
    Have {
        extent: u64,
        value: Value,
    },
    HaveEnd,
    Keep(RangeSet),
    Accept {
        connection: u32,
        pool: u64,
        have: RangeSet,
    },
    Value {
        extent: u64,
        value: Value,
    },
    GroupValues {
        extent: u64,
        values: Vec<Value>,
    },
    Withdrawn {
        file: u64,
        reason: String,
    },
    Verified(u64),
    Rejected(u64),
    Durable(u64),
    NeedGroupValues(u64),
    Committed {
        file: u64,
    },
    Complete {
        root: Value,
        signature: Vec<u8>,
    },
    Failed {
        text: String,
    },
    /// The path at the receiver into which the files go.
    Into(Vec<u8>),
    /// The request for the files at a path.
    Fetch(Vec<u8>),
    /// The request for the entries of a directory.
    List(Vec<u8>),
    /// The daemon accepts the FETCH, and connects to the reader as a sender.
    Fetching,
    Entry(DirectoryEntry),
    EntriesEnd,
    /// A text of the receiver for the user of the sender.
    Notice {
        text: String,
    },
}

/// A message that is not valid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum MessageError {
    #[error("a control message is not valid: {0}")]
    Field(#[from] PacketError),
    #[error("a control message has the unknown type {0}")]
    Type(u8),
    #[error("a control message of {0} bytes exceeds the limit of {MESSAGE_MAX}")]
    Size(u64),
    #[error("a control message holds ranges that are not in order")]
    Ranges,
}

impl Message {
    /// Returns the stream that the message belongs to.
    pub(crate) fn class(&self) -> Class {
        match self {
            Message::Hello { .. }
            | Message::Offer(_)
            | Message::Keep(_)
            | Message::Into(_)
            | Message::Fetch(_)
            | Message::List(_) => Class::Session,
            Message::Manifest(_) | Message::ManifestEnd => Class::Manifest,
            Message::Value { .. } | Message::GroupValues { .. } | Message::Withdrawn { .. } => Class::Values,
            _ => Class::Answers,
        }
    }

    /// Returns the message with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        match self {
            Message::Hello { version, secret } => {
                body.byte(0);
                body.varint(*version);
                blob(&mut body, secret);
            }
            Message::Offer(offer) => {
                body.byte(1);
                body.varint(u64::from(offer.payload));
                body.byte(u8::from(offer.chacha));
                body.bytes(&offer.secret);
                let Requests { delta, all_at_once } = offer.requests;
                body.byte(u8::from(delta) | u8::from(all_at_once) << 1);
            }
            Message::Manifest(bytes) => {
                body.byte(2);
                blob(&mut body, bytes);
            }
            Message::ManifestEnd => body.byte(3),
            Message::Refuse { code, text } => {
                body.byte(4);
                body.byte(*code as u8);
                blob(&mut body, text.as_bytes());
            }
            Message::Have { extent, value } => extent_value(&mut body, 5, *extent, value),
            Message::HaveEnd => body.byte(6),
            Message::Keep(ranges) => {
                body.byte(7);
                write_ranges(&mut body, ranges);
            }
            Message::Accept {
                connection,
                pool,
                have,
            } => {
                body.byte(8);
                body.varint(u64::from(*connection));
                body.varint(*pool);
                write_ranges(&mut body, have);
            }
            Message::Value { extent, value } => extent_value(&mut body, 9, *extent, value),
            Message::GroupValues { extent, values } => {
                body.byte(10);
                body.varint(*extent);
                body.varint(values.len() as u64);
                for value in values {
                    body.bytes(value);
                }
            }
            Message::Withdrawn { file, reason } => {
                body.byte(11);
                body.varint(*file);
                blob(&mut body, reason.as_bytes());
            }
            Message::Verified(extent) => number(&mut body, 12, *extent),
            Message::Rejected(extent) => number(&mut body, 13, *extent),
            Message::Durable(extent) => number(&mut body, 14, *extent),
            Message::NeedGroupValues(extent) => number(&mut body, 15, *extent),
            Message::Committed { file } => number(&mut body, 16, *file),
            Message::Complete { root, signature } => {
                body.byte(17);
                body.bytes(root);
                blob(&mut body, signature);
            }
            Message::Failed { text } => {
                body.byte(18);
                blob(&mut body, text.as_bytes());
            }
            Message::Into(path) => path_body(&mut body, 19, path),
            Message::Fetch(path) => path_body(&mut body, 20, path),
            Message::List(path) => path_body(&mut body, 21, path),
            Message::Fetching => body.byte(22),
            Message::Entry(entry) => {
                body.byte(23);
                body.byte(entry.entry_type as u8);
                body.varint(entry.size);
                body.varint(entry.modified);
                blob(&mut body, &entry.name);
            }
            Message::EntriesEnd => body.byte(24),
            Message::Notice { text } => {
                body.byte(25);
                blob(&mut body, text.as_bytes());
            }
        }
        let body = body.finish();
        let mut framed = Writer::default();
        framed.varint(body.len() as u64);
        framed.bytes(&body);
        framed.finish()
    }

    /// Removes all complete messages from a stream's bytes, and passes each to `handle`. The cost is linear
    /// in the bytes, however short the messages are.
    ///
    /// # Errors
    /// If a message is not valid. `handle` got the messages before it.
    pub(crate) fn take_all(bytes: &mut Vec<u8>, mut handle: impl FnMut(Message)) -> Result<(), MessageError> {
        let mut from = 0;
        while let Some((message, size)) = Message::first(&bytes[from..])? {
            handle(message);
            from += size;
        }
        bytes.drain(..from);
        Ok(())
    }

    /// Returns the first message in a stream's bytes, and its size; `None` if it is not complete.
    fn first(bytes: &[u8]) -> Result<Option<(Message, usize)>, MessageError> {
        let Some(first) = bytes.first() else {
            return Ok(None);
        };
        let prefix = 1 << (first >> 6);
        if bytes.len() < prefix {
            return Ok(None);
        }
        let size = Reader::new(&bytes[..prefix]).varint("length")?;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        if len > MESSAGE_MAX {
            return Err(MessageError::Size(size));
        }
        let Some(body) = bytes.get(prefix..prefix + len) else {
            return Ok(None);
        };
        Ok(Some((Message::decode(body)?, prefix + len)))
    }

    fn decode(body: &[u8]) -> Result<Message, MessageError> {
        let mut reader = Reader::new(body);
        let kind = byte(&mut reader)?;
        let message = match kind {
            0 => Message::Hello {
                version: reader.varint("version")?,
                secret: read_blob(&mut reader)?,
            },
            1 => Message::Offer(Offer {
                payload: small(reader.varint("payload")?, "payload")?,
                chacha: byte(&mut reader)? != 0,
                secret: array(&mut reader)?,
                requests: {
                    // Unknown requests are ignored.
                    let flags = byte(&mut reader)?;
                    Requests {
                        delta: flags & 1 != 0,
                        all_at_once: flags & 2 != 0,
                    }
                },
            }),
            2 => Message::Manifest(read_blob(&mut reader)?),
            3 => Message::ManifestEnd,
            4 => {
                let code = byte(&mut reader)?;
                let known = RefuseCode::KNOWN.get(usize::from(code));
                Message::Refuse {
                    code: known.copied().unwrap_or(RefuseCode::Unknown),
                    text: read_text(&mut reader)?,
                }
            }
            5 => Message::Have {
                extent: reader.varint("extent")?,
                value: array(&mut reader)?,
            },
            6 => Message::HaveEnd,
            7 => Message::Keep(read_ranges(&mut reader)?),
            8 => Message::Accept {
                connection: small(reader.varint("connection")?, "connection")?,
                pool: reader.varint("pool")?,
                have: read_ranges(&mut reader)?,
            },
            9 => Message::Value {
                extent: reader.varint("extent")?,
                value: array(&mut reader)?,
            },
            10 => {
                let extent = reader.varint("extent")?;
                let len = reader.varint("values")?;
                if len > (MESSAGE_MAX / 32) as u64 {
                    return Err(MessageError::Size(len));
                }
                let values = (0..len).map(|_| array(&mut reader)).collect::<Result<_, _>>()?;
                Message::GroupValues { extent, values }
            }
            11 => Message::Withdrawn {
                file: reader.varint("file")?,
                reason: read_text(&mut reader)?,
            },
            12 => Message::Verified(reader.varint("extent")?),
            13 => Message::Rejected(reader.varint("extent")?),
            14 => Message::Durable(reader.varint("extent")?),
            15 => Message::NeedGroupValues(reader.varint("extent")?),
            16 => Message::Committed {
                file: reader.varint("file")?,
            },
            17 => Message::Complete {
                root: array(&mut reader)?,
                signature: read_blob(&mut reader)?,
            },
            18 => Message::Failed {
                text: read_text(&mut reader)?,
            },
            19 => Message::Into(read_blob(&mut reader)?),
            20 => Message::Fetch(read_blob(&mut reader)?),
            21 => Message::List(read_blob(&mut reader)?),
            22 => Message::Fetching,
            23 => {
                let entry_type = byte(&mut reader)?;
                Message::Entry(DirectoryEntry {
                    entry_type: EntryType::from_byte(entry_type).ok_or(MessageError::Type(entry_type))?,
                    size: reader.varint("size")?,
                    modified: reader.varint("modified")?,
                    name: read_blob(&mut reader)?,
                })
            }
            24 => Message::EntriesEnd,
            25 => Message::Notice {
                text: read_text(&mut reader)?,
            },

            kind => return Err(MessageError::Type(kind)),
        };
        reader.finish()?;
        Ok(message)
    }
}

/// Decodes the bytes of a stream as control messages, for tools and fuzzers; returns each message encoded again, and the number
/// of bytes of an incomplete message at the end.
///
/// # Errors
/// If a message is not valid: the text that ends the connection.
pub fn read_control_stream(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, usize), String> {
    let (mut rest, mut messages) = (bytes.to_vec(), Vec::new());
    Message::take_all(&mut rest, |message| messages.push(message.encode()))
        .map_err(|error| error.to_string())?;
    Ok((messages, rest.len()))
}

fn number(body: &mut Writer, kind: u8, number: u64) {
    body.byte(kind);
    body.varint(number);
}

fn path_body(body: &mut Writer, kind: u8, path: &[u8]) {
    body.byte(kind);
    blob(body, path);
}

fn extent_value(body: &mut Writer, kind: u8, extent: u64, value: &Value) {
    number(body, kind, extent);
    body.bytes(value);
}

fn blob(body: &mut Writer, bytes: &[u8]) {
    body.varint(bytes.len() as u64);
    body.bytes(bytes);
}

fn write_ranges(body: &mut Writer, ranges: &RangeSet) {
    body.varint(ranges.ranges().len() as u64);
    let mut end = 0;
    for range in ranges.ranges() {
        body.varint(range.start - end);
        body.varint(range.end - range.start);
        end = range.end;
    }
}

/// The maximum size of ranges in KEEP and ACCEPT: the other fields of either message have less than 64 bytes.
const RANGES_SIZE_MAX: usize = MESSAGE_MAX - 64;

/// Returns the first ranges of a set, as many as fit into a KEEP or an ACCEPT. The sender sends later extents
/// again, although the receiver has them.
pub(crate) fn fitting(ranges: &RangeSet) -> RangeSet {
    let (mut fitting, mut size, mut end) = (RangeSet::new(), 0, 0);
    for range in ranges.ranges() {
        size += Writer::varint_size(range.start - end) + Writer::varint_size(range.end - range.start);
        if size > RANGES_SIZE_MAX {
            break;
        }
        fitting.insert(range.clone());
        end = range.end;
    }
    fitting
}

fn byte(reader: &mut Reader<'_>) -> Result<u8, MessageError> {
    Ok(reader.bytes(1, "byte")?[0])
}

fn array<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N], MessageError> {
    let bytes = reader.bytes(N, "value")?;
    Ok(std::array::from_fn(|at| bytes[at]))
}

fn small<T: TryFrom<u64>>(value: u64, field: &'static str) -> Result<T, MessageError> {
    T::try_from(value).map_err(|_| PacketError::Range { field, value }.into())
}

fn read_blob(reader: &mut Reader<'_>) -> Result<Vec<u8>, MessageError> {
    let size = reader.varint("length")?;
    let len = usize::try_from(size).map_err(|_| MessageError::Size(size))?;
    Ok(reader.bytes(len, "bytes")?.to_vec())
}

fn read_text(reader: &mut Reader<'_>) -> Result<String, MessageError> {
    let text = String::from_utf8_lossy(&read_blob(reader)?).into_owned();
    // Control characters are removed, because the text is shown on a terminal.
    Ok(text.chars().filter(|char| !char.is_control()).collect())
}

fn read_ranges(reader: &mut Reader<'_>) -> Result<RangeSet, MessageError> {
    let mut ranges = RangeSet::new();
    let mut end = 0_u64;
    for index in 0..reader.varint("ranges")? {
        let gap = reader.varint("gap")?;
        let len = reader.varint("length")?;
        if len == 0 || (index > 0 && gap == 0) {
            return Err(MessageError::Ranges);
        }
        let start = end.checked_add(gap).ok_or(MessageError::Ranges)?;
        end = start.checked_add(len).ok_or(MessageError::Ranges)?;
        ranges.insert(start..end);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
