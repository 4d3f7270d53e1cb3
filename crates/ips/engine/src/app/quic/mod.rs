//! QUIC: the version, the hellos of QUIC 1 and 2 in their Initial packets, and the client hello of Google's QUIC, which precedes
//! RFC 9000 and is not encrypted.

mod initial;

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::framed::{self, fields, hex};
use super::parser::{Outcome, Parser};
use super::record::Fields;
use super::tls::Fingerprints;
use super::transaction::{Progress, Transactions};
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

/// Returns true for the number of a version of RFC 9000, RFC 9369, or one of the drafts.
pub(super) fn is_standard(number: &[u8]) -> bool {
    number
        .try_into()
        .is_ok_and(|number| initial::Version::of(number).is_some())
}

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

/// Largest size of a hello, and largest number of its pieces that wait for others.
const HELLO_SIZE: usize = 32 << 10;
const PIECES: usize = 64;
/// Initial packets of a direction that are decrypted at most.
const PACKETS: u8 = 32;

/// The hello of a direction, in the CRYPTO frames of its Initial packets.
#[derive(Debug, Default)]
struct Side {
    /// The bytes from the beginning on, without holes.
    bytes: Vec<u8>,
    /// Pieces behind a hole, with their offsets.
    pieces: Vec<(u64, Vec<u8>)>,
    packets: u8,
    is_done: bool,
}

heap!(Side { bytes, pieces });

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Quic {
    /// The identifier from which the keys follow: the first one to which the client sent; empty before.
    id: Vec<u8>,
    sides: [Side; 2],
}

heap!(Quic { id, sides });

impl Side {
    /// Adds a piece; returns false if the hello has too many.
    fn add(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let known = self.bytes.len() as u64;
        if offset > known {
            let waiting: usize = self.pieces.iter().map(|(_, piece)| piece.len()).sum();
            if self.pieces.len() >= PIECES || waiting + bytes.len() > HELLO_SIZE {
                return false;
            }
            self.pieces.push((offset, bytes.to_vec()));
            return true;
        }
        let new = usize::try_from(known - offset)
            .ok()
            .and_then(|from| bytes.get(from..));
        self.bytes.extend_from_slice(new.unwrap_or_default());
        let end = self.bytes.len() as u64;
        if let Some(at) = self.pieces.iter().position(|(offset, _)| *offset <= end) {
            let (offset, piece) = self.pieces.swap_remove(at);
            return self.add(offset, &piece);
        }
        self.bytes.len() <= HELLO_SIZE
    }

    /// Returns the body of the hello, once it is complete (RFC 8446, section 4).
    fn hello(&self, kind: u8) -> Option<&[u8]> {
        let (header, rest) = self.bytes.split_first_chunk::<4>()?;
        let size = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
        (header[0] == kind).then_some(())?;
        rest.get(..size)
    }
}

/// Returns the name of an extension of TLS (IANA, TLS ExtensionType Values).
fn extension_name(kind: u16) -> Option<&'static str> {
    Some(match kind {
        0 => "server_name",
        1 => "max_fragment_length",
        5 => "status_request",
        10 => "supported_groups",
        11 => "ec_point_formats",
        13 => "signature_algorithms",
        16 => "alpn",
        18 => "signed_certificate_timestamp",
        21 => "padding",
        23 => "extended_master_secret",
        27 => "compress_certificate",
        28 => "record_size_limit",
        35 => "session_ticket",
        41 => "pre_shared_key",
        42 => "early_data",
        43 => "supported_versions",
        44 => "cookie",
        45 => "psk_key_exchange_modes",
        47 => "certificate_authorities",
        49 => "post_handshake_auth",
        50 => "signature_algorithms_cert",
        51 => "key_share",
        57 => "quic_transport_parameters",
        _ => return None,
    })
}

impl Quic {
    /// Reads the Initial packets of a datagram. Returns true if it has some, and all can be read.
    fn initial(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) -> bool {
        let mut rest = data;
        let mut is_read = false;
        while let Some(header) = initial::next(&mut rest) {
            let side = &mut self.sides[direction.index()];
            if !header.is_initial || side.is_done || side.packets >= PACKETS {
                is_read |= side.is_done;
                continue;
            }
            side.packets += 1;
            let mut payload = match self.id.is_empty() {
                true => None,
                false => header.decrypt(&self.id, direction),
            };
            if payload.is_none() && direction == Direction::ToServer {
                // The first packet, or the first one after a Retry (RFC 9001, section 5.2).
                payload = header.decrypt(header.destination, direction);
                if payload.is_some() {
                    self.id = header.destination.to_vec();
                }
            }
            let Some(payload) = payload else {
                out.raise("quic.failed_decrypt");
                return false;
            };
            let mut has_room = true;
            let is_valid = initial::frames(&payload, &mut |offset, bytes| {
                has_room = has_room && side.add(offset, bytes);
            });
            if !has_room {
                out.raise("quic.crypto_frag_too_long");
                side.is_done = true;
            } else if !is_valid {
                out.raise("quic.error_on_data");
            }
            is_read = true;
            self.publish_hello(direction, data, out);
        }
        is_read
    }

