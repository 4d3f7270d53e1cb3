//! TLS up to 1.3 and the SSLv2 hello: records, handshake messages over any number of records, names, certificates and
//! fingerprints. The handshake of a connection is one transaction.

mod certificate;
mod details;
mod fingerprint;
mod heartbeat;
mod hello;
mod state;
#[cfg(test)]
mod tests;

pub use details::version_name;
pub use state::HandshakeState;

use data_encoding::HEXLOWER;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::enumerations::YEAR_0_TO_1970;
use millrace_ips_rules::options::number::NumberField;

use super::parser::{Outcome, Parser};
use super::record::{ClientCertificate, Record, TlsRecord};
use super::transaction::{Progress, Transaction, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use certificate::Certificate;
use hello::{Fields, Hello};

/// Size in bytes of the header of a record.
const RECORD_HEADER: usize = 5;
/// Largest size of a record (RFC 5246, section 6.2.3).
const RECORD_SIZE: usize = 16_384 + 2048;
/// Largest size of a handshake message that is assembled.
const HANDSHAKE_SIZE: usize = 256 << 10;
/// Largest number of certificates of a chain.
const CERTIFICATES: usize = 32;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const HEARTBEAT: u8 = 24;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const CLIENT_KEY_EXCHANGE: u8 = 16;

/// One direction of a connection.
#[derive(Debug, Default)]
struct Side {
    /// Bytes in progress: the first `used` bytes are parsed, the others are not.
    pending: Vec<u8>,
    /// The number of bytes at the front of `pending` that are parsed. They are removed once for each chunk: a chunk may have
    /// thousands of records.
    used: usize,
    /// Bytes of the handshake message in progress.
    handshake: Vec<u8>,
    /// True once the records that follow are encrypted.
    is_encrypted: bool,
    has_failed: bool,
    /// True after the first record.
    has_begun: bool,
    /// True after the first chain of certificates. Another one is not published, because it could be of any size.
    has_certificates: bool,
    /// Bytes of an encrypted record that are still to come.
    skip: usize,
}

impl Side {
    /// Returns the bytes that are not parsed yet.
    fn rest(&self) -> &[u8] {
        self.pending.get(self.used..).unwrap_or_default()
    }
}

heap!(Side { pending, handshake });

/// The parser of a connection.
#[derive(Debug)]
pub(super) struct Tls {
    sides: [Side; 2],
    transaction: Option<u64>,
    version: u16,
    client_session: Vec<u8>,
    has_certificate: bool,
    /// By direction: true after a valid hello.
    has_hello: [bool; 2],
    has_data: bool,
    /// True after bytes that violate the protocol: later bytes may be plain text.
    has_other_bytes: bool,
    /// True after an empty record of a type that must not be empty.
    has_empty_record: bool,
    /// Direction and size of the last encrypted heartbeat.
    heartbeat: Option<(Direction, usize)>,
    has_details: bool,
}

heap!(Tls {
    sides,
    client_session
});

impl Tls {
    pub(super) fn new(settings: AppSettings) -> Tls {
        Tls {
            sides: Default::default(),
            transaction: None,
            version: 0,
            client_session: Vec::new(),
            has_certificate: false,
            has_hello: [false; 2],
            has_data: false,
            has_other_bytes: false,
            has_empty_record: false,
            heartbeat: None,
            has_details: settings.details,
        }
    }

    /// Returns the transaction of the connection.
    fn transaction<'a>(&mut self, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        if self.transaction.is_none() {
            let transaction = out.start(AppProtocol::Tls);
            transaction.record = Record::Tls(Box::default());
            self.transaction = Some(transaction.id);
        }
        self.transaction.and_then(|id| out.by_id(id))
    }

    fn raise(&mut self, out: &mut Transactions, event: &'static str) {
        if let Some(transaction) = self.transaction(out) {
            transaction.raise(event);
        }
    }

    fn fail(&mut self, direction: Direction, out: &mut Transactions, event: &'static str) {
        self.raise(out, event);
        self.has_other_bytes = true;
        let side = &mut self.sides[direction.index()];
        *side = Side {
            has_failed: true,
            ..Side::default()
        };
    }

    /// Consumes a record from the front of the pending bytes; returns false if more bytes are needed, or if parsing
    /// failed.
    fn record(&mut self, direction: Direction, out: &mut Transactions) -> bool {
        let side = &mut self.sides[direction.index()];
        if side.skip > 0 {
            let size = side.skip.min(side.rest().len());
            side.used += size;
            side.skip -= size;
            return size > 0;
        }
        if !side.has_begun && side.rest().first().is_some_and(|byte| byte & 0x80 != 0) {
            return self.sslv2_hello(direction, out);
        }
        let Some(&[kind, major, minor, high, low]) = side.rest().first_chunk::<RECORD_HEADER>() else {
            return false;
        };
        let size = usize::from(u16::from_be_bytes([high, low]));
        if !(CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(&kind) {
            self.fail(direction, out, "tls.invalid_record_type");
            return false;
        }
        if major != 3 {
            self.fail(direction, out, "tls.invalid_record_version");
            return false;
        }
        if size > RECORD_SIZE {
            self.fail(direction, out, "tls.invalid_record_length");
            return false;
        }
        // RFC 8446, section 5.1, forbids empty records of all types but application data.
        if size == 0 && kind != APPLICATION_DATA && !side.is_encrypted {
            self.has_empty_record = true;
            self.fail(direction, out, "tls.invalid_record_length");
            return false;
        }
        // Encrypted data need not be assembled: only the header of the record is inspected.
        if kind == APPLICATION_DATA || side.is_encrypted && kind == HANDSHAKE {
            side.has_begun = true;
            side.is_encrypted = true;
            side.skip = size;
            side.used += RECORD_HEADER;
            self.has_data |= kind == APPLICATION_DATA;
            if let Some(transaction) = self.transaction(out) {
                transaction.advance(direction, Progress::Complete);
            }
            return true;
        }
        let Some(body) = side.rest().get(RECORD_HEADER..RECORD_HEADER + size) else {
            return false;
        };
        let body = body.to_vec();
        side.used += RECORD_HEADER + size;
        side.has_begun = true;
        if self.version == 0 {
            self.version = u16::from_be_bytes([major, minor]);
        }
        match kind {
            CHANGE_CIPHER_SPEC => self.change_cipher_spec(direction, out),
            HEARTBEAT => self.heartbeat(direction, &body, out),
            HANDSHAKE => {
                self.sides[direction.index()].handshake.extend_from_slice(&body);
                self.handshake(direction, out);
            }
            ALERT if body.first() == Some(&2) && !self.sides[direction.index()].is_encrypted => {
                self.raise(out, "tls.error_message_encountered");
            }
            _ => {}
        }
        true
    }

    /// Consumes an SSLv2 client or server hello. The bytes after it are of a version that is not parsed,
    /// unless the hello offers a later version.
    fn sslv2_hello(&mut self, direction: Direction, out: &mut Transactions) -> bool {
        let side = &mut self.sides[direction.index()];
        let Some(&[high, low]) = side.rest().first_chunk::<2>() else {
            return false;
        };
        let size = usize::from(u16::from_be_bytes([high & 0x7f, low]));
        if size < 9 {
            self.fail(direction, out, "tls.invalid_sslv2_header");
            return false;
        }
        let Some(body) = side.rest().get(2..2 + size) else {
            return false;
        };
        let kind = body[0];
        let version = match kind {
            1 => u16::from_be_bytes([body[1], body[2]]),
            _ => u16::from_be_bytes([body[3], body[4]]),
        };
        side.used += 2 + size;
        side.has_begun = true;
        self.version = version;
        self.has_hello[direction.index()] |= matches!(kind, 1 | 4);
        let Some(transaction) = self.transaction(out) else {
            return false;
        };
        update(transaction, |record| {
            record.version = version;
            match kind {
                1 => record.state.client_hello = true,
                4 => record.state.server_hello = true,
                _ => record.state.unknown = true,
            }
        });
        transaction.advance(direction, Progress::Headers);
        true
    }

    fn change_cipher_spec(&mut self, direction: Direction, out: &mut Transactions) {
        // In TLS 1.3 the message has no meaning (RFC 8446, section 5): encrypted records have the type application_data.
        let is_resumed = direction == Direction::ToClient && !self.has_certificate;
        let is_plain = self.version < 0x0304;
        self.sides[direction.index()].is_encrypted |= is_plain;
        let Some(transaction) = self.transaction(out) else {
            return;
        };
        if is_plain {
            transaction.advance(direction, Progress::Complete);
        }
        update(transaction, |record| record.is_resumed |= is_resumed);
    }

    /// Consumes the complete handshake messages of a direction.
    fn handshake(&mut self, direction: Direction, out: &mut Transactions) {
        let mut bytes = core::mem::take(&mut self.sides[direction.index()].handshake);
        let mut rest = Fields(&bytes);
        loop {
            let mut fields = rest;
            let (Some(kind), Some(size)) = (fields.u8(), fields.u24()) else {
                break;
            };
            if size > HANDSHAKE_SIZE {
                self.raise(out, "tls.handshake_invalid_length");
                self.fail(direction, out, "tls.invalid_handshake_message");
                return;
            }
            let Some(message) = fields.take(size) else { break };
            self.message(kind, message, direction, out);
            rest = fields;
        }
        let used = bytes.len() - rest.0.len();
        bytes.drain(..used);
        self.sides[direction.index()].handshake = bytes;
    }

    fn message(&mut self, kind: u8, body: &[u8], direction: Direction, out: &mut Transactions) {
        let is_valid = match kind {
            CLIENT_HELLO => self.client_hello(body, direction, out),
            SERVER_HELLO => self.server_hello(body, direction, out),
            CERTIFICATE => self.certificates(body, direction, out),
            _ => true,
        };
        self.has_hello[direction.index()] |= is_valid && matches!(kind, CLIENT_HELLO | SERVER_HELLO);
        let Some(transaction) = self.transaction(out) else {
            return;
        };
        if !is_valid {
            transaction.raise("tls.invalid_handshake_message");
        }
        update(transaction, |record| match kind {
            CLIENT_HELLO => record.state.client_hello = true,
            SERVER_HELLO => record.state.server_hello = true,
            CLIENT_KEY_EXCHANGE => record.state.client_key_exchange = true,
            SERVER_KEY_EXCHANGE => record.state.server_key_exchange = true,
            _ => record.state.unknown = true,
        });
    }

    fn client_hello(&mut self, body: &[u8], direction: Direction, out: &mut Transactions) -> bool {
        let Some(hello) = Hello::client(body) else {
            return false;
        };
        self.client_session.clone_from(&hello.session_id);
        let has_details = self.has_details;
        let Some(transaction) = self.transaction(out) else {
            return false;
        };
        if hello.name_extensions > 1 {
            transaction.raise("tls.multiple_sni_extensions");
        }
        if hello.has_invalid_name {
            transaction.raise("tls.invalid_sni_type");
        }
        if hello.has_invalid_name_size {
            transaction.raise("tls.invalid_sni_length");
        }
        let ja3 = fingerprint::ja3(&hello);
        let ja3_hash = md5_text(ja3.as_bytes());
        let ja4 = fingerprint::ja4(&hello, 't');
        if let Some(name) = hello.names.first() {
            transaction.replace(Buffer::TlsSni, direction, name.as_slice());
        }
        transaction.replace(Buffer::Ja3String, direction, ja3.as_bytes());
        transaction.replace(Buffer::Ja3Hash, direction, ja3_hash.as_bytes());
        transaction.replace(Buffer::Ja4Hash, direction, ja4.as_bytes());
        publish_hello(transaction, &hello, direction);
        transaction.advance(direction, Progress::Headers);
        update(transaction, |record| {
            if has_details {
                details::hello(record, &hello, direction);
            }
            record.version = hello.legacy_version;
            record.sni = hello.names.into_iter().next();
            record.client_alpns = hello.alpns;
            record.ja3 = Some((ja3.into_bytes(), ja3_hash.into_bytes()));
            record.ja4 = Some(ja4.into_bytes());
        });
        true
    }

    fn server_hello(&mut self, body: &[u8], direction: Direction, out: &mut Transactions) -> bool {
        let Some(hello) = Hello::server(body) else {
            return false;
        };
        self.version = hello.chosen_version();
        let (version, has_details) = (self.version, self.has_details);
        let is_resumed =
            !hello.session_id.is_empty() && hello.session_id == self.client_session && version < 0x0304;
        let Some(transaction) = self.transaction(out) else {
            return false;
        };
        let ja3s = fingerprint::ja3s(&hello);
        let hash = md5_text(ja3s.as_bytes());
        transaction.replace(Buffer::Ja3sString, direction, ja3s.as_bytes());
        transaction.replace(Buffer::Ja3sHash, direction, hash.as_bytes());
        publish_hello(transaction, &hello, direction);
        transaction.advance(direction, Progress::Headers);
        update(transaction, |record| {
            if has_details {
                details::hello(record, &hello, direction);
            }
            record.version = version;
            record.server_alpns = hello.alpns;
            record.ja3s = Some((ja3s.into_bytes(), hash.into_bytes()));
            record.is_resumed |= is_resumed;
        });
        true
    }

    /// Publishes a chain of certificates. Returns false if it is malformed, or not the first of its direction.
    fn certificates(&mut self, body: &[u8], direction: Direction, out: &mut Transactions) -> bool {
        let mut fields = Fields(body);
        let Some(mut list) = fields.u24().and_then(|size| fields.take(size)).map(Fields) else {
            return false;
        };
        self.has_certificate = true;
        if core::mem::replace(&mut self.sides[direction.index()].has_certificates, true) {
            return false;
        }
        let has_details = self.has_details;
        let Some(transaction) = self.transaction(out) else {
            return false;
        };
        let mut is_first = true;
        for _ in 0..CERTIFICATES {
            if list.0.is_empty() {
                return true;
            }
            let Some(der) = list.u24().and_then(|size| list.take(size)) else {
                transaction.raise("tls.certificate_invalid_length");
                return false;
            };
            transaction.publish(Buffer::TlsCerts, direction, der);
            if has_details {
                update(transaction, |record| details::certificate(record, der, direction));
            }
            if core::mem::take(&mut is_first) {
                // As observed, raw stream data are inspected after the certificates, as after the hello.
                transaction.advance(direction, Progress::Body);
                publish_certificate(transaction, der, direction);
            }
        }
        true
    }
}

