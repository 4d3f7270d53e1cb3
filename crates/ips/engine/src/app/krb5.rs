//! Kerberos 5 (RFC 4120): each message is a transaction. Over TCP, a size of four bytes precedes it (section 7.2.2).

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::ber::{element, tagged, unsigned};
use super::framed::{self, Framed, Size, fields};
use super::parser::{Outcome, Parser};
use super::transaction::{Transaction, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const SEQUENCE: u8 = 0x30;
const GENERAL_STRING: u8 = 0x1b;
const TICKET: u8 = 0x61;
/// Largest size of a message: servers accept less.
const MESSAGE_SIZE: usize = 1 << 20;

/// Names of the messages (section 7.5.7), as EVE has them.
const NAMES: &[(u8, &str)] = &[
    (10, "KRB_AS_REQ"),
    (11, "KRB_AS_REP"),
    (12, "KRB_TGS_REQ"),
    (13, "KRB_TGS_REP"),
    (14, "KRB_AP_REQ"),
    (15, "KRB_AP_REP"),
    (30, "KRB_ERROR"),
];

/// Names of encryption types (IANA, Kerberos Encryption Type Numbers), without those that are weak.
pub(crate) const STRONG: &[(u64, &str)] = &[
    (17, "aes128-cts-hmac-sha1-96"),
    (18, "aes256-cts-hmac-sha1-96"),
    (19, "aes128-cts-hmac-sha256-128"),
    (20, "aes256-cts-hmac-sha384-192"),
    (25, "camellia128-cts-cmac"),
    (26, "camellia256-cts-cmac"),
];
/// Names of weak encryption types.
pub(crate) const WEAK: &[(u64, &str)] = &[
    (1, "des-cbc-crc"),
    (2, "des-cbc-md4"),
    (3, "des-cbc-md5"),
    (5, "des3-cbc-md5"),
    (7, "des3-cbc-sha1"),
    (16, "des3-cbc-sha1-kd"),
    (23, "rc4-hmac"),
    (24, "rc4-hmac-exp"),
];

/// Returns the name of an encryption type, or its number.
fn encryption(kind: u64) -> String {
    let mut all = STRONG.iter().chain(WEAK);
    let found = all.find(|(number, _)| *number == kind);
    found.map_or_else(|| kind.to_string(), |(_, name)| (*name).to_owned())
}

/// Returns true if an encryption type is weak (RFC 6649, RFC 8429), or not known.
pub(crate) fn is_weak(kind: u64) -> bool {
    STRONG.iter().all(|(strong, _)| *strong != kind)
}

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Krb5 {
    transport: Transport,
    framed: Framed,
    /// The type of the last request, which an error answers.
    request: u8,
}

heap!(Krb5 { framed });

/// The parts of a message.
#[derive(Default)]
struct Message<'a> {
    cname: Vec<&'a [u8]>,
    sname: Vec<&'a [u8]>,
    realm: &'a [u8],
    encryption: Option<u64>,
    ticket_encryption: Option<u64>,
    error: Option<u64>,
}

/// Returns the parts of a name: its type, and texts (section 5.2.2).
fn name(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut inner = tagged(&mut bytes, SEQUENCE)?;
    tagged(&mut inner, 0xa0)?;
    let mut list = tagged(&mut inner, 0xa1)?;
    let mut list = tagged(&mut list, SEQUENCE)?;
    let mut parts = Vec::new();
    while !list.is_empty() && parts.len() < 32 {
        parts.push(tagged(&mut list, GENERAL_STRING)?);
    }
    Some(parts)
}

/// Returns the text of an element.
fn realm(mut bytes: &[u8]) -> Option<&[u8]> {
    element(&mut bytes).map(|(_, text)| text)
}

/// Returns the encryption type of encrypted data (section 5.2.9).
fn etype(mut bytes: &[u8]) -> Option<u64> {
    let mut inner = tagged(&mut bytes, SEQUENCE)?;
    let mut kind = tagged(&mut inner, 0xa0)?;
    element(&mut kind).map(|(_, number)| unsigned(number))
}

/// Reads a message with the number of its application tag.
fn read(kind: u8, mut bytes: &[u8]) -> Option<Message<'_>> {
    let mut found = Message::default();
    let mut fields = tagged(&mut bytes, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content) = element(&mut fields)?;
        match (kind, tag) {
            (10 | 12, 0xa4) => request_body(content, &mut found)?,
            (11 | 13, 0xa3) => found.realm = realm(content)?,
            (11 | 13, 0xa4) => found.cname = name(content)?,
            (11 | 13, 0xa5) => ticket(content, &mut found)?,
            (11 | 13, 0xa6) => found.encryption = etype(content),
            (30, 0xa6) => found.error = element(&mut &*content).map(|(_, code)| unsigned(code)),
            (30, 0xa8) => found.cname = name(content)?,
            (30, 0xa9) => found.realm = realm(content)?,
            (30, 0xaa) => found.sname = name(content)?,
            _ => {}
        }
    }
    Some(found)
}

