//! QUIC: the version, and the client hello of Google's QUIC, which precedes RFC 9000 and is not encrypted.

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::framed::{self, fields, hex};
use super::parser::{Outcome, Parser};
use super::record::Fields;
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The first version of Google's QUIC without a byte of private flags between header and frames.
const WITHOUT_PRIVATE_FLAGS: u8 = 34;

/// Bits of the public header of Google's QUIC: a version follows; the connection has a number of eight bytes.
const HAS_VERSION: u8 = 0x01;
const HAS_CONNECTION_ID: u8 = 0x08;
/// Bits that are clear in this header: the long header, and a reset.
const OTHERS: u8 = 0x82;

/// Returns the version of Google's QUIC that a client's datagram names, as 43 for "Q043".
pub(super) fn google_version(data: &[u8]) -> Option<u8> {
    if data[0] & (HAS_VERSION | HAS_CONNECTION_ID | OTHERS) != HAS_VERSION | HAS_CONNECTION_ID {
        return None;
    }
    match data.get(9..13)? {
        [b'Q', b'0', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Some((tens - b'0') * 10 + ones - b'0'),
        _ => None,
    }
}

/// Returns the version of a datagram as text: `1`, `Q043` or `draft-29`; `None` without a version.
fn version(data: &[u8]) -> Option<Vec<u8>> {
    const LONG: u8 = 0x80;
    let first = *data.first()?;
    let version: [u8; 4] = match first & LONG {
        0 => {
            google_version(data)?;
            data.get(9..13)?.try_into().ok()?
        }
        _ => data.get(1..5)?.try_into().ok()?,
    };
    Some(match version {
        [0, 0, 0, number] => number.to_string().into_bytes(),
        [0x6b, 0x33, 0x43, 0xcf] => b"2".to_vec(),
        [0xff, 0, 0, draft] => format!("draft-{draft}").into_bytes(),
        text if text.iter().all(u8::is_ascii_alphanumeric) => text.to_vec(),
        other => hex(&other),
    })
}

/// The tags of a client hello of Google's QUIC, each with its value: `CHLO`, their number, tags with the ends of their values.
fn tags(data: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    /// Largest number of tags.
    const TAGS: usize = 128;
    let at = memchr::memmem::find(data, b"CHLO")?;
    let mut rest = data.get(at + 4..)?;
    let len = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?])).min(TAGS);
    rest = rest.get(4..)?;
    let (index, values) = rest.split_at_checked(8 * len)?;
    let mut start = 0;
    let one = |entry: &'_ [u8]| {
        let end = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]) as usize;
        let value = values.get(start..end)?;
        start = end;
        Some(value)
    };
    let found: Option<Vec<&[u8]>> = index.chunks(8).map(one).collect();
    let names = index.chunks(8).map(|entry| {
        let size = entry[..4]
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        &entry[..size]
    });
    Some(names.zip(found?).collect())
}

/// Adds the transaction of a datagram that names its version.
fn publish(direction: Direction, data: &[u8], out: &mut Transactions) {
    let Some(version) = version(data) else {
        return;
    };
    let transaction = framed::message(AppProtocol::Quic, direction, out);
    transaction.publish(Buffer::QuicVersion, direction, version.as_slice());
    let tags = match version.first() {
        Some(b'Q') if direction == Direction::ToServer => tags(data).unwrap_or_default(),
        _ => Vec::new(),
    };
    let value = |name: &[u8]| tags.iter().find(|(tag, _)| *tag == name).map(|(_, value)| *value);
    let (name, agent) = (value(b"SNI"), value(b"UAID"));
    if let Some(name) = name {
        transaction.publish(Buffer::QuicSni, direction, name);
    }
    if let Some(agent) = agent {
        transaction.publish(Buffer::QuicUserAgent, direction, agent);
    }
    let names: Vec<&[u8]> = tags.iter().map(|(tag, _)| *tag).collect();
    // CYU: the version without its letter and zeros, and the tags.
    let digits: &[u8] = version.get(1..).unwrap_or_default();
    let number = &digits[digits.iter().take_while(|byte| **byte == b'0').count()..];
    let text = [number, &names.join(&b'-')].join(&b',');
    let hash = super::tls::md5_text(&text);
    if !names.is_empty() {
        transaction.publish(Buffer::QuicCyuString, direction, text.as_slice());
        transaction.publish(Buffer::QuicCyuHash, direction, hash.as_bytes());
    }
    fields(transaction, |out| {
        out.text("version", &version);
        if let Some(name) = name {
            out.text("sni", name);
        }
        if let Some(agent) = agent {
            out.text("ua", agent);
        }
        if !names.is_empty() {
            let mut cyu = Fields::default();
            cyu.text("hash", hash.as_bytes()).text("string", &text);
            out.objects("cyu", vec![cyu]);
        }
    });
}

/// The parser of a flow of Google's QUIC.
#[derive(Debug, Default)]
pub(super) struct Quic;

heap!(Quic {});

impl Parser for Quic {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        publish(chunk.direction, chunk.bytes, out);
        let version = chunk.bytes.first().and_then(|_| google_version(chunk.bytes));
        match version {
            // The reference was observed to drop flows of Q024 and Q033 in mode `ips`, and none of later versions. Q024 and
            // Q033 have been out of use since 2017.
            Some(version) if version < WITHOUT_PRIVATE_FLAGS => Outcome::Failed,
            _ => Outcome::Continue,
        }
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}

    fn is_strict(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(version: &[u8]) -> Outcome {
        let bytes = [&[0x0d, 1, 2, 3, 4, 5, 6, 7, 8], version, &[1; 32]].concat();
        let chunk = StreamChunk::of(Direction::ToServer, &bytes);
        Quic.data(chunk, &mut Transactions::default())
    }

    #[test]
    fn versions_with_private_flags_are_refused() {
        for version in [b"Q024", b"Q033"] {
            assert_eq!(outcome(version), Outcome::Failed);
        }
        for version in [b"Q034", b"Q043", b"T051"] {
            assert_eq!(outcome(version), Outcome::Continue);
        }
    }

    #[test]
    fn other_datagrams_have_no_version_of_google() {
        for data in [&[0x0d][..], &[0xc3; 40], &[0x09; 12], b"\x0bxxxxxxxxQ024"] {
            assert_eq!(google_version(data), None);
        }
    }
}