/// The fingerprints and the names of a hello, for QUIC.
pub(super) struct Fingerprints {
    pub(super) sni: Option<Vec<u8>>,
    pub(super) alpns: Vec<Vec<u8>>,
    /// JA3 of a client, JA3S of a server.
    pub(super) ja3: String,
    pub(super) ja3_hash: String,
    /// JA4 of a client.
    pub(super) ja4: Option<String>,
    /// Types of the extensions, in order.
    pub(super) extensions: Vec<u16>,
}

impl Fingerprints {
    /// Returns those of the hello of a direction.
    pub(super) fn of(body: &[u8], direction: Direction) -> Option<Fingerprints> {
        let (hello, ja3, ja4) = match direction {
            Direction::ToServer => {
                let hello = Hello::client(body)?;
                let (ja3, ja4) = (fingerprint::ja3(&hello), fingerprint::ja4(&hello, 'q'));
                (hello, ja3, Some(ja4))
            }
            Direction::ToClient => {
                let hello = Hello::server(body)?;
                let ja3s = fingerprint::ja3s(&hello);
                (hello, ja3s, None)
            }
        };
        Some(Fingerprints {
            sni: hello.names.into_iter().next(),
            alpns: hello.alpns,
            ja3_hash: md5_text(ja3.as_bytes()),
            ja3,
            ja4,
            extensions: hello.extensions,
        })
    }
}