    /// Adds the transaction of a hello, once it is complete.
    fn publish_hello(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) {
        let side = &mut self.sides[direction.index()];
        let kind = match direction {
            Direction::ToServer => 1,
            Direction::ToClient => 2,
        };
        let Some(body) = side.hello(kind).filter(|_| !side.is_done) else {
            return;
        };
        let found = Fingerprints::of(body, direction);
        *side = Side {
            is_done: true,
            ..Side::default()
        };
        let Some(found) = found else {
            return out.raise("quic.error_on_data");
        };
        let version = version(data).unwrap_or_default();
        let transaction = framed::message(AppProtocol::Quic, direction, out);
        transaction.publish(Buffer::QuicVersion, direction, version.as_slice());
        if let Some(name) = &found.sni {
            transaction.publish(Buffer::QuicSni, direction, name.as_slice());
            transaction.publish(Buffer::TlsSni, direction, name.as_slice());
        }
        for alpn in &found.alpns {
            transaction.publish(Buffer::TlsAlpn, direction, alpn.as_slice());
        }
        let (text, hash) = match direction {
            Direction::ToServer => (Buffer::Ja3String, Buffer::Ja3Hash),
            Direction::ToClient => (Buffer::Ja3sString, Buffer::Ja3sHash),
        };
        transaction.publish(text, direction, found.ja3.as_bytes());
        transaction.publish(hash, direction, found.ja3_hash.as_bytes());
        if let Some(ja4) = &found.ja4 {
            transaction.publish(Buffer::Ja4Hash, direction, ja4.as_bytes());
        }
        transaction.advance(direction, Progress::Complete);
        fields(transaction, |out| {
            out.text("version", &version);
            if let Some(name) = &found.sni {
                out.text("sni", name);
            }
            let name = match direction {
                Direction::ToServer => "ja3",
                Direction::ToClient => "ja3s",
            };
            out.object(name, |out| {
                out.text("hash", found.ja3_hash.as_bytes())
                    .text("string", found.ja3.as_bytes());
            });
            if let Some(ja4) = &found.ja4 {
                out.text("ja4", ja4.as_bytes());
            }
            let extension = |kind: &u16| {
                let mut one = Fields::default();
                if let Some(name) = extension_name(*kind) {
                    one.text("name", name.as_bytes());
                }
                one.number("type", *kind);
                match kind {
                    0 => one.texts("values", found.sni.iter().map(Vec::as_slice)),
                    16 => one.texts("values", found.alpns.iter().map(Vec::as_slice)),
                    _ => &mut one,
                };
                one
            };
            let kinds = found.extensions.iter().take(super::record::FIELD_LIST);
            out.objects("extensions", kinds.map(extension).collect());
        });
    }
}

impl Parser for Quic {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if !self.initial(chunk.direction, chunk.bytes, out) {
            publish(chunk.direction, chunk.bytes, out);
        }
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
        Quic::default().data(chunk, &mut Transactions::default())
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

    fn client_hello() -> Vec<u8> {
        let name = b"name.example";
        let sni = [&[0, 0, 0, 17, 0, 15, 0, 0, 12][..], name].concat();
        let alpn = [0, 16, 0, 5, 0, 3, 2, b'h', b'3'];
        let extensions = [&sni[..], &alpn, &[0, 57, 0, 0]].concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0, 0, 2, 0x13, 0x01, 1, 0],
            &(extensions.len() as u16).to_be_bytes(),
            &extensions,
        ]
        .concat();
        [&[1, 0, 0, body.len() as u8][..], &body].concat()
    }

    #[test]
    fn a_hello_in_any_order_of_frames_and_packets_is_read() {
        let (hello, id) = (client_hello(), [5; 8]);
        let frame = |from: usize, to: usize| {
            let header = [6, 0x40 | (from >> 8) as u8, from as u8, 0x40, (to - from) as u8];
            [&header[..], &hello[from..to], &[0; 30]].concat()
        };
        let size = hello.len();
        for parts in [
            vec![vec![(0, size)]],
            vec![vec![(20, size)], vec![(0, 20)]],
            vec![vec![(30, size), (0, 10)], vec![(8, 40)]],
        ] {
            let (mut quic, mut out) = (Quic::default(), Transactions::default());
            for part in parts {
                let frames: Vec<u8> = part.into_iter().flat_map(|(from, to)| frame(from, to)).collect();
                let packet = initial::tests::protected([0, 0, 0, 1], &id, Direction::ToServer, &frames);
                quic.data(StreamChunk::of(Direction::ToServer, &packet), &mut out);
            }
            assert_eq!(out.list.len(), 1);
            let transaction = &out.list[0];
            let value = |buffer| transaction.buffer(buffer, Direction::ToServer);
            assert_eq!(value(Buffer::QuicSni), Some(&b"name.example"[..]));
            assert_eq!(value(Buffer::TlsSni), Some(&b"name.example"[..]));
            assert_eq!(value(Buffer::Ja3String), Some(&b"771,4865,0-16-57,,"[..]));
            assert!(value(Buffer::Ja4Hash).unwrap().starts_with(b"q12d0103h3_"));
        }
    }

    #[test]
    fn a_packet_that_cannot_be_decrypted_has_its_version_and_an_event() {
        let packet = initial::tests::protected([0, 0, 0, 1], &[5; 8], Direction::ToClient, &[0; 60]);
        let (mut quic, mut out) = (Quic::default(), Transactions::default());
        quic.data(StreamChunk::of(Direction::ToServer, &packet), &mut out);
        let transaction = &out.list[0];
        assert_eq!(
            transaction.buffer(Buffer::QuicVersion, Direction::ToServer),
            Some(&b"1"[..])
        );
        assert_eq!(out.events, ["quic.failed_decrypt"]);
    }
}