/// Reads the body of a request (section 5.4.1).
fn request_body<'a>(mut bytes: &'a [u8], found: &mut Message<'a>) -> Option<()> {
    let mut fields = tagged(&mut bytes, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content) = element(&mut fields)?;
        match tag {
            0xa1 => found.cname = name(content)?,
            0xa2 => found.realm = realm(content)?,
            0xa3 => found.sname = name(content)?,
            _ => {}
        }
    }
    Some(())
}

/// Reads a ticket (section 5.3).
fn ticket<'a>(mut bytes: &'a [u8], found: &mut Message<'a>) -> Option<()> {
    let mut ticket = tagged(&mut bytes, TICKET)?;
    let mut fields = tagged(&mut ticket, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content) = element(&mut fields)?;
        match tag {
            0xa2 => found.sname = name(content)?,
            0xa3 => found.ticket_encryption = etype(content),
            _ => {}
        }
    }
    Some(())
}

impl Krb5 {
    pub(super) fn new(transport: Transport) -> Krb5 {
        Krb5 {
            transport,
            framed: Framed::default(),
            request: 0,
        }
    }

    fn message(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        let mut rest = bytes;
        // The tag of an application has the number of the message.
        let found = element(&mut rest)
            .filter(|(tag, _)| tag & 0xe0 == 0x60)
            .and_then(|(tag, content)| Some((tag & 0x1f, read(tag & 0x1f, content)?)));
        let transaction = framed::message(AppProtocol::Krb5, direction, out);
        match found {
            Some((kind, message)) => self.publish(kind, &message, direction, transaction),
            None => transaction.raise("krb5.malformed_data"),
        }
    }

    fn publish(
        &mut self,
        kind: u8,
        message: &Message<'_>,
        direction: Direction,
        transaction: &mut Transaction,
    ) {
        transaction.number(NumberField::Krb5MsgType, direction, kind);
        for part in &message.cname {
            transaction.publish(Buffer::Krb5Cname, direction, *part);
        }
        for part in &message.sname {
            transaction.publish(Buffer::Krb5Sname, direction, *part);
        }
        if let Some(error) = message.error {
            transaction.number(NumberField::Krb5ErrCode, direction, error);
        }
        if message.encryption.is_some_and(is_weak) {
            transaction.raise("krb5.weak_encryption");
        }
        let name_of = |kind: u8| {
            NAMES
                .iter()
                .find(|(known, _)| *known == kind)
                .map(|(_, name)| *name)
        };
        let request = core::mem::replace(&mut self.request, kind);
        fields(transaction, |out| {
            match name_of(kind) {
                Some(name) => out.text("msg_type", name.as_bytes()),
                None => out.text("msg_type", kind.to_string().as_bytes()),
            };
            if let Some(error) = message.error {
                let failed = name_of(request).unwrap_or("UNKNOWN");
                out.text("failed_request", failed.as_bytes())
                    .number("error_code", error);
            }
            if !message.cname.is_empty() {
                out.text("cname", &message.cname.join(&b'/'));
            }
            if !message.realm.is_empty() {
                out.text("realm", message.realm);
            }
            if !message.sname.is_empty() {
                out.text("sname", &message.sname.join(&b'/'));
            }
            if let Some(kind) = message.encryption {
                out.text("encryption", encryption(kind).as_bytes())
                    .flag("weak_encryption", is_weak(kind));
            }
            if let Some(kind) = message.ticket_encryption {
                out.text("ticket_encryption", encryption(kind).as_bytes())
                    .flag("ticket_weak_encryption", is_weak(kind));
            }
        });
    }
}

/// Returns the size of a message over TCP.
fn size(bytes: &[u8]) -> Size {
    match bytes.first_chunk::<4>() {
        // The first bit is reserved (section 7.2.2).
        Some(size) => match u32::from_be_bytes(*size) as usize {
            size if size <= MESSAGE_SIZE => Size::Known(4 + size),
            _ => Size::Invalid,
        },
        None => Size::Incomplete,
    }
}

impl Parser for Krb5 {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if self.transport == Transport::Udp {
            self.message(chunk.direction, chunk.bytes, out);
            return Outcome::Continue;
        }
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |message| {
            self.message(chunk.direction, message.get(4..).unwrap_or_default(), out);
            true
        });
        self.framed = framed;
        outcome
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}