/// Returns the MD5 of a text in hexadecimal digits.
pub(super) fn md5_text(text: &[u8]) -> String {
    use md5::Digest;
    HEXLOWER.encode(&md5::Md5::digest(text))
}

/// Publishes the fields that both hellos have. A second hello, after a retry, replaces nothing.
fn publish_hello(transaction: &mut Transaction, hello: &Hello, direction: Direction) {
    if transaction.buffer(Buffer::TlsRandom, direction).is_some() {
        return;
    }
    let (time, bytes) = hello.random.split_at(hello.random.len().min(4));
    transaction.publish(Buffer::TlsRandom, direction, hello.random.as_slice());
    transaction.publish(Buffer::TlsRandomTime, direction, time);
    transaction.publish(Buffer::TlsRandomBytes, direction, bytes);
    for alpn in &hello.alpns {
        transaction.publish(Buffer::TlsAlpn, direction, alpn.as_slice());
    }
}

/// Publishes the fields of the first certificate of a chain.
fn publish_certificate(transaction: &mut Transaction, der: &[u8], direction: Direction) {
    let fingerprint = certificate::fingerprint(der).into_bytes();
    transaction.replace(Buffer::TlsCertFingerprint, direction, fingerprint.as_slice());
    let Some(parsed) = Certificate::parse(der) else {
        transaction.raise("tls.invalid_certificate");
        return;
    };
    transaction.replace(Buffer::TlsCertSubject, direction, parsed.subject.as_bytes());
    transaction.replace(Buffer::TlsCertIssuer, direction, parsed.issuer.as_bytes());
    transaction.replace(Buffer::TlsCertSerial, direction, parsed.serial.as_bytes());
    for name in &parsed.alternative_names {
        transaction.publish(Buffer::TlsSubjectAltName, direction, name.as_slice());
    }
    let times = [
        (NumberField::CertNotBefore, parsed.not_before),
        (NumberField::CertNotAfter, parsed.not_after),
    ];
    for (field, time) in times {
        let seconds = u64::try_from(time.saturating_add(YEAR_0_TO_1970));
        transaction.number(field, direction, seconds.unwrap_or(0));
    }
    if direction == Direction::ToClient {
        update(transaction, |record| {
            record.subject = Some(parsed.subject.into_bytes());
            record.issuer = Some(parsed.issuer.into_bytes());
            record.serial = Some(parsed.serial.into_bytes());
            record.fingerprint = Some(fingerprint);
            record.not_before = Some(parsed.not_before);
            record.not_after = Some(parsed.not_after);
            record.alternative_names = parsed.alternative_names;
        });
    } else {
        update(transaction, |record| {
            record.client = Some(ClientCertificate {
                subject: parsed.subject.into_bytes(),
                issuer: parsed.issuer.into_bytes(),
                serial: parsed.serial.into_bytes(),
                fingerprint,
                not_before: parsed.not_before,
                not_after: parsed.not_after,
                alternative_names: parsed.alternative_names,
            });
        });
    }
}

/// Changes the record of a transaction.
fn update(transaction: &mut Transaction, change: impl FnOnce(&mut TlsRecord)) {
    if let Record::Tls(record) = &mut transaction.record {
        change(record);
    }
}

impl Parser for Tls {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = &mut self.sides[chunk.direction.index()];
        if chunk.gap_before > 0 {
            let lost = usize::try_from(chunk.gap_before).unwrap_or(usize::MAX);
            if lost <= side.skip && side.rest().is_empty() {
                side.skip -= lost;
            } else {
                *side = Side {
                    has_failed: true,
                    ..Side::default()
                };
            }
        }
        if !side.has_failed {
            side.pending.extend_from_slice(chunk.bytes);
            while self.record(chunk.direction, out) {}
            let side = &mut self.sides[chunk.direction.index()];
            side.pending.drain(..side.used.min(side.pending.len()));
            side.used = 0;
        }
        if self.has_empty_record || self.sides.iter().all(|side| side.has_failed) {
            Outcome::Failed
        } else {
            Outcome::Continue
        }
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if let Some(transaction) = self.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(direction, Progress::Complete);
        }
    }

    fn is_strict(&self) -> bool {
        self.has_empty_record
    }

    fn encrypted_from(&self) -> [Option<u64>; 2] {
        // A record of application data by itself is no evidence: any sender can put one in front of plain text.
        let is_encrypted = self.has_data && self.has_hello == [true; 2] && !self.has_other_bytes;
        [is_encrypted.then_some(0); 2]
    }
}
